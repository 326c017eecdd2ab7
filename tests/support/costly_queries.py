"""Runs queries that cost too much, in a process of its own, and says what each has cost.

Called as a script with the root of a graph and a JSON list of cases; prints a JSON list of results.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph

_KIB = 1024


def high_water() -> int:
    """Return the most memory that this process has had since it was last asked to forget."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * _KIB for line in lines if line.startswith("VmHWM"))


def forget_high_water() -> None:
    """Count from here."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def run_case(graph: Graph, case: dict[str, Any]) -> dict[str, Any]:
    """Run one query and return its error or number of rows, and how far memory has grown."""
    params = {name: expanded(value) for name, value in case.get("params", {}).items()}
    forget_high_water()
    before = high_water()
    try:
        found: Any = graph.query(case["query"], params=params, **case.get("limits", {})).row_count
    except OmnigraphError as error:
        found = error.code
    return {"found": found, "grown": high_water() - before}


def expanded(value: Any) -> Any:
    """Make long texts here: a command line has no room for them."""
    if isinstance(value, dict):
        numbered = [value["repeat"].replace("#", str(n)) for n in range(value["times"])]
        return "".join(numbered)
    return value


if __name__ == "__main__":
    with Graph.open(sys.argv[1], durability="process") as opened:
        opened.query("query q() { match { $a: N } return { count($a) as n } }")
        sys.stdout.write(json.dumps([run_case(opened, case) for case in json.loads(sys.argv[2])]))
