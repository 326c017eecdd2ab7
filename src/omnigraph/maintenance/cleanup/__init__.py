"""`cleanup`: rules, plan, what is left over, what is removed."""
