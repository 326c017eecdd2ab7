"""What commands take in: flags, options, and the values they name."""
