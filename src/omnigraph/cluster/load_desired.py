"""From a folder with `cluster.yaml` to what it declares."""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.cluster.desired import Desired
from omnigraph.cluster.diagnostics import Diagnostic


@dataclass(frozen=True)
class Header:
    """What `cluster.yaml` says about storage; nothing that it refers to has been read.

    `storage` is none if an error among the diagnostics keeps it from being told.
    """

    storage: str | None
    is_locked: bool
    diagnostics: tuple[Diagnostic, ...]


def load_desired(config_dir: str) -> Desired:
    """Read and check a folder; what is wrong is in the diagnostics."""
    raise NotImplementedError(config_dir)


def load_header(config_dir: str) -> Header:
    """Read where a cluster is stored, from the shape of its file alone."""
    raise NotImplementedError(config_dir)
