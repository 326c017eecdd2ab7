"""Reading leaves no trace, and needs no right to write."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.graph import Graph
from omnigraph.manifest import OpenMode, ReadTarget
from support.places import PERSON, Place, add, ids, tree

READS: dict[str, Callable[[Graph], object]] = {
    "snapshot": lambda graph: ids(graph.snapshot()),
    "branch": lambda graph: ids(graph.snapshot_of(ReadTarget.branch("dev"))),
    "tag": lambda graph: ids(graph.snapshot_of(ReadTarget.tag("v1"))),
    "time": lambda graph: ids(graph.snapshot_of(ReadTarget.at(2**60))),
    "commit": lambda graph: graph.get_commit(graph.head_commit_id_for_branch("dev")),
    "version": lambda graph: ids(graph.snapshot_at_version(2)),
    "entity": lambda graph: graph.entity_at(PERSON, "ann", 2).num_rows,
    "commits": lambda graph: graph.list_commits("dev"),
    "branches": lambda graph: graph.branch_list(),
    "tags": lambda graph: graph.tag_list(),
    "refresh": lambda graph: graph.refresh().manifest_version,
    "sync": lambda graph: graph.sync_branch(),
    "base": lambda graph: graph.merge_base("dev", "main"),
    "schema": lambda graph: (graph.schema_source(), graph.catalog().node_types.keys()),
}


@pytest.fixture
def filled(local_place: Place) -> Place:
    with local_place.init() as graph:
        add(graph, "ann", actor_id="eva")
        graph.branch_create("dev")
        add(graph, "bob", branch="dev")
        graph.tag_create("v1")
        add(graph, "kim")
    # Derived files that a writer would bring up to date.
    shutil.rmtree(Path(local_place.uri) / "_graph_commits.lance")
    (Path(local_place.uri) / "_schema.pg").write_text("edited by hand")
    return local_place


@pytest.mark.parametrize("name", READS)
def test_no_read_leaves_a_trace(filled: Place, name: str) -> None:
    before = tree(Path(filled.uri))
    READS[name](filled.open(mode=OpenMode.READ_ONLY))
    assert tree(Path(filled.uri)) == before


def test_a_branch_is_opened_without_a_trace(filled: Place) -> None:
    before = tree(Path(filled.uri))
    graph = filled.open("dev", mode=OpenMode.READ_ONLY)
    for read in READS.values():
        read(graph)
    assert tree(Path(filled.uri)) == before


def test_a_read_only_handle_reads_what_a_writer_handle_reads(filled: Place) -> None:
    reader = filled.open(mode=OpenMode.READ_ONLY)
    read = {name: act(reader) for name, act in READS.items()}
    writer = filled.open()
    assert {name: act(writer) for name, act in READS.items()} == read


_MOUNT = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'
_READER = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
from omnigraph.graph import Graph, OpenMode
root = {root!r}
try:
    (Path(root) / "probe").touch()
except OSError:
    graph = Graph.open(root, branch="dev", mode=OpenMode.READ_ONLY)
    print(graph.snapshot().open("node:Person").count(), graph.branch_list(), graph.branch)
else:
    print("writable")
"""


def test_a_graph_on_a_read_only_file_system_can_be_read(filled: Place) -> None:
    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("needs the right to mount")
    code = _READER.format(path=sys.path, root=filled.uri)
    command = ["unshare", "-m", "sh", "-c", _MOUNT, "sh", filled.uri, sys.executable, "-c", code]
    before = tree(Path(filled.uri))
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if "mount:" in done.stderr or "unshare:" in done.stderr:
        pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")
    assert done.stdout == "2 ['main', 'dev'] dev\n", done.stderr
    assert tree(Path(filled.uri)) == before
