"""Kills a load in the middle of its commit, as a power cut would."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

_TRIES = 20
_LOOKS_S = 0.0002


def killed_load(graph: Path, records: Path) -> bool:
    """Load records in another process and kill it once it has begun to commit.

    Whether that succeeded is a matter of milliseconds, so it is tried again when the load was
    faster.
    """
    program = "from omnigraph.cli import main; main()"
    args = ["load", str(graph), "--data", str(records), "--mode", "merge", "--quiet"]
    for _ in range(_TRIES):
        child = subprocess.Popen(  # noqa: S603 our own program
            [sys.executable, "-c", program, *args],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while child.poll() is None:
            if any((graph / "__recovery").glob("*.json")):
                child.kill()
                child.wait()
                break
            time.sleep(_LOOKS_S)
        if any((graph / "__recovery").glob("*.json")):
            return True
    return False
