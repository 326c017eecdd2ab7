"""Importing the package stays cheap, and optional libraries stay optional."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

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


def test_opening_a_graph_does_not_load_pandas() -> None:
    """pyarrow looks for pandas when Lance imports its datasets: half a second per process."""
    script = (
        "import sys, omnigraph.store.lance.store; assert 'lance' in sys.modules; "
        "print('pandas' in sys.modules)"
    )
    assert fresh(script).strip() == "False"


def test_pyarrow_knows_pandas_that_is_imported_after_lance() -> None:
    """Without a second look NaN of a Series would stay NaN instead of null."""
    pytest.importorskip("pandas")
    script = (
        "import omnigraph.store.lance.store, pandas, pyarrow; "
        "print(pyarrow.array(pandas.Series([1.0, None])).null_count, pandas.__spec__.name)"
    )
    assert fresh(script).split() == ["1", "pandas"]


def test_another_thread_may_import_pandas_meanwhile() -> None:
    pytest.importorskip("pandas")
    script = (
        "import threading\n"
        "from omnigraph.store.late_pandas import without_pandas\n"
        "found = []\n"
        "def other():\n"
        "    import pandas\n"
        "    found.append(pandas.__name__)\n"
        "with without_pandas():\n"
        "    thread = threading.Thread(target=other)\n"
        "    thread.start()\n"
        "    thread.join()\n"
        "print(found)\n"
    )
    assert fresh(script).strip() == "['pandas']"


def test_pandas_may_come_from_a_loader_that_loads_other_modules_too() -> None:
    """A packager (PyInstaller) has one loader for everything; a spec may be loaded twice."""
    script = (
        "import sys, types, importlib\n"
        "from importlib.machinery import ModuleSpec\n"
        "from omnigraph.store.late_pandas import without_pandas\n"
        "class Packed:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name.partition('.')[0] in ('pandas', 'zoo'):\n"
        "            return ModuleSpec(name, self, is_package=True)\n"
        "    def create_module(self, spec):\n"
        "        return None\n"
        "    def exec_module(self, module):\n"
        "        if module.__name__ == 'pandas':\n"
        "            module.__version__ = '0'\n"
        "            importlib.import_module('pandas.inner')\n"
        "with without_pandas():\n"
        "    pass\n"
        "sys.meta_path.insert(0, Packed())\n"
        "notice = sys.meta_path[1]\n"
        "sys.meta_path.insert(0, sys.meta_path.pop(1))\n"
        "import pandas, zoo\n"
        "print(pandas.__name__, zoo.__name__, notice in sys.meta_path)\n"
    )
    assert fresh(script).split() == ["pandas", "zoo", "False"]


INDIRECT = {
    "pandas": "PySpark converts through it",
    "httptools": "uvicorn parses with it",
    "uvloop": "uvicorn runs on it",
}


def test_extras_install_only_what_is_imported() -> None:
    root = Path(__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = {re.split(r"[\[<>=~ ]", one)[0] for some in extras.values() for one in some}
    text = "".join(path.read_text(encoding="utf-8") for path in (root / "src").rglob("*.py"))
    modules = {one.removesuffix("-python") for one in wanted - {"omnigraph"} - INDIRECT.keys()}
    assert {one for one in modules if not re.search(rf"(import|from) {one}\b", text)} == set()
