"""A graph with a file of every kind, ways to damage a file, and what a graph says afterwards."""

from __future__ import annotations

import base64
import hashlib
import logging
import random
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing import get_context

import orjson
import pyarrow as pa

from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph
from omnigraph.manifest import ReadTarget
from omnigraph.store.records import ScanRequest
from support.places import Place

_PAGE = 4096
_DIMENSION = 8
_READ_S_MAX = 120
READ, ERROR, DIED = "read", "error", "died"
SCHEMA = """\
node Doc {
    name: String @key
    age: I32? @index
    bio: String? @index @substring
    place: Vector(8)? @index
    scan: Blob?
}

node Tag {
    name: String @key
}

edge Cites: Doc -> Doc
"""
LATER = SCHEMA.replace("node Tag {\n", 'node Label @rename_from("Tag") {\n').replace(
    "age: I32? @index\n", "age: I32? @index\n    year: I32?\n"
)
NEAR = """\
query near() {
    match { $d: Doc }
    return { $d.name }
    order { nearest($d.place, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]) }
    limit 5
}
"""
QUERIES = (
    "query aged() { match { $d: Doc { age: 7 } } return { $d.name } }",
    'query named() { match { $d: Doc { name: "doc11" } } return { $d.name, $d.bio } }',
    'query worded() { match { $d: Doc search($d.bio, "river") } return { $d.name } }',
    'query part() { match { $d: Doc $d.bio contains "iver 1" } return { $d.name } }',
    "query cited() { match { $a: Doc $a cites{1,2} $b } return { $b.name, count($a) as n } }",
    'query led() { match { $a: Doc { name: "doc3" } $a cites{1,3} $b } return { $b.name } }',
)


class DamageKind(StrEnum):
    """What happens to a file."""

    FLIP = "flip"
    ZERO = "zero"
    CUT = "cut"
    EMPTY = "empty"
    REMOVE = "remove"
    SWAP = "swap"


@dataclass(frozen=True)
class Damaged:
    """A damage: which files it concerns, and the whole tree afterwards."""

    kind: DamageKind
    paths: frozenset[str]
    files: Mapping[str, bytes]


def prepare(place: Place, docs: int) -> None:
    """Make the graph: every writer has been at work, and every kind of file is there."""
    with place.init(SCHEMA) as graph:
        graph.load(_docs(range(docs)), mode="append")
        graph.load(_cites(docs), mode="append")
        graph.optimize()
        graph.tag_create("first")
        graph.mutate('query q() { insert Tag { name: "red" } }')
        graph.mutate('query q() { delete Doc where name = "doc5" }')
        graph.mutate('query q() { update Doc set { age: 99 } where name = "doc6" }')
        graph.branch_create("team/draft")
        graph.mutate('query q() { insert Tag { name: "blue" } }', branch="team/draft")
        graph.load(_docs(range(docs, docs + 20)), mode="append", branch="team/draft")
        graph.mutate('query q() { insert Tag { name: "green" } }')
        graph.branch_merge("team/draft")
        graph.branch_delete("team/draft")
        graph.apply_schema(LATER)
        graph.branch_create("side")
        graph.mutate('query q() { delete Doc where name = "doc8" }', branch="side")
        graph.mutate('query q() { insert Label { name: "grey" } }', branch="side")
        graph.mutate('query q() { insert Label { name: "pink" } }')
        graph.tag_create("second")
        graph.optimize()
        for query in QUERIES:
            graph.query(query)


def _docs(numbers: range) -> bytes:
    blob = base64.b64encode(bytes(range(256)) * 1_024).decode()
    rows = []
    for number in numbers:
        data: dict[str, object] = {
            "name": f"doc{number}",
            "age": number % 97,
            "bio": f"the river {number} runs {number % 13} miles",
            "place": [float((number * k) % 101) for k in range(1, _DIMENSION + 1)],
        }
        if number % 5_000 == 1:
            data["scan"] = f"base64:{blob}"
        rows.append(orjson.dumps({"type": "Doc", "data": data}))
    return b"\n".join(rows)


def _cites(docs: int) -> bytes:
    ends = ((n, (n * 7 + 3) % docs) for n in range(docs))
    more = ((n, (n * 3 + 1) % docs) for n in range(0, docs, 8))
    return b"\n".join(
        orjson.dumps({"edge": "Cites", "from": f"doc{a}", "to": f"doc{b}"})
        for a, b in (*ends, *more)
        if a != b
    )


_KINDS = (
    ("checksums", re.compile(r"^_checksums\.lance/")),
    ("derived", re.compile(r"^_graph_commit")),
    ("hint", re.compile(r"latest_version_hint\.json$")),
    ("topology", re.compile(r"^_topology/")),
    ("schema file", re.compile(r"^_+schema")),
    ("lease", re.compile(r"^__leases/")),
    ("manifest version", re.compile(r"^__manifest/.*\.manifest$")),
    ("manifest rows", re.compile(r"^__manifest/.*\.lance$")),
    ("manifest deletions", re.compile(r"^__manifest/.*_deletions/")),
    ("manifest ref", re.compile(r"^__manifest/_refs/")),
    ("version", re.compile(r"\.manifest$")),
    ("transaction", re.compile(r"\.txn$")),
    ("deletions", re.compile(r"/_deletions/")),
    ("index", re.compile(r"/_indices/")),
    ("blobs", re.compile(r"\.blob$")),
    ("rows", re.compile(r"/data/[^/]*\.lance$")),
    ("ref", re.compile(r"/_refs/")),
)
KINDS = frozenset(name for name, _ in _KINDS)


def kind_of(path: str) -> str:
    """Return what a file is."""
    return next(name for name, pattern in _KINDS if pattern.search(path))


def by_kind(files: Mapping[str, bytes]) -> dict[str, list[str]]:
    """Return the files of each kind, in order."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(files):
        found[kind_of(path)].append(path)
    return dict(found)


def damages(files: Mapping[str, bytes], count: int, seed: int) -> list[Damaged]:
    """Choose damages: kinds of files and of damage take turns, the files come by chance."""
    chance = random.Random(seed)
    kinds = by_kind(files)
    branch_locks = [(kind, damage) for kind in sorted(kinds) for damage in DamageKind]
    chance.shuffle(branch_locks)
    found: list[Damaged] = []
    for number in range(10 * count):
        if len(found) == count:
            break
        kind, damage = branch_locks[number % len(branch_locks)]
        made = damaged(files, damage, kinds[kind], chance)
        if made is not None:
            found.append(made)
    return found


def damaged(
    files: Mapping[str, bytes], kind: DamageKind, paths: Sequence[str], chance: random.Random
) -> Damaged | None:
    """Damage one of some files; None when that would change nothing."""
    path = chance.choice(paths)
    data = files[path]
    changed: dict[str, bytes | None] = {path: data}
    match kind:
        case DamageKind.FLIP if data:
            place = chance.randrange(len(data))
            bit = 1 << chance.randrange(8)
            changed[path] = data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :]
        case DamageKind.ZERO if data:
            start = chance.randrange(0, len(data), _PAGE)
            end = min(start + _PAGE, len(data))
            changed[path] = data[:start] + bytes(end - start) + data[end:]
        case DamageKind.CUT if len(data) > 1:
            changed[path] = data[: chance.randrange(1, len(data))]
        case DamageKind.EMPTY:
            changed[path] = b""
        case DamageKind.REMOVE:
            changed[path] = None
        case DamageKind.SWAP:
            other = chance.choice(paths)
            changed = {path: files[other], other: data}
    if all(files[name] == new for name, new in changed.items()):
        return None
    after = {**files, **{name: new for name, new in changed.items() if new is not None}}
    for name in [name for name, new in changed.items() if new is None]:
        del after[name]
    return Damaged(kind, frozenset(changed), after)


def content_of(graph: Graph) -> dict[str, object]:
    """Return what a graph says in every way: branches, tags, all commits, queries, exports."""
    found: dict[str, object] = {
        "branches": graph.branch_list(),
        "tags": [(tag.name, tag.commit_id) for tag in graph.tag_list()],
        "schema": graph.schema_source(),
        "recoveries": [row.operation_id for row in graph.recovery_list()],
    }
    for branch in graph.branch_list():
        target = ReadTarget.branch(branch)
        commits = graph.list_commits(branch)
        found[f"commits {branch}"] = [commit.graph_commit_id for commit in commits]
        lines = hashlib.sha256()
        for line in graph.export_lines(target=target):
            lines.update(line)
        found[f"export {branch}"] = lines.hexdigest()
        for query in (*QUERIES, NEAR):
            rows = graph.query(query, target=target).to_arrow()
            order = [(name, "ascending") for name in rows.column_names]
            found[f"{branch} {query}"] = (rows.num_rows, _digest(rows.sort_by(order)))
        for commit in commits:
            found[commit.graph_commit_id] = _rows_at(graph, commit.graph_commit_id)
    return found


def _rows_at(graph: Graph, commit_id: str) -> dict[str, str]:
    snapshot = graph.snapshot_of(ReadTarget.commit(commit_id))
    return {
        key: _digest(snapshot.open(key).scan(ScanRequest(blobs_as_bytes=True)).read_all())
        for key in snapshot.entries
    }


def _digest(rows: pa.Table) -> str:
    rows = rows.combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return hashlib.sha256(sink.getvalue()).hexdigest()


def read_all(place: Place) -> tuple[str, dict[str, object]]:
    """Open a graph and read all of it; return how that ended, and what it says."""
    logging.disable(logging.CRITICAL)
    try:
        with place.open() as graph:
            return READ, content_of(graph)
    except OmnigraphError as error:
        return ERROR, {"error": str(error)}


class Reader:
    """Reads damaged graphs in a process of its own, because Lance may take the process down.

    A length that was damaged can ask for more memory than there is, which ends a process at once.
    """

    def __init__(self) -> None:
        self._pool = self._started()

    def read(self, place: Place) -> tuple[str, dict[str, object]]:
        """Read a graph; a process that dies over it is an outcome too."""
        try:
            return self._pool.submit(read_all, place).result(timeout=_READ_S_MAX)
        except BrokenProcessPool:
            self.close()
            self._pool = self._started()
            return DIED, {}

    def close(self) -> None:
        self._pool.shutdown()

    def _started(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(1, mp_context=get_context("spawn"))
