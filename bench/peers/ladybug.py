"""Ladybug; see `bench.peers.kuzu_family`."""

from __future__ import annotations

from pathlib import Path

from bench.peers.dataset import Data
from bench.peers.engine import Engine
from bench.peers.kuzu_family import build_with, opened_with

NAME = "ladybug"
NEEDS = (NAME,)


def build(data: Data, root: Path) -> None:
    build_with(NAME, data, root)


def opened(data: Data, root: Path) -> Engine:
    return opened_with(NAME, data, root)
