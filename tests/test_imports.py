"""Importing the package stays cheap, and optional libraries stay optional."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import omnigraph
from omnigraph.changes.commit_changes import PAGE_CHANGES_DEFAULT
from omnigraph.errors import EXTRAS
from omnigraph.graph import (
    Graph,
    GraphBranches,
    GraphChanges,
    GraphLineage,
    GraphMaintenance,
)
from omnigraph.graph.session import LIVE_EVENTS
from omnigraph.lineage.trace import STEPS_MAX, Direction
from omnigraph.lineage.transport import TARGET_NAME
from omnigraph.maintenance.cleanup.needed import ORPHAN_AGE_S
from omnigraph.merge.resolve import Strategy

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
    script = "import json, sys, omnigraph.graph.graph; print(json.dumps(sorted(sys.modules)))"
    assert {"pandas", "lance"} & set(json.loads(fresh(script))) == set()


NOT_FOR_A_QUERY = (
    *("changes", "cluster", "client", "engine", "lineage", "maintenance", "merge", "pipelines"),
    *("schema.migration", "server", "spark", "write"),
)
"""Rooms, and a part of one, that opening a graph and asking it something must not load."""


def rooms_loaded(names: set[str]) -> set[str]:
    return {
        room
        for room in NOT_FOR_A_QUERY
        if any(f"{name}.".startswith(f"omnigraph.{room}.") for name in names)
    }


@pytest.fixture(scope="module")
def small_graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("start") / "people.omni"
    with Graph.init(root, "node Person { name: String @key }") as graph:
        graph.load([{"type": "Person", "data": {"name": "ann"}}], mode="append")
    return root


def test_the_command_query_loads_no_room_that_only_writes_need(small_graph: Path) -> None:
    asked = "match { $p: Person } return { $p.name }"
    script = (
        "import json, sys\n"
        "from omnigraph.cli.app import run\n"
        f"code = run(['query', {str(small_graph)!r}, '-e', {asked!r}, '--format', 'csv'])\n"
        "print(json.dumps([code, sorted(sys.modules)]))\n"
    )
    *lines, last = fresh(script).splitlines()
    code, loaded = json.loads(last)
    assert (code, lines[-1]) == (0, "ann")
    assert rooms_loaded(set(loaded)) == set()


@pytest.mark.parametrize("mode", ["read_only", "read_write"])
def test_opening_and_asking_loads_no_room_that_only_writes_need(
    small_graph: Path, mode: str
) -> None:
    script = (
        "import json, sys, omnigraph\n"
        f"with omnigraph.open({str(small_graph)!r}, mode={mode!r}) as graph:\n"
        "    rows = graph.query('match { $p: Person } return { $p.name }').to_pylist()\n"
        "print(json.dumps([len(rows), sorted(sys.modules)]))\n"
    )
    count, loaded = json.loads(fresh(script))
    assert count == 1
    assert rooms_loaded(set(loaded)) == set()


NOT_FOR_A_LOAD = ("changes", "cluster", "merge", "pipelines", "schema.migration", "server", "spark")


def test_loading_tables_loads_no_merge_and_no_difference(small_graph: Path) -> None:
    script = (
        "import json, sys, omnigraph\n"
        f"with omnigraph.open({str(small_graph)!r}) as graph:\n"
        "    graph.load({'Person': [{'name': 'bob'}]}, mode='merge', dry_run=True)\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    loaded = rooms_loaded(set(json.loads(fresh(script))))
    assert loaded & set(NOT_FOR_A_LOAD) == set()


def test_importing_late_modules_collects_no_garbage() -> None:
    script = (
        "import gc, json\n"
        "from omnigraph.graph.late import mutations\n"
        "seen = []\n"
        "gc.callbacks.append(lambda phase, info: seen.append(phase))\n"
        "mutations.__getattr__('__doc__')\n"
        "print(json.dumps([seen.count('start'), gc.isenabled()]))\n"
    )
    collections, is_running = json.loads(fresh(script))
    assert collections <= 1, "one may follow the last import"
    assert is_running


# -- faces and modules that load late -------------------------------------------------------------


def declared_for_the_checker(source: Path) -> dict[str, str]:
    """Return what an `if TYPE_CHECKING` block imports: names, and where each of them lives."""
    found = {}
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for each in node.body:
                if isinstance(each, ast.ImportFrom):
                    for alias in each.names:
                        home = f"{each.module}.{alias.name}"
                        found[alias.asname or alias.name] = home
                elif isinstance(each, ast.Import):
                    found |= {alias.asname or alias.name: alias.name for alias in each.names}
    return found


SOURCES = Path(omnigraph.__file__).parent
LATE_MODULES = sorted(each for each in SOURCES.glob("*/late.py"))
FACES = sorted(
    path
    for path in SOURCES.rglob("__init__.py")
    if "late_names(" in path.read_text(encoding="utf-8")
)


def module_name(source: Path) -> str:
    parts = source.relative_to(SOURCES.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


@pytest.mark.parametrize("source", LATE_MODULES, ids=module_name)
def test_a_late_module_is_what_the_type_checker_takes_it_for(source: Path) -> None:
    late = import_module(module_name(source))
    declared = declared_for_the_checker(source)
    assert sorted(declared) == sorted(late.__all__)
    assert {name: getattr(late, name).__name__ for name in declared} == declared
    for home in declared.values():
        import_module(home)


@pytest.mark.parametrize("source", FACES, ids=module_name)
def test_a_late_name_is_what_the_type_checker_takes_it_for(source: Path) -> None:
    face = import_module(module_name(source))
    declared = declared_for_the_checker(source)
    assert declared.keys() <= set(face.__all__)
    for name in face.__all__:
        found = getattr(face, name)
        if name in declared:
            module, _, attribute = declared[name].rpartition(".")
            assert found is getattr(import_module(module), attribute)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        face.nothing  # noqa: B018 - to read it is the test


def test_a_client_knows_every_error_of_the_rooms_behind_a_graph() -> None:
    """Errors of a server come back as their classes, which exist once their modules are loaded."""
    script = (
        "import importlib, json, pkgutil, omnigraph\n"
        "from omnigraph.client.http import error_classes\n"
        "known = set(error_classes())\n"
        "rooms = 'changes lineage maintenance manifest merge policy read recovery schema'.split()\n"
        "rooms += 'search store syntax write engine graph query'.split()\n"
        "for found in pkgutil.walk_packages(omnigraph.__path__, 'omnigraph.'):\n"
        "    if found.name.split('.')[1] in rooms:\n"
        "        importlib.import_module(found.name)\n"
        "found = error_classes.__wrapped__()\n"
        "ours = {code for code in found if found[code].__module__.split('.')[1] in rooms}\n"
        "print(json.dumps(sorted(ours - known)))\n"
    )
    assert json.loads(fresh(script)) == []


def test_defaults_of_calls_are_those_of_the_rooms_behind_them() -> None:
    """The signatures spell them out, because a default would load its room."""

    def default(method: object, name: str) -> object:
        return inspect.signature(method).parameters[name].default  # type: ignore[arg-type]

    assert default(GraphChanges.of_commit, "limit") == PAGE_CHANGES_DEFAULT
    assert default(GraphLineage.show, "limit") == STEPS_MAX
    assert default(GraphLineage.show, "direction") == Direction.UP
    assert default(GraphMaintenance.cleanup, "orphan_age_s") == ORPHAN_AGE_S
    assert default(GraphBranches.merge, "strategy") == Strategy.ROW
    assert LIVE_EVENTS == TARGET_NAME


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


def extras() -> dict[str, set[str]]:
    """Return the libraries that each extra installs."""
    root = Path(__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = project["optional-dependencies"]
    return {
        extra: {re.split(r"[\[<>=~ ]", one)[0].removesuffix("-python") for one in libraries}
        for extra, libraries in declared.items()
    }


def test_a_library_that_is_missing_names_an_extra_that_installs_it() -> None:
    found = extras()
    assert {library for library, extra in EXTRAS.items() if library not in found[extra]} == set()


def test_without_extras_commands_and_names_say_which_one_they_need(small_graph: Path) -> None:
    script = (
        "import json, sys\n"
        f"sys.modules |= dict.fromkeys({sorted(EXTRAS)!r})\n"
        "from omnigraph import *\n"
        "import omnigraph\n"
        "from omnigraph.cli.app import run\n"
        "from omnigraph.errors import OmnigraphError\n"
        "def noted(call):\n"
        "    try:\n"
        "        call()\n"
        "    except (ImportError, OmnigraphError) as error:\n"
        "        return [type(error).__name__, *error.__notes__]\n"
        f"graph = open({str(small_graph)!r})\n"
        "said = [\n"
        "    noted(lambda: omnigraph.connect('http://localhost:1')),\n"
        "    noted(lambda: graph.optimize(engine='spark')),\n"
        "]\n"
        "codes = [\n"
        "    run(['serve', '--store', graph.uri]),\n"
        "    run(['query', 'q', '--server', 'http://localhost:1']),\n"
        "    run(['pipeline', 'run', 'a.yaml']),\n"
        "]\n"
        "print(json.dumps([said, codes, [name in globals() for name in ('Graph', 'connect')]]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    spark = "`pip install 'omnigraph[spark]'` installs it, `engine='local'` runs in this process"
    assert json.loads(done.stdout) == [
        [
            ["ModuleNotFoundError", "hint: pip install 'omnigraph[client]'"],
            ["EngineMissingError", f"hint: {spark}"],
        ],
        [1, 1, 1],
        [True, False],
    ]
    hints = [line for line in done.stderr.splitlines() if line.startswith("hint")]
    assert hints == [
        f"hint: pip install 'omnigraph[{one}]'" for one in ("server", "client", "spark")
    ]


def test_extras_install_only_what_is_imported() -> None:
    root = Path(__file__).parents[1]
    wanted = set().union(*extras().values()) - {"omnigraph"} - INDIRECT.keys()
    text = "".join(path.read_text(encoding="utf-8") for path in (root / "src").rglob("*.py"))
    assert {one for one in wanted if not re.search(rf"(import|from) {one}\b", text)} == set()
