"""The typed plan of a query: its operators, how a checked query becomes one, how it prints."""
