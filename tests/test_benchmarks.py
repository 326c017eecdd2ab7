from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_benchmark_can_be_loaded() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    files = {path.stem for path in (ROOT / "bench").glob("[!_]*.py")}
    listed = set(done.stdout.removeprefix("benchmarks: ").split(" (")[0].split(", "))
    assert files - listed == {"ask", "data"}, "these two only help the others"
