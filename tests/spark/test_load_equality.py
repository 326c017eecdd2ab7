"""The in-process engine and Spark give the same graph, the same counts and the same problems."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from omnigraph.engine import engine_named
from omnigraph.graph import Graph
from omnigraph.spark.load import Tuning
from omnigraph.write.violations import KeyConflictError, ValidationError
from support.load_inputs import SCHEMAS, as_lines, as_parquet, as_tables, records, seed
from support.loads import graph_lines

pytestmark = pytest.mark.spark

TUNINGS = (
    Tuning(),
    # Few hashes, so that most rows share one; everything in jobs; sets of many parts.
    Tuning(hash_bits=2, driver_rows_max=0, set_rows_max=3),
    Tuning(hash_bits=1, set_rows_max=1),
)


def _outcome(graph: Graph, data: object, engine: str, quarantine: Path, options: dict) -> object:
    own = dict(options)
    if own.get("on_error") == "quarantine":
        own["quarantine"] = quarantine
    try:
        result = graph.load(data, engine=engine, **own)
    except ValidationError as error:
        found = [tuple(vars(one).values()) for one in error.violations]
        return sorted(map(repr, found)), error.total, error.totals, str(error)
    except KeyConflictError as error:
        return error.key_conflict, error.total, error.is_stored, sorted(error.offenders)
    assert result.engine == engine
    shape = result.to_json()
    counts = {name: shape[name] for name in ("nodes", "edges", "rejected", "total_entities")}
    return counts, shape["commit"] is None, _set_aside(quarantine)


def _set_aside(folder: Path) -> list[str]:
    if not folder.exists():
        return []
    lines = [
        (path.name, json.dumps(json.loads(line), sort_keys=True))
        for path in folder.iterdir()
        for line in path.read_text().splitlines()
    ]
    return sorted(f"{name} {line}" for name, line in lines)


def _check(data: st.DataObject, loads: int) -> None:
    schema = data.draw(st.sampled_from(SCHEMAS))
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        first = as_lines(seed(schema), here / "seed.jsonl", broken=False)
        graphs = {}
        for engine in ("local", "spark"):
            graphs[engine] = Graph.init(str(here / engine), schema, durability="process")
            graphs[engine].load(first, mode="append", engine="local")
        for number in range(loads):
            _check_load(data, schema, graphs, here / f"load{number}")


def _check_load(
    data: st.DataObject, schema: str, graphs: dict[str, Graph], folder: Path
) -> None:
    folder.mkdir()
    given_records = data.draw(records(schema, is_tidy=data.draw(st.booleans())))
    mode = data.draw(st.sampled_from(["append", "merge", "overwrite"]))
    options: dict[str, object] = {"mode": mode}
    if mode == "merge" and data.draw(st.booleans()):
        options["on_duplicate"] = "last"
    if data.draw(st.integers(0, 2)) == 0:
        options["on_error"] = "quarantine"
    form = data.draw(st.sampled_from(["lines", "parquet", "tables"]))
    source: object
    if form == "lines":
        source = as_lines(given_records, folder / "in.jsonl", broken=data.draw(st.booleans()))
    else:
        tables = as_tables(given_records, schema)
        source = tables if form == "tables" else as_parquet(tables, folder / "in")
    engine_named("spark").tuning = data.draw(st.sampled_from(TUNINGS))
    found = {
        engine: _outcome(graph, source, engine, folder / engine, options)
        for engine, graph in graphs.items()
    }
    assert found["spark"] == found["local"]
    assert graph_lines(graphs["spark"]) == graph_lines(graphs["local"])


_CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]


@settings(max_examples=6, suppress_health_check=_CHECKS, derandomize=True)
@given(st.data())
def test_both_engines_load_alike(spark: SparkSession, data: st.DataObject) -> None:
    _check(data, loads=2)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@settings(max_examples=150, suppress_health_check=_CHECKS)
@given(st.data())
def test_both_engines_load_many_things_alike(spark: SparkSession, data: st.DataObject) -> None:
    _check(data, loads=3)
