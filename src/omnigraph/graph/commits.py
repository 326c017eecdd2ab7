"""`graph.commits`: the history of a branch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from omnigraph.graph.session import Part
from omnigraph.lineage import Job, check_properties
from omnigraph.manifest import GraphCommit
from omnigraph.merge.merger import Merger, MergeResult, RevertRequest
from omnigraph.merge.resolve import Decisions, Prefer
from omnigraph.names import check_commit_texts, check_retries, choice
from omnigraph.policy import Action


class GraphCommits(Part):
    """Lists, finds and reverts commits."""

    def get(self, commit_id: str) -> GraphCommit:
        """Find one commit on any branch."""
        return self._session.repository.history.get(commit_id)

    def head_id(self, branch: str | None = None) -> str:
        """Return the id of a branch's newest commit."""
        return self._session.state_of(branch).head.commit_id

    def revert(
        self,
        commit_id: str,
        *,
        branch: str | None = None,
        prefer: str | None = None,
        external_blob_bases: Sequence[str] = (),
        actor_id: str | None = None,
        message: str | None = None,
        properties: Mapping[str, str] | None = None,
        retries: int = 0,
        job: str | Job | None = None,
    ) -> MergeResult:
        """Undo what one commit changed, as a new commit; conflicts are those of a merge.

        `prefer="source"` undoes also what was changed again since, `target` leaves that alone.
        `message`, `properties` and `retries` are as in a merge.
        """
        self._session.require_writable("commit revert")
        check_commit_texts(message=message, properties=properties)
        check_properties(properties)
        check_retries(retries)
        actor_id = self._session.authorize(
            Action.CHANGE, branch=self._session.branch_of(branch), actor_id=actor_id
        )
        decisions = Decisions(
            prefer=None if prefer is None else choice(Prefer, prefer, "preference")
        )
        request = RevertRequest(
            commit_id=commit_id,
            target=self._session.incarnation_of(branch),
            actor_id=actor_id,
            decisions=decisions,
            external_blob_bases=self._session.blob_bases(external_blob_bases),
            message=message,
            properties=dict(properties or {}),
            retries=retries,
            job=self._session.job(job, "revert"),
        )
        return Merger(self._session.repository, self._session.committer).revert(request)

    def list(
        self, branch: str | None = None, *, limit: int | None = None, before: int | None = None
    ) -> list[GraphCommit]:
        """Return commits newest first, with those that the branch inherited.

        `before` is a manifest version: only older commits are listed.
        """
        return self._session.state_of(branch).commits(limit=limit, before=before)
