"""The compiled schema: identities that survive renames, hashes, stored form, drift."""
