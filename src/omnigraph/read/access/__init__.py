"""How operators reach stored rows: tables, filters, edges, text and cached columns."""
