"""Five days of deliveries to a pipeline, of any size, and the graph that they should lead to.

The truth is kept as arrays by number of person and of friendship. A delivery holds the rows that
are new or have changed on its day: people in one folder, to be read by their time, friendships in
another, to be read by file. A delivery can be spoilt; the truth then stays as it would be without
the spoilt rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from omnigraph import Graph

SCHEMA = """\
node Person { name: String @key  age: I32?  updated_at: DateTime? %s }
edge Knows: Person -> Person { since: I32? }
"""
SCHEMAS = SCHEMA % "", SCHEMA % " email: String?"
"""Before and after the change."""
PIPELINE = """\
version: 1
name: story
target: {graph: graph.omni, publish: merge}
sources:
  people: {format: parquet, path: in/people, incremental: {by: updated_at}}
  follows:
    format: parquet
    path: in/follows
    schema: number BIGINT, follower STRING, followee STRING, since INT
    incremental: {new_files: true}
views:
  known: SELECT *, concat('k', number) AS edge_id FROM follows
load:
  - {node: Person, from: people, mode: merge}
  - edge: Knows
    from: known
    mode: merge
    src: follower
    dst: followee
    map: {id: edge_id, since: since}
checks:
  - {name: ages, sql: SELECT count(*) AS n FROM Person WHERE age > 130, expect: n = 0}
  - name: some know somebody
    gq: "query q() { match { $p: Person $p knows $_ } return { count($p) as n } }"
    expect: n >= 1
on_error: {policy: quarantine, dir: rejects, max: 1000}
"""
TOO_OLD = 999
_START_US = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1_000_000)
_DAY_US = 86_400_000_000


@dataclass
class People:
    """The truth about people, by number."""

    age: np.ndarray
    day: np.ndarray
    """The day on which a row was delivered last."""
    has_email: np.ndarray


@dataclass
class Friendships:
    """The truth about friendships, by number."""

    source: np.ndarray
    target: np.ndarray
    since: np.ndarray


class Story:
    """A folder with deliveries, the pipeline that reads them and its graph."""

    def __init__(self, folder: Path, *, nodes: int, edges: int) -> None:
        self.folder = folder
        self.file = folder / "story.yaml"
        self.file.write_text(PIPELINE)
        Graph.init(folder / "graph.omni", SCHEMAS[0], durability="process").close()
        self._random = np.random.default_rng(2026)
        self._day = 0
        self._with_email = False
        none = np.empty(0, np.int64)
        self._people = People(none, none, none.astype(bool))
        self._friendships = Friendships(none, none, none)
        self._nodes, self._edges = nodes, edges

    @property
    def schema(self) -> str:
        """The schema of the day."""
        return SCHEMAS[self._with_email]

    def add_email(self) -> None:
        """Let the people of later deliveries have an address."""
        self._with_email = True

    # -- deliveries -------------------------------------------------------------------------------

    def deliver_all(self) -> None:
        """Deliver the first day: everything."""
        self._deliver(self._nodes, self._edges, changed=0)

    def deliver_some(self) -> None:
        """Deliver 1 % of everything: new rows, and rows that have changed."""
        self._deliver(self._nodes // 200, self._edges // 200, changed=self._nodes // 200)

    def _deliver(self, nodes: int, edges: int, *, changed: int) -> None:
        self._day += 1
        people, known = self._people, self._friendships
        before = len(people.age)
        numbers = self._random.choice(before, changed, replace=False) if changed else []
        numbers = np.concatenate([np.sort(numbers), np.arange(before, before + nodes)]).astype(int)
        people.age = np.resize(people.age, before + nodes)
        people.day = np.resize(people.day, before + nodes)
        people.has_email = np.resize(people.has_email, before + nodes)
        people.age[numbers] = self._random.integers(18, 90, len(numbers))
        people.day[numbers] = self._day
        people.has_email[numbers] = self._with_email
        start = len(known.since)
        ends = [self._random.integers(0, before + nodes, edges) for _ in "ab"]
        known.source = np.concatenate([known.source, ends[0]])
        known.target = np.concatenate([known.target, ends[1]])
        known.since = np.concatenate([known.since, self._random.integers(1990, 2026, edges)])
        self._write("people", self._person_rows(numbers))
        self._write("follows", self._friendship_rows(np.arange(start, start + edges)))

    def spoil_ages(self, rows: int) -> None:
        """Give some people of the last delivery an age that no check accepts."""
        table = self._read("people")
        ages = table["age"].to_pylist()
        ages[:rows] = [TOO_OLD] * rows
        index = table.schema.get_field_index("age")
        self._write("people", table.set_column(index, "age", pa.array(ages, pa.int32())))

    def mend_ages(self) -> None:
        """Deliver the people of the last day again, as they are."""
        numbers = np.flatnonzero(self._people.day == self._day)
        self._write("people", self._person_rows(numbers))

    def spoil_rows(self, rows: int) -> None:
        """Add people without a name and friendships with nobody to the last delivery."""
        people = self._read("people")
        nameless = people.slice(0, rows).set_column(0, "name", pa.nulls(rows, pa.utf8()))
        self._write("people", pa.concat_tables([people, nameless]))
        known = self._read("follows")
        number = pa.array(np.arange(rows) + 10**12)
        nobody = known.slice(0, rows).set_column(0, "number", number)
        nobody = nobody.set_column(2, "followee", pa.array(["nobody"] * rows))
        self._write("follows", pa.concat_tables([known, nobody]))

    # -- tables -----------------------------------------------------------------------------------

    def _person_rows(self, numbers: np.ndarray) -> pa.Table:
        people = self._people
        names = _names("p", numbers)
        times = _START_US + people.day[numbers] * _DAY_US
        rows = {
            "name": names,
            "age": pa.array(people.age[numbers], pa.int32()),
            "updated_at": pa.array(times, pa.timestamp("us", "UTC")),
        }
        if self._with_email:
            addresses = pc.binary_join_element_wise(names, "example.org", "@")
            rows["email"] = pc.if_else(pa.array(people.has_email[numbers]), addresses, None)
        return pa.table(rows)

    def _friendship_rows(self, numbers: np.ndarray) -> pa.Table:
        known = self._friendships
        return pa.table(
            {
                "number": pa.array(numbers),
                "follower": _names("p", known.source[numbers]),
                "followee": _names("p", known.target[numbers]),
                "since": pa.array(known.since[numbers], pa.int32()),
            }
        )

    def _path(self, name: str) -> Path:
        return self.folder / "in" / name / f"day-{self._day}.parquet"

    def _read(self, name: str) -> pa.Table:
        return pq.ParquetFile(self._path(name)).read()

    def _write(self, name: str, table: pa.Table) -> None:
        self._path(name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, self._path(name))

    # -- the truth --------------------------------------------------------------------------------

    def from_scratch(self, engine: str) -> dict[str, pa.Table]:
        """Load the truth of the day into a graph of its own, and return its rows."""
        people = self._person_rows(np.arange(len(self._people.age)))
        known = self._friendship_rows(np.arange(len(self._friendships.since)))
        numbers = known["number"].combine_chunks()
        known = known.set_column(0, "id", _names("k", numbers)).rename_columns(
            ["id", "src", "dst", "since"]
        )
        folder = self.folder / f"scratch-{self._day}"
        folder.mkdir()
        for name, table in (("people", people), ("known", known)):
            pq.write_table(table, folder / f"{name}.parquet", row_group_size=500_000)
        with Graph.init(folder / "graph.omni", self.schema, durability="process") as graph:
            files = {"Person": folder / "people.parquet", "Knows": folder / "known.parquet"}
            graph.load(files, mode="append", engine=engine)
            return rows_of(graph)


def rows_of(graph: Graph) -> dict[str, pa.Table]:
    """Return all rows of a graph by type, in the order of their ids."""
    return {
        key: pa.Table.from_batches(list(batches)).sort_by("id").combine_chunks()
        for key, batches in graph.export_batches()
    }


def _names(letter: str, numbers: np.ndarray | pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(letter, pa.array(numbers).cast(pa.utf8()), "")
