"""What a merge or a revert that changes the schema of its target must obey."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from omnigraph.graph.cluster_guard import require_outside_cluster
from omnigraph.graph.session import Session
from omnigraph.merge.schemas import MergedSchemas
from omnigraph.names import BranchName
from omnigraph.policy import Action


@dataclass(frozen=True)
class SchemaRules:
    """Refuses a new schema of the target that a schema apply on it would refuse.

    `check` is called with the text of the schema, on any branch, and may refuse it.
    """

    session: Session
    operation: str
    branch: str
    actor_id: str | None
    check: Callable[[str], None] | None = None

    def __call__(self, schemas: MergedSchemas) -> None:
        """Raise unless the target may get the schema.

        Where only numbers change there is nothing to refuse: no schema apply could make that
        change, so a refusal could name no way to merge the branches.
        """
        if schemas.keeps_text:
            return
        branch = BranchName(self.branch)
        self.session.authorize(
            Action.SCHEMA_APPLY, target_branch=branch.text, actor_id=self.actor_id
        )
        if self.check is not None and schemas.accepted is not None:
            self.check(schemas.accepted.source)
        if branch.is_main:
            settings = self.session.repository.store.settings
            require_outside_cluster(
                self.operation, settings.root.uri, storage_options=settings.storage_options
            )
