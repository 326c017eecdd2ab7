"""Importing the package stays cheap, and optional libraries stay optional."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = (
    *("lance", "pyspark", "fastapi", "starlette", "uvicorn", "mcp", "obstore", "boto3", "pandas"),
    "cedarpy",
)


def fresh(script: str) -> str:
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return run.stdout


@pytest.mark.parametrize(
    "module", ["omnigraph", "omnigraph.schema", "omnigraph.query", "omnigraph.policy"]
)
def test_importing_loads_nothing_heavy(module: str) -> None:
    script = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    loaded = set(json.loads(fresh(script)))
    assert loaded & set(HEAVY) == set()


def test_the_pytest_plugin_loads_no_part_of_the_engine() -> None:
    script = "import json, sys, omnigraph.testing.plugin; print(json.dumps(sorted(sys.modules)))"
    loaded = set(json.loads(fresh(script)))
    assert {"pyarrow", "omnigraph.graph", *HEAVY} & loaded == set()


def test_importing_the_engine_loads_neither_pandas_nor_lance() -> None:
    """Lance is not safe to fork: it comes with the first graph that is opened."""
    script = "import json, sys, omnigraph.graph; print(json.dumps(sorted(sys.modules)))"
    assert {"pandas", "lance"} & set(json.loads(fresh(script))) == set()


def test_importing_costs_little_on_top_of_pyarrow() -> None:
    script = (
        "import time, pyarrow; start = time.perf_counter(); import omnigraph; "
        "print(time.perf_counter() - start)"
    )
    costs = [float(fresh(script)) for _ in range(5)]
    assert min(costs) <= 0.15
