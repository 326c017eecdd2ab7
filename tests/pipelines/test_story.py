"""Five days of a pipeline: after each of them the graph is the one loaded from scratch.

| day | what happens |
|---|---|
| 1 | everything is new |
| 2 | new and changed rows |
| 3 | checks fail: the branch of the run stays, then the delivery is mended and the run repeated |
| 4 | rows break rules: they are rejected, the others are published |
| 5 | the schema has a property more |
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from omnigraph import Graph
from omnigraph.pipelines import Pipeline, RunRecord, RunState
from support.pipelines import counts_of
from support.story import Story, rows_of

pytestmark = [pytest.mark.spark]

SPOILT = 3


class _Told:
    """Runs the days of a story, and compares after each of them."""

    def __init__(self, story: Story, spark: SparkSession, engine: str) -> None:
        self._story = story
        self._spark = spark
        self._engine = engine
        self.graph = Graph.open(story.folder / "graph.omni", durability="process")

    def run(self, run_id: str) -> RunRecord:
        return Pipeline.load(self._story.file).run(run_id=run_id, spark=self._spark)

    def succeed(self, run_id: str) -> dict[str, tuple[int, int, int, int]]:
        done = self.run(run_id)
        assert done.state is RunState.SUCCEEDED, done.error
        assert self.graph.branches.list() == ["main"]
        self.compare()
        return counts_of(done)

    def compare(self) -> None:
        expected, found = self._story.from_scratch(self._engine), rows_of(self.graph)
        assert {key: table.num_rows for key, table in found.items()} == {
            key: table.num_rows for key, table in expected.items()
        }
        for key, table in expected.items():
            assert found[key].equals(table.cast(found[key].schema)), key


def _tell(folder: Path, spark: SparkSession, *, nodes: int, edges: int, engine: str) -> None:
    story = Story(folder, nodes=nodes, edges=edges)
    told = _Told(story, spark, engine)
    some, known = nodes // 200, edges // 200

    story.deliver_all()
    assert told.succeed("day-1") == {"Person": (nodes, 0, 0, 0), "Knows": (edges, 0, 0, 0)}
    assert told.run("day-1-again").state is RunState.NOTHING_NEW

    story.deliver_some()
    assert told.succeed("day-2") == {"Person": (some, some, 0, 0), "Knows": (known, 0, 0, 0)}

    before = rows_of(told.graph)
    story.deliver_some()
    story.spoil_ages(SPOILT)
    bad = told.run("day-3")
    assert (bad.state, bad.branch) == (RunState.CHECKS_FAILED, "pipeline/story/day-3")
    assert [one.value for one in bad.checks if not one.passed] == [SPOILT]
    assert told.graph.branches.list() == ["main", "pipeline/story/day-3"]
    assert rows_of(told.graph) == before
    story.mend_ages()
    assert told.succeed("day-3") == {"Person": (some, some, 0, 0), "Knows": (known, 0, 0, 0)}

    story.deliver_some()
    story.spoil_rows(SPOILT)
    assert told.succeed("day-4") == {
        "Person": (some, some, 0, SPOILT),
        "Knows": (known, 0, 0, SPOILT),
    }
    rejected = [
        line
        for path in (folder / "rejects" / "day-4").rglob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert len(rejected) == 2 * SPOILT

    story.add_email()
    told.graph.schema.apply(story.schema)
    story.deliver_some()
    # The columns of the sources are read from the newest file too.
    text = story.file.read_text().replace("path: in/people,", _MERGED)
    story.file.write_text(text)
    assert told.succeed("day-5") == {"Person": (some, some, 0, 0), "Knows": (known, 0, 0, 0)}
    history = Pipeline.load(story.file).history()
    assert [run.run_id for run in history.runs] == [f"day-{day}" for day in (5, 4, 3, 2, 1)]
    told.graph.close()


_MERGED = 'path: in/people, options: {mergeSchema: "true"},'


def test_after_every_day_the_graph_is_the_one_loaded_from_scratch(
    tmp_path: Path, spark: SparkSession
) -> None:
    _tell(tmp_path, spark, nodes=800, edges=1_600, engine="local")


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_a_million_people_and_ten_million_friendships_are_followed_for_five_days(
    tmp_path: Path, spark: SparkSession
) -> None:
    _tell(tmp_path, spark, nodes=1_000_000, edges=10_000_000, engine="spark")
