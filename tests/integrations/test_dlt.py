"""A graph as a destination of dlt; skipped where dlt is not installed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph import Graph

dlt = pytest.importorskip("dlt")
from dlt.common.storages.load_storage import LoadStorage  # noqa: E402 - skipped without dlt

from omnigraph.integrations.dlt import graph as destination  # noqa: E402 - needs dlt

# dlt and its libraries warn of things that are not ours.
pytestmark = pytest.mark.filterwarnings("ignore")

SCHEMA = """\
node Person { name: String @key  age: I32?  tags: String? }
edge Knows: Person -> Person { since: Date? }
"""
MAP = {"people": "Person", "follows": {"edge": "Knows", "src": "a", "dst": "b"}}


class World:
    """A graph, and pipelines of dlt that load it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.uri = folder / "graph.omni"
        Graph.init(self.uri, SCHEMA, durability="process").close()

    def pipeline(self, **table_map: object) -> Any:
        return dlt.pipeline(
            "social",
            destination=destination(self.uri, map={**MAP, **table_map}),  # type: ignore[dict-item]  # wrong ones, too
            pipelines_dir=str(self._folder / "dlt"),
        )

    @property
    def commits(self) -> list[Any]:
        with Graph.open(self.uri) as graph:
            return graph.commits.list()

    @property
    def ages(self) -> dict[str, int]:
        with Graph.open(self.uri) as graph:
            found = graph.query("query q() { match { $p: Person } return { $p.name, $p.age } }")
            return {row["p.name"]: row["p.age"] for row in found.to_pylist()}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")
    monkeypatch.chdir(tmp_path)
    return World(tmp_path)


def people(disposition: str, **ages: int) -> Any:
    rows = [{"name": name, "age": age, "tags": ["x"]} for name, age in ages.items()]
    return dlt.resource(rows, name="people", write_disposition=disposition, primary_key="name")


def test_dispositions_are_modes_and_each_package_is_one_commit(world: World) -> None:
    pipeline = world.pipeline()
    follows = dlt.resource([{"a": "ann", "b": "bob"}], name="follows", write_disposition="append")

    @dlt.source
    def both() -> Iterator[Any]:
        yield people("append", ann=1, bob=2)
        yield follows

    info = pipeline.run(both())
    assert not info.has_failed_jobs
    assert world.ages == {"ann": 1, "bob": 2}
    commits = world.commits
    assert [one.operation for one in commits] == ["load", "init"]
    job = json.loads(commits[0].properties["job"])
    assert job == {"namespace": "dlt", "name": "social", "run_id": info.loads_ids[0]}
    pipeline.run(people("merge", bob=3, cy=4))
    assert world.ages == {"ann": 1, "bob": 3, "cy": 4}
    # The stored edge needs its ends.
    pipeline.run(people("replace", ann=9, bob=9))
    assert world.ages == {"ann": 9, "bob": 9}
    assert len(world.commits) == 4


def test_a_package_that_landed_before_a_crash_is_not_loaded_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = world.pipeline()
    pipeline.extract(people("append", ann=1))
    pipeline.normalize()

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    kept = LoadStorage.complete_load_package
    monkeypatch.setattr(LoadStorage, "complete_load_package", die)
    with pytest.raises(BaseException):  # noqa: B017, PT011 - whatever dlt makes of it
        pipeline.load()
    assert world.ages == {"ann": 1}
    monkeypatch.setattr(LoadStorage, "complete_load_package", kept)
    pipeline.load()
    assert world.ages == {"ann": 1}
    assert len(world.commits) == 2
    assert not pipeline.has_pending_data


def test_what_does_not_fit_fails_the_package_with_its_reason(world: World) -> None:
    misspelt = world.pipeline(people={"node": "Person", "map": {"name": "nmae"}})
    with pytest.raises(Exception, match="needs column 'nmae'"):
        misspelt.run(people("append", ann=1))
    assert len(world.commits) == 1


def test_a_table_can_be_left_out(world: World) -> None:
    assert not world.pipeline(people=None).run(people("append", ann=1)).has_failed_jobs
    assert len(world.commits) == 1
