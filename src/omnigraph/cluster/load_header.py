"""The head of a folder's `cluster.yaml`: where the cluster is stored.

Nothing that the file refers to is read, and no language is loaded.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from omnigraph.cluster.config.files import UnreadableError, read_bytes
from omnigraph.cluster.config.header import check_header, storage_root
from omnigraph.cluster.config.model import ClusterConfig
from omnigraph.cluster.config.read import read_config
from omnigraph.cluster.config.shape import FILE_NAME
from omnigraph.cluster.diagnostics import Diagnostic, error
from omnigraph.texts import on_one_line


@dataclass(frozen=True)
class Header:
    """Where a cluster is stored, and whether commands lock it.

    `storage` is none if an error among the diagnostics keeps it from being known.
    """

    storage: str | None
    is_locked: bool
    diagnostics: tuple[Diagnostic, ...]


def load_header(config_dir: str) -> Header:
    """Read where a cluster is stored, from the shape of its file alone."""
    return load_config(config_dir)[1]


def load_config(config_dir: str) -> tuple[ClusterConfig | None, Header]:
    """Read the file of a folder; without a configuration if it has not the right shape."""
    text, found = _read(config_dir)
    if text is None:
        return None, Header(None, is_locked=True, diagnostics=found)
    config, found = read_config(text)
    if config is None:
        return None, Header(None, is_locked=True, diagnostics=found)
    storage, wrong_storage = storage_root(config_dir, config.storage)
    return config, Header(
        storage=storage,
        is_locked=config.state_lock is not False,
        diagnostics=(*check_header(config), *wrong_storage),
    )


def config_file(config_dir: str) -> str:
    """Return the path of the file of a folder, as the folder is spelled."""
    return os.path.join(config_dir, FILE_NAME)  # noqa: PTH118 - keeps `./` and the like


def _read(config_dir: str) -> tuple[str | None, tuple[Diagnostic, ...]]:
    if "\0" in config_dir or not Path(config_dir).is_dir():
        message = "there is no such folder; give the one that has `cluster.yaml` by `--config`"
        return None, (error("config_dir_not_found", on_one_line(config_dir), message),)
    try:
        return read_bytes(config_file(config_dir)).decode(), ()
    except UnreadableError as problem:
        message = f"the file cannot be read: {problem}; `omnigraph cluster init` writes one"
        return None, (error("cluster_config_read_error", FILE_NAME, message),)
    except UnicodeDecodeError as problem:
        message = f"the file is not UTF-8: byte {problem.object[problem.start]:#04x}"
        return None, (error("cluster_config_read_error", FILE_NAME, message),)
