"""Change data capture: a stream of another system goes in, a feed of changes comes out.

    python examples/change_stream.py [FOLDER]

Shows: Structured Streaming writes micro-batches into a graph, each one commit, each exactly once,
also when the stream is stopped and started again; a reader in process starts from a baseline and
follows the change feed with a cursor that survives restarts. Needs Java 17 or newer.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from omnigraph import Graph
from omnigraph.graph import FeedRequest, Selection
from omnigraph.spark import get_spark

SCHEMA = "node Account { number: String @key  owner: String  balance: I64 }"
ACCOUNTS = Selection.of(["node"], ["Account"], None)
"""What the copy wants to hear of; a cursor belongs to what was selected."""
ROWS = "number STRING, owner STRING, balance BIGINT"


class Balances:
    """A copy in another system: it knows one state, and from where to go on."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        lines, handshake = graph.baseline(selection=ACCOUNTS)
        records = [json.loads(line)["data"] for line in lines]
        self.held: dict[str, int] = {record["number"]: record["balance"] for record in records}
        self._cursor: str | None = handshake["resume_cursor"]

    def follow(self) -> list[str]:
        """Apply what has happened since the last time; return it in words."""
        request = FeedRequest(ACCOUNTS, cursor=self._cursor)
        told: list[str] = []
        while True:
            page = self._graph.poll_changes(request)
            for block in page.blocks:
                told += [self._apply(change) for change in block.changes]
            if page.next_page_token is None:
                # Only now: a cursor kept too early would skip what was not applied.
                self._cursor = page.cursor
                return told
            request = FeedRequest(ACCOUNTS, page_token=page.next_page_token)

    def _apply(self, change: dict[str, object]) -> str:
        number = str(change["id"])
        after = change.get("after")
        if not isinstance(after, dict):
            del self.held[number]
            return f"{number} is gone"
        before = self.held.get(number)
        self.held[number] = after["properties"]["balance"]
        return f"{number}: {before} -> {self.held[number]}"


def main(folder: Path) -> None:
    """Tell the story in an empty folder."""
    inbox = folder / "inbox"
    inbox.mkdir(parents=True)
    spark = get_spark()
    graph = Graph.init(folder / "accounts.omni", SCHEMA)
    copy = Balances(graph)

    print("1. The bank drops a file; a stream takes it into the graph, as one commit.")
    drop(inbox, 1, [("A-1", "Ines", 100), ("A-2", "Omar", 50)])
    stream(spark, folder, graph.uri)
    print(f"   {len(copy.follow())} changes, the copy holds {copy.held}")

    print("2. Two more files, while the stream is stopped. It goes on where it was:")
    drop(inbox, 2, [("A-1", "Ines", 70)])
    drop(inbox, 3, [("A-2", "Omar", 80), ("A-3", "Mei", 10)])
    stream(spark, folder, graph.uri)
    for line in copy.follow():
        print(f"   {line}")

    print("3. Started again without new files, it writes nothing: every row came exactly once.")
    stream(spark, folder, graph.uri)
    print(f"   {len(copy.follow())} changes")

    print("4. A correction by hand is in the feed too, whoever made it:")
    graph.mutate('query close() { delete Account where number = "A-3" }', actor_id="auditor")
    for line in copy.follow():
        print(f"   {line}")

    print("5. The copy and the graph agree:")
    stored = graph.query("query all() { match { $a: Account } return { $a.number, $a.balance } }")
    balances = {row["a.number"]: row["a.balance"] for row in stored.to_pylist()}
    print(f"   {copy.held == balances}: {dict(sorted(balances.items()))}")
    batches = [commit.properties.get("txn_batch_id") for commit in graph.list_commits()]
    print(f"   commits of the stream: {sorted(batch for batch in batches if batch is not None)}")
    graph.close()


def drop(inbox: Path, number: int, accounts: list[tuple[str, str, int]]) -> None:
    """Put a file of rows into the folder that the stream watches."""
    names = ("number", "owner", "balance")
    lines = [json.dumps(dict(zip(names, account, strict=True))) for account in accounts]
    unfinished = inbox / f".{number}"
    unfinished.write_text("\n".join(lines), encoding="utf-8")
    unfinished.rename(inbox / f"{number}.json")


def stream(spark: SparkSession, folder: Path, uri: str) -> None:
    """Take in whatever has arrived, one file per micro-batch, then stop."""
    rows = spark.readStream.schema(ROWS).option("maxFilesPerTrigger", 1).json(str(folder / "inbox"))
    writer = rows.writeStream.format("omnigraph").queryName("accounts")
    writer = writer.option("node", "Account").option("graphMode", "merge")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start(uri).awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="change-stream-")))
