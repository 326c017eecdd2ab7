"""Commands on branches, commits, tags and differences."""
