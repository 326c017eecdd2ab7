"""Tests of queries, loads, merges, schemas and pipelines, declared in `*.test.yaml` files."""
