"""What commands print: results, tables, streams."""
