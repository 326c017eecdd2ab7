"""What a graph needs stays until the graph is deleted: its provider and its policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.cluster.read_applied import read_applied_in
from support.clusters import POLICY, QUERY, SCHEMA, Folder, changes_of, succeeded

PROVIDER = "provider.embedding.emb"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Graphs with a provider are applied; then only one without it is declared."""
    folder = Folder(tmp_path / "lab")
    graph = (SCHEMA, {"by_doi": QUERY})
    folder.write({"a": graph, "b": graph}, mock_model="m")
    succeeded(folder.import_state())
    succeeded(folder.apply())
    folder.write({"a": graph})
    return folder


def test_a_provider_waits_for_the_deletion_of_its_graph(folder: Folder) -> None:
    blocked = "delete blocked dependency_not_applied"
    assert changes_of(folder.plan())[PROVIDER] == blocked
    assert changes_of(succeeded(folder.apply()))[PROVIDER] == blocked
    assert read_applied_in(folder.work().root).fatal == ()
    succeeded(folder.approve("graph.b"))
    assert changes_of(folder.plan())[PROVIDER] == "delete applied"
    assert succeeded(folder.apply()).members["converged"]
    assert PROVIDER not in folder.ledger().resources


def test_a_provider_stays_if_the_deletion_of_its_graph_fails(folder: Folder) -> None:
    succeeded(folder.approve("graph.b"))
    root, kept = folder.path / "graphs/b.omni", folder.path / "kept"
    root.rename(kept)
    root.symlink_to(kept, target_is_directory=True)
    report = folder.apply()
    assert changes_of(report)["graph.b"] == "delete blocked graph_delete_failed"
    assert changes_of(report)[PROVIDER] == "delete blocked dependency_not_applied"
    assert PROVIDER in folder.ledger().resources


def test_a_policy_waits_for_the_deletion_of_its_graph(tmp_path: Path) -> None:
    folder, graph = Folder(tmp_path / "lab"), (SCHEMA, {"by_doi": QUERY})
    folder.write({"a": graph, "b": graph}, policies={"guard": (POLICY, ("b",))})
    succeeded(folder.import_state())
    succeeded(folder.apply())
    folder.write({"a": graph})
    blocked = "delete blocked dependency_not_applied"
    assert changes_of(folder.plan())["policy.guard"] == blocked
    assert changes_of(succeeded(folder.apply()))["policy.guard"] == blocked
    assert _policy_of(folder, "b") == POLICY
    succeeded(folder.approve("graph.b"))
    assert succeeded(folder.apply()).members["converged"]
    assert "policy.guard" not in folder.ledger().resources


def test_a_policy_of_several_graphs_stays_bound_to_one_that_is_not_deleted_yet(
    tmp_path: Path,
) -> None:
    folder, graph = Folder(tmp_path / "lab"), (SCHEMA, {"by_doi": QUERY})
    folder.write({"a": graph, "b": graph}, policies={"guard": (POLICY, ("a", "b"))})
    succeeded(folder.import_state())
    succeeded(folder.apply())
    folder.write({"a": graph}, policies={"guard": (POLICY, ("a",))})
    assert not succeeded(folder.apply()).members["converged"]
    assert folder.ledger().resources["policy.guard"].applies_to == ("graph.a", "graph.b")
    assert _policy_of(folder, "b") == POLICY
    assert not succeeded(folder.apply()).members["state_written"]
    succeeded(folder.approve("graph.b"))
    assert succeeded(folder.apply()).members["converged"]
    assert folder.ledger().resources["policy.guard"].applies_to == ("graph.a",)


def _policy_of(folder: Folder, graph_id: str) -> str | None:
    found = read_applied_in(folder.work().root).graphs[graph_id].policy
    return None if found is None else found.text
