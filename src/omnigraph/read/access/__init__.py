"""How operators reach stored rows: tables, filters, edges, text and kept columns."""
