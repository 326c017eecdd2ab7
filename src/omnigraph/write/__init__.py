"""Stage, validate, commit: loads, mutations, schema changes and maintenance."""
