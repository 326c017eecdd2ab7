"""Writers that race each other, as threads or as processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from omnigraph.errors import ConflictError
from omnigraph.manifest import CommitDraft, Repository, Requirements, Updates
from omnigraph.manifest.compact import compact_manifest
from omnigraph.names import BranchName
from support.places import CITY, PERSON, Place
from support.writer import append, people

TIDY_EVERY = 20
"""Racers tidy the manifest now and then, as every writer does: it must not disturb publishes."""

KINDS = ("same table", "own table", "own branch", "without locks")


@dataclass
class Outcome:
    """What became of one racer's attempts."""

    commits: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def race(repository: Repository, name: str, kind: str, count: int) -> Outcome:
    """Publish `count` times and say what came of it."""
    outcome = Outcome()
    for number in range(count):
        row = f"{name}-{number}"
        try:
            if kind == "without locks":
                commit = bump(repository, "main")
            else:
                commit = _append(repository, name, kind, row)
                outcome.rows.append(row)
            outcome.commits.append(commit)
        except ConflictError as error:
            outcome.conflicts.append(type(error).__name__)
        except Exception as error:  # noqa: BLE001 - a test looks at all of them
            outcome.errors.append(f"{type(error).__name__}: {error}")
        if number % TIDY_EVERY == TIDY_EVERY - 1:
            branch = name if kind == "own branch" else "main"
            incarnation = repository.branches.resolve(BranchName(branch))
            compact_manifest(repository, incarnation)
    return outcome


def bump(repository: Repository, branch: str) -> str:
    """Publish the next version of one table: only the manifest is written, without a lock."""
    incarnation = repository.branches.resolve(BranchName(branch))
    state = repository.reader.latest(incarnation)
    expected = state.entries[CITY]
    draft = CommitDraft(repository.clock.ulid(), "load", None, repository.clock.now_us())
    published = repository.publisher.publish(
        incarnation,
        draft=draft,
        requirements=Requirements(written={CITY: expected}),
        updates=Updates(entries=(replace(expected, table_version=expected.table_version + 1),)),
    )
    assert published.commit is not None
    return published.commit.graph_commit_id


def _append(repository: Repository, name: str, kind: str, row: str) -> str:
    branch, key = "main", PERSON
    if kind == "own branch":
        branch = name
    elif kind == "own table":
        key = PERSON if int(name[1:]) % 2 else CITY
    published = append(repository, {key: people(row)}, branch=branch)
    assert published.commit is not None
    return published.commit.graph_commit_id


def race_processes(place: Place, kinds: Sequence[str], *, count: int) -> list[Outcome]:
    """Let a process race for each of the kinds; each starts from nothing."""
    code = (
        "import sys, json; sys.path[:0] = json.loads(sys.argv[1]);"
        "from support.racers import main; main(json.loads(sys.argv[2]))"
    )
    running = []
    for number, kind in enumerate(kinds):
        task = {"uri": place.uri, "options": dict(place.options), "name": f"w{number}"}
        task |= {"kind": kind, "count": count}
        command = [sys.executable, "-c", code, json.dumps(sys.path), json.dumps(task)]
        running.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    outcomes = []
    for process in running:
        out, err = process.communicate(timeout=3_600)
        assert process.returncode == 0, err
        outcomes.append(Outcome(**json.loads(out)))
    return outcomes


def main(task: Mapping[str, object]) -> None:
    """Race inside a process of its own and print the outcome."""
    options = task["options"]
    assert isinstance(options, dict)
    place = Place(str(task["uri"]), options)
    outcome = race(
        place.repository(), str(task["name"]), str(task["kind"]), int(str(task["count"]))
    )
    sys.stdout.write(json.dumps(asdict(outcome)))


def total(outcomes: Sequence[Outcome], name: str) -> list[str]:
    """Everything that the racers have of one kind."""
    return [item for outcome in outcomes for item in getattr(outcome, name)]
