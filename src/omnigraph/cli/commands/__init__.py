"""One module per command; its `command` is what the root command runs."""
