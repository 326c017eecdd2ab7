"""The files of the operator: defaults, profiles, tokens."""
