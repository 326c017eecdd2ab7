"""Makes the stored graphs of this folder: `python tests/compat/make_graphs.py FOLDER`.

A stored graph is made once, by the code of its time, and never again: newer code has to read the
bytes that older code wrote. This script shows how they were made, and makes the graph of a new
format when there is one.

| file | what it holds |
|---|---|
| `format-1.tar.gz` | no stamp, no key mark on `object_id`, branches of legacy runs |
| `format-2.tar.gz` | key mark, branches of legacy runs |
| `format-3.tar.gz` | the format of the first release |
| `format-3-complete.tar.gz` | the same with a dead writer whose write recovery finishes |
| `format-3-half-done.tar.gz` | the same with a dead writer whose write recovery takes back |

Formats 1 and 2 are older than the first release. Their graphs were made by the code of format 3
with the steps between the formats left out, so their tables are those of format 3.

No graph has a branch except `main`: Lance stores where the parent of a branch lies.
"""

from __future__ import annotations

import io
import sys
import tarfile
import tempfile
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from omnigraph.failpoints import FailpointError, arm, disarm
from omnigraph.graph import Graph
from omnigraph.manifest import format_stamp as stamp
from omnigraph.manifest.layout import MANIFEST
from omnigraph.store import connect

SCHEMA = """\
node Crew {
    tag: String @key
    rank: I32?
    code: String? @unique
    photo: Blob?
    at: Vector(2)?
}
node Log { text: String }
edge Mentors: Crew -> Crew @card(0..2) { since: Date? }
"""
ROWS = """\
{"type": "Crew", "data": {"tag": "ann", "rank": 5, "photo": "base64:YQ==", "at": [0.0, 1.0]}}
{"type": "Crew", "data": {"tag": "bo", "code": "b"}}
{"type": "Log", "data": {"text": "first"}}
{"edge": "Mentors", "from": "ann", "to": "bo", "data": {"id": "m1", "since": "2020-01-01"}}
"""
UNFINISHED = 'query q() { insert Crew { tag: "eve" } insert Mentors { from: "eve", to: "ann" } }'
LEGACY_RUNS = ("__run__1", "__run__team")


def main(folder: Path) -> None:
    """Write all stored graphs into a folder."""
    for number in (1, 2, 3):
        make(folder / f"format-{number}.tar.gz", number)
    make(folder / "format-3-complete.tar.gz", 3, "write.post_phase_b_pre_manifest_commit")
    make(folder / "format-3-half-done.tar.gz", 3, "write.after_first_table")


def make(file: Path, number: int, dies_at: str | None = None) -> None:
    """Make one graph in a folder of its own, and store it."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "graph"
        _graph(root, checksums=number >= 3).close()
        if number < 3:
            _set_format(str(root), number)
        stamp.INTERNAL_SCHEMA_VERSION = number  # type: ignore[attr-defined]  # as it was then
        with _open(root) as graph:
            _write(graph)
            if dies_at is not None:
                _die(graph, dies_at)
        store(root, file)


def store(root: Path, file: Path) -> None:
    """Write a folder as a small archive without names and times of this machine."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        return info

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=9) as archive:
        archive.add(root, arcname="graph", filter=plain)
    file.write_bytes(buffer.getvalue())


def _graph(root: Path, *, checksums: bool) -> Graph:
    """Make a new graph; files that are replaced afterwards must have no checksum."""
    return Graph.init(
        str(root), SCHEMA, durability="process", auto_optimize=False, checksums=checksums
    )


def _open(root: Path) -> Graph:
    return Graph.open(str(root), durability="process", auto_optimize=False)


def _set_format(root: str, number: int) -> None:
    """Turn a new graph into one of an older format; Lance never takes a key mark away again."""
    objects = connect(root, durability="process").objects
    rows = connect(root, durability="process").datasets.open(MANIFEST).scan().read_all()
    fields = [field if number > 1 else field.remove_metadata() for field in rows.schema]
    metadata = {stamp.STAMP_KEY: str(number)} if number > 1 else {}
    schema = pa.schema(fields, metadata=metadata)
    objects.delete_prefix(MANIFEST)
    datasets = connect(root, durability="process").datasets
    datasets.commit_staged(datasets.stage_create(MANIFEST, schema, rows=rows.cast(schema)))
    for name in LEGACY_RUNS:
        datasets.create_branch(MANIFEST, name, from_version=1)


def _write(graph: Graph) -> None:
    """Make a history with everything in it that a format has to carry."""
    graph.load(ROWS.encode(), mode="append", message="the first rows")
    graph.tag_create("first")
    graph.mutate('query q() { update Crew set { rank: 6 } where tag = "ann" }', actor_id="ada")
    graph.mutate('query q() { delete Log where text = "first" }')


def _die(graph: Graph, point: str) -> None:
    """Let a writer stop at a point, with its intent record left behind."""
    arm(point)
    with suppress(FailpointError):
        graph.mutate(UNFINISHED)
    disarm()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
