"""`graph.commits`: the history of a branch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from omnigraph.graph.arguments import check_commit, commit_id_of
from omnigraph.graph.late import (
    lineage_record,
    merge_requests,
    merge_results,
    merging,
    resolutions,
    schema_rules,
)
from omnigraph.graph.session import Part
from omnigraph.manifest import GraphCommit
from omnigraph.names import check_count, check_retries, choice
from omnigraph.policy import Action


class GraphCommits(Part):
    """Lists, finds and reverts commits."""

    def get(self, commit_id: str | GraphCommit) -> GraphCommit:
        """Find one commit on any branch."""
        return self._session.repository.history.get(commit_id_of(commit_id))

    def head_id(self, branch: str | None = None) -> str:
        """Return the id of a branch's newest commit."""
        return self._session.state_of(branch).head.commit_id

    def revert(
        self,
        commit_id: str | GraphCommit,
        *,
        branch: str | None = None,
        prefer: str | None = None,
        check_schema: Callable[[str], None] | None = None,
        external_blob_bases: Sequence[str] = (),
        actor_id: str | None = None,
        message: str | None = None,
        properties: Mapping[str, str] | None = None,
        retries: int = 0,
        job: str | lineage_record.Job | None = None,
    ) -> merge_results.MergeResult:
        """Undo what one commit changed, as a new commit; conflicts are those of a merge.

        `prefer="source"` undoes also what was changed again since, `target` leaves that alone.
        `message`, `properties` and `retries` are as in a merge.

        Rows come back as the schema that the branch has now. A commit that changed the schema is
        undone if that takes no stored value: names, notes, rules that were dropped or relaxed,
        properties that were added as null. Other steps are refused with their list. Then
        `check_schema` gets the text of the schema that would result, and may refuse it.
        """
        self._session.require_writable("commit revert")
        check_commit(message, properties)
        check_retries(retries)
        actor_id = self._session.authorize(
            Action.CHANGE, branch=self._session.branch_of(branch), actor_id=actor_id
        )
        decisions = resolutions.Decisions(
            prefer=None if prefer is None else choice(resolutions.Prefer, prefer, "preference")
        )
        request = merge_requests.RevertRequest(
            commit_id=commit_id_of(commit_id),
            target=self._session.incarnation_of(branch),
            actor_id=actor_id,
            decisions=decisions,
            recorded_vectors=self._session.embeddings_table,
            schema_guard=schema_rules.SchemaRules(
                self._session,
                "commit revert",
                self._session.branch_of(branch),
                actor_id,
                check_schema,
            ),
            external_blob_bases=self._session.blob_bases(external_blob_bases),
            message=message,
            properties=dict(properties or {}),
            retries=retries,
            job=self._session.job(job, "revert"),
        )
        return merging.Merger(self._session.repository, self._session.committer).revert(request)

    def list(
        self, branch: str | None = None, *, limit: int | None = None, before: int | None = None
    ) -> list[GraphCommit]:
        """Return commits newest first, with those that the branch inherited.

        `before` is a manifest version: only older commits are listed.
        """
        check_count("limit", limit)
        check_count("before", before)
        return self._session.state_of(branch).commits(limit=limit, before=before)
