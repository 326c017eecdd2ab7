"""The typed plan of a query: its operators, the columns that they fetch, how it prints."""
