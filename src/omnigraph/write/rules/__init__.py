"""The rules of the data, and the violations that they find."""
