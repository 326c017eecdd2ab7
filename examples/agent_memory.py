"""Agent memory on branches: what an agent believes is tried out before it becomes true.

    python examples/agent_memory.py [FOLDER]

Shows: a branch per attempt, who wrote what, the difference before it is accepted, a conflict and
its resolution, and what was believed at an earlier moment. Needs no Spark.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from omnigraph import Graph, ReadTarget

SCHEMA = """\
node Person { name: String @key  role: String?  city: String? }
node Fact { slug: String @key  text: String  confidence: F32  @range(confidence, 0.0..1.0) }
edge About: Fact -> Person
edge WorksWith: Person -> Person { since: Date? }
"""

MEMORY = """\
query remember($who: String, $role: String) { insert Person { name: $who, role: $role } }
query moved($who: String, $city: String) { update Person set { city: $city } where name = $who }
query learn($slug: String, $text: String, $sure: F32, $who: String) {
    insert Fact { slug: $slug, text: $text, confidence: $sure }
    insert About { from: $slug, to: $who }
}
query known($who: String) {
    match { $p: Person { name: $who }  $f about $p }
    return { $f.text as fact, $f.confidence as sure }
    order { sure desc }
}
query people() { match { $p: Person } return { $p.name, $p.role, $p.city } order { $p.name } }
"""


def main(folder: Path) -> None:
    """Tell the story in an empty folder."""
    graph = Graph.init(folder / "memory.omni", SCHEMA)
    print("1. The memory starts with two people.")
    for who, role in (("Ines", "editor"), ("Omar", "engineer")):
        graph.mutate(MEMORY, "remember", {"who": who, "role": role}, actor_id="human")
    before = graph.head_commit_id_for_branch("main")

    print("2. Two agents read the same mail. Each works on a branch of its own.")
    for agent in ("careful", "bold"):
        graph.branch_create(agent, actor_id=agent)
    learn(graph, "careful", "ines-lisbon", "Ines will visit Lisbon in May", sure=0.9)
    learn(graph, "bold", "ines-moved", "Ines has moved to Lisbon", sure=0.4)
    graph.mutate(MEMORY, "moved", {"who": "Ines", "city": "Lisbon"}, branch="bold")

    print("3. Main knows nothing of it yet. What would change is a list, before it does:")
    for branch in ("careful", "bold"):
        for change in graph.changes_between(ReadTarget.branch("main"), ReadTarget.branch(branch)):
            print(f"   {branch}: {change['op']} {change['type']['name']} {change['id']}")

    print("4. The careful one is accepted; a guess of the bold one is not, so its branch goes.")
    merged = graph.branch_merge("careful", actor_id="human")
    print(f"   careful: {merged.outcome}")
    graph.branch_delete("bold")

    print("5. A human and an agent change the same row. Nothing is overwritten in silence:")
    graph.branch_create("night-shift")
    graph.mutate(MEMORY, "moved", {"who": "Omar", "city": "Rome"}, branch="night-shift")
    graph.mutate(MEMORY, "moved", {"who": "Omar", "city": "Oslo"}, actor_id="human")
    plan = graph.branch_merge("night-shift", dry_run=True)
    print(f"   {plan.conflicts[0].message}")
    graph.branch_merge("night-shift", prefer="target", actor_id="human")

    print("6. What is known now, and what was known at the start:")
    for row in graph.query(MEMORY, "known", {"who": "Ines"}).to_pylist():
        print(f"   Ines: {row['fact']} ({row['sure']:.1f})")
    for row in graph.query(MEMORY, "people").to_pylist():
        print(f"   now: {row['p.name']}, {row['p.role']}, {row['p.city']}")
    for row in graph.query(MEMORY, "people", target=ReadTarget.commit(before)).to_pylist():
        print(f"   then: {row['p.name']}, {row['p.role']}, {row['p.city']}")

    print("7. Every belief has an author:")
    for commit in graph.list_commits(limit=3):
        print(f"   {commit.operation} by {commit.actor_id}")
    graph.close()


def learn(graph: Graph, agent: str, slug: str, text: str, *, sure: float) -> None:
    """Keep a fact about Ines on the branch of an agent."""
    fact = {"slug": slug, "text": text, "sure": sure, "who": "Ines"}
    graph.mutate(MEMORY, "learn", fact, branch=agent, actor_id=agent)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="agent-memory-")))
