"""Providers of vectors for the tests of this room."""

from __future__ import annotations

from support.embedding_fixtures import no_provider, server

__all__ = ["no_provider", "server"]
