"""Where simulated graphs lie, and what a simulation needs to be one."""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.maintenance.optimize import CONCURRENCY_VARIABLE
from omnigraph.store.lance import packing
from sim.life import cached_property_locks
from sim.schedule import Template

_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of our own below it


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder in memory where there is such a thing: nothing here is about the disk."""
    made = Path(tempfile.mkdtemp(dir=_MEMORY if _MEMORY.is_dir() else None))
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def template(folder: Path) -> Iterator[Template]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CONCURRENCY_VARIABLE, "1")
        # Schedules make few versions.
        patch.setattr(packing, "LOOSE_MIN", 2)
        patch.setattr(packing, "PACKED_MIN", 2)
        for attribute in cached_property_locks():
            patch.setattr(attribute, "lock", contextlib.nullcontext())
        # Recovery tells of every death, and there are thousands.
        logging.disable(logging.ERROR)
        yield Template.made(folder)
        logging.disable(logging.NOTSET)
