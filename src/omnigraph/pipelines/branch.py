"""The branch of a run: cut from the target, written by one process, merged or left for a look.

A run writes to its branch only while it knows the head. A second process that begins the same run
again cuts the branch anew; the first one then meets another head, or no branch, and gives up. So
what is merged is exactly what the run has loaded and checked.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from omnigraph.errors import ConflictError, OmnigraphError, PreconditionError
from omnigraph.graph import BranchNotFoundError, CommitTerms, Graph, ReadSetConflictError
from omnigraph.pipelines.history import run_branch

_log = logging.getLogger(__name__)

MERGES_MAX: Final = 5
"""So often a merge is tried again when other writers have moved the target."""
_COMMITS_LOOKED_AT: Final = 50


class RunReplacedError(ConflictError):
    """Another process has begun the same run again and works on its branch; this run gives up."""

    code = "OG-PIPELINE-REPLACED"
    hint = "wait for that run; give runs that are meant to differ other ids"
    template = "run '{run_id}' of pipeline '{pipeline}' was begun again by another process"
    pipeline: str
    run_id: str


@dataclass
class RunBranch:
    """The branch of one run, by the process that works on it."""

    graph: Graph
    pipeline: str
    run_id: str
    actor_id: str | None
    head: str | None = None
    """The newest commit that this run knows of its branch; None while it has none."""

    @property
    def name(self) -> str:
        """The name of the branch."""
        return run_branch(self.pipeline, self.run_id)

    @property
    def message(self) -> str:
        """What commits of the run say."""
        return f"pipeline {self.pipeline}, run {self.run_id}"

    def cut(self, target: str) -> None:
        """Cut the branch; one that a killed run of this id has left is removed."""
        with suppress(BranchNotFoundError):
            self.graph.branches.delete(self.name, actor_id=self.actor_id)
        self.graph.branches.create_from(target, self.name, actor_id=self.actor_id)
        self.head = self.graph.commits.head_id(self.name)

    def drop(self) -> None:
        """Remove the branch, if this process has made it."""
        if self.head is None:
            return
        try:
            if self._newest_write() == self.head:
                self.graph.branches.delete(self.name, actor_id=self.actor_id)
        except BranchNotFoundError:
            pass
        except OmnigraphError as error:
            _log.warning("branch %s stays behind: %s", self.name, error)
        self.head = None

    def _newest_write(self) -> str | None:
        """Return the newest commit of the branch that is not one of maintenance."""
        newest = self.graph.commits.list(self.name, limit=_COMMITS_LOOKED_AT)
        return next((one.graph_commit_id for one in newest if not one.is_maintenance), None)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Raise what another process did to the branch as such."""
        try:
            yield
        except (PreconditionError, BranchNotFoundError) as error:
            raise RunReplacedError(self.pipeline, self.run_id) from error

    def state(self, properties: Mapping[str, str]) -> str:
        """Add a commit that changes no row and has these properties; return its id."""
        terms = CommitTerms(lambda _: None, lambda _: properties, commits_unchanged=True)
        with self.held():
            result = self.graph.on_terms(terms).load(
                {},
                mode="append",
                branch=self.name,
                expected_head=self.head,
                message=self.message,
                actor_id=self.actor_id,
                engine="local",
            )
        assert result.commit is not None  # noqa: S101 - a load on these terms commits
        self.head = result.commit.graph_commit_id
        return self.head

    def merge(self, target: str, terms: CommitTerms) -> str:
        """Merge the branch as this process has left it, then remove it; return the commit."""
        graph = self.graph.on_terms(terms)
        for attempt in range(1, MERGES_MAX + 1):
            try:
                result = graph.branches.merge(
                    self.name, target, message=self.message, actor_id=self.actor_id
                )
                break
            except ReadSetConflictError:
                if attempt == MERGES_MAX:
                    raise
        assert result.commit is not None  # noqa: S101 - the branch has the commit of its record
        self.drop()
        return result.commit.graph_commit_id
