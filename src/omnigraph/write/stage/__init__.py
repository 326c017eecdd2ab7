"""From rows that are new, changed or gone to transactions that nobody has committed."""
