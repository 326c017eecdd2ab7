"""The Spark data source: tables, queries, the change feed and system tables."""
