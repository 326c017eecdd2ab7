"""Every slow test belongs to exactly one shard of `make test-slow`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from run_slow_tests import SHARDS

ROOT = Path(__file__).parents[1]


def test_every_folder_with_a_slow_test_is_in_one_shard() -> None:
    marked = {
        path.relative_to(ROOT).parts[1]
        for path in (ROOT / "tests").glob("*/**/test_*.py")
        if "mark.slow" in path.read_text()
    }
    named = [folder for folders in SHARDS.values() for folder in folders]
    assert len(named) == len(set(named))
    assert {f"tests/{folder}" for folder in marked} == set(named)


def test_an_unknown_shard_is_refused() -> None:
    told = subprocess.run(
        [sys.executable, "tools/run_slow_tests.py", "fautls"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 2
    assert "there are languages" in told.stdout
