"""The head of a configuration: its label, where the cluster is stored, how its state is kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from omnigraph.cluster.config.model import ClusterConfig
from omnigraph.cluster.diagnostics import Diagnostic, error, warning
from omnigraph.store.errors import InvalidLocationError
from omnigraph.store.uri import parse_root
from omnigraph.strict_yaml import quoted
from omnigraph.texts import redacted

BACKEND: Final = "cluster"
_SCHEMES: Final = frozenset({"file", "s3"})


def check_header(config: ClusterConfig) -> list[Diagnostic]:
    """Return what is wrong with the label and the state."""
    found = []
    if config.name is not None and not config.name.strip():
        found.append(error("empty_metadata_name", "metadata.name", "the name is blank"))
    if config.state_backend not in {None, BACKEND}:
        message = f"unknown backend {quoted(str(config.state_backend))}; write `{BACKEND}`"
        found.append(error("unsupported_state_backend", "state.backend", message))
    if config.state_lock is False:
        message = "commands take no lock: two that run at once can change the same graph"
        found.append(warning("state_lock_disabled", "state.lock", message))
    return found


def storage_root(config_dir: str, storage: str | None) -> tuple[str | None, list[Diagnostic]]:
    """Return the absolute path or the URI of the storage root, or what is wrong with it.

    A relative path starts at the folder of the configuration, not at the working directory.

    >>> storage_root("/srv/lab", "data/")
    ('/srv/lab/data', [])
    >>> storage_root("/srv/lab", "s3://acme-og/prod/")
    ('s3://acme-og/prod', [])
    """
    base = os.path.abspath(config_dir)  # noqa: PTH100 - Path.resolve would follow links
    if storage is None:
        return base, []
    scheme, slashes, _ = storage.partition("://")
    if slashes and scheme.lower() not in _SCHEMES:
        return None, [_invalid(storage, "expected a path, file:// or s3://bucket[/prefix]")]
    try:
        root = parse_root(storage)
        if "://" not in storage:
            root = parse_root(Path(base) / Path(storage).expanduser())
    except (InvalidLocationError, RuntimeError) as problem:
        reason = problem.reason if isinstance(problem, InvalidLocationError) else str(problem)
        return None, [_invalid(storage, reason)]
    return root.uri, []


def _invalid(storage: str, reason: str) -> Diagnostic:
    return error("invalid_storage_root", "storage", f"{quoted(redacted(storage))}: {reason}")
