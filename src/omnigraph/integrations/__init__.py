"""What other tools load of ours; each module needs the tool that it is named after."""
