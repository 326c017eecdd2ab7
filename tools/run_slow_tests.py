"""Runs the long suites shard by shard and prints one line for each.

    python tools/run_slow_tests.py [SHARD ...]

Every slow test belongs to exactly one shard (`tests/test_shards.py` checks it). The output of a
shard goes to `build/slow/SHARD.log`. Ends with 1 when a shard failed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

SHARDS: Final[dict[str, tuple[str, ...]]] = {
    "languages": ("tests/query", "tests/schema"),
    "models": (
        "tests/changes",
        "tests/manifest",
        "tests/merge",
        "tests/read",
        "tests/recovery",
        "tests/write",
    ),
    "server": ("tests/server",),
    "cluster": ("tests/cluster",),
    "faults": ("tests/faults",),
    "sim": ("tests/sim",),
    "crash": ("tests/crash",),
    "spark": ("tests/spark", "tests/pipelines"),
}
"""Test folders by shard, the quickest to tell first."""
WORKERS: Final = 2
LOGS: Final = Path("build/slow")
_SUMMARY: Final = re.compile(r"^=*\s*((?:\d+ \w+(?:, )?)+) in [\d.]+s", re.MULTILINE)


def run(shard: str) -> bool:
    """Run one shard and print its line."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{shard}.log"
    command = [
        *(sys.executable, "-m", "pytest", "-m", "slow", "--timeout", "3600"),
        *("-n", str(WORKERS), "--dist", "loadgroup", "--durations", "10", *SHARDS[shard]),
    ]
    started = time.monotonic()
    with log.open("w") as output:
        code = subprocess.run(  # noqa: S603 - our own command
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "HYPOTHESIS_PROFILE": "slow"},
            check=False,
        ).returncode
    minutes, seconds = divmod(round(time.monotonic() - started), 60)
    counted = _SUMMARY.findall(log.read_text(errors="replace"))
    said = counted[-1] if counted else f"exit code {code}"
    print(f"{shard:<10} {minutes:>3}:{seconds:02}  {said}", flush=True)
    if code:
        print(f"{'':<16}  see {log}", flush=True)
    return code == 0


def main(names: list[str]) -> int:
    """Run the named shards, or all; return the exit code."""
    unknown = [name for name in names if name not in SHARDS]
    if unknown:
        print(f"there is no shard {', '.join(unknown)}; there are {', '.join(SHARDS)}")
        return 2
    outcomes = [run(name) for name in names or SHARDS]
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
