"""The same on other kinds of sessions, and streams that are killed: processes of their own."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from omnigraph import Graph

SCHEMA = "node Person { name: String @key  age: I32? @index }"

ROUND_TRIP = """
import json, sys
from omnigraph import Graph
from omnigraph.spark import get_spark, register
root, out = sys.argv[1:]
graph = Graph.open(root, durability="process")
spark = get_spark()
register(spark)
numbers = spark.range(0, 100, 1, 4)
people = numbers.selectExpr("concat('p', id) AS name", "cast(id AS int) AS age")
writer = people.write.format("omnigraph").mode("append")
writer.options(node="Person", durability="process").save(root)
old = graph.to_spark(spark, "Person", columns=["age"], where="age >= 90")
graph.load(b'{"type": "Person", "data": {"name": "late", "age": 99}}', mode="append")
exported = graph.export(out, engine="spark", spark=spark)
print("RESULT" + json.dumps({
    "old": sorted(row.age for row in old.collect()),
    "all": graph.to_spark(spark, "Person").count(),
    "exported": exported.rows,
    "kind": type(spark).__module__,
}))
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("place", "module"),
    [
        ({"OMNIGRAPH_SPARK_MASTER": "local-cluster[2,1,1024]"}, "pyspark.sql.session"),
        # The second variable makes the server take any free port.
        ({"SPARK_REMOTE": "local[2]", "SPARK_TESTING": "1"}, "pyspark.sql.connect.session"),
    ],
    ids=["local-cluster", "connect"],
)
def test_reading_writing_and_exporting_work_on_other_kinds_of_sessions(
    tmp_path: Path, place: dict[str, str], module: str
) -> None:
    root = tmp_path / "g.omni"
    Graph.init(root, SCHEMA, durability="process", auto_optimize=False).close()
    environment = {**os.environ, **place, "OMNIGRAPH_SPARK_DRIVER_MEMORY": "1g"}
    run = subprocess.run(
        [sys.executable, "-c", ROUND_TRIP, str(root), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert run.returncode == 0, run.stderr[-3_000:]
    shown = next(line for line in run.stdout.splitlines() if line.startswith("RESULT"))
    assert json.loads(shown.removeprefix("RESULT")) == {
        "old": list(range(90, 100)),
        "all": 101,
        "exported": 101,
        "kind": module,
    }


# -- killed streams -------------------------------------------------------------------------------

STREAM = """
import sys
from omnigraph.spark import get_spark
root, inbox, checkpoint = sys.argv[1:]
spark = get_spark(master="local[2]")
rows = spark.readStream.schema("name string, age int").option("maxFilesPerTrigger", 1).json(inbox)
writer = rows.writeStream.format("omnigraph").queryName("inbox").option("node", "Person")
writer = writer.option("durability", "process").option("checkpointLocation", checkpoint)
query = writer.trigger(availableNow=True).start(root)
print("STARTED", flush=True)
query.awaitTermination()
"""

FILES = 12
ROWS = 20


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("kills", [2, 10])
def test_a_stream_that_is_killed_at_random_moments_has_every_row_once(
    tmp_path: Path, kills: int
) -> None:
    seed = int(os.environ.get("OMNIGRAPH_TEST_SEED", "7"))
    chance = random.Random(seed)
    root, inbox = tmp_path / "g.omni", tmp_path / "inbox"
    Graph.init(root, SCHEMA, durability="process", auto_optimize=False).close()
    inbox.mkdir()
    for number in range(FILES):
        rows = [{"name": f"{number}-{row}", "age": row} for row in range(ROWS)]
        (inbox / f"{number:02d}.json").write_text("\n".join(map(json.dumps, rows)))
    command = [sys.executable, "-c", STREAM, str(root), str(inbox), str(tmp_path / "checkpoint")]

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    for _ in range(kills):
        child = start()
        assert child.stdout is not None
        if child.stdout.readline().strip() == "STARTED":
            time.sleep(chance.uniform(0.0, 6.0))
        # The whole family dies: the driver, its JVM and all Python workers.
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
    last = start()
    _, errors = last.communicate()
    assert last.returncode == 0, errors[-3_000:]
    with Graph.open(root, auto_optimize=False) as graph:
        names = Counter(json.loads(line)["data"]["name"] for line in graph.export_lines())
        batches = [commit.properties.get("txn_batch_id") for commit in graph.list_commits()]
    assert names == Counter(f"{number}-{row}" for number in range(FILES) for row in range(ROWS))
    known = [int(batch) for batch in batches if batch is not None]
    assert known == sorted(known, reverse=True), f"seed {seed}"
    assert len(set(known)) == len(known), f"seed {seed}"
