"""`graph.tags`: named commits."""

from __future__ import annotations

from omnigraph.graph.session import Part
from omnigraph.manifest import AnyTarget, Tag
from omnigraph.names import check_tag_name
from omnigraph.policy import Action


class GraphTags(Part):
    """Names commits and keeps their versions."""

    def create(
        self, name: str, target: AnyTarget | None = None, *, actor_id: str | None = None
    ) -> Tag:
        """Name a commit, by default the head of the bound branch, and keep its versions."""
        self._session.require_writable("tag create")
        actor_id = self._session.authorize(
            Action.BRANCH_CREATE, target_branch=check_tag_name(name), actor_id=actor_id
        )
        snapshot = self._session.snapshot_of(target)
        tag = self._session.repository.tags.create(name, snapshot, actor_id=actor_id)
        self._session.background.record_files()
        return tag

    def delete(self, name: str, *, actor_id: str | None = None) -> None:
        """Forget a tag."""
        self._session.require_writable("tag delete")
        self._session.authorize(
            Action.BRANCH_DELETE, target_branch=check_tag_name(name), actor_id=actor_id
        )
        self._session.repository.tags.delete(name)
        self._session.background.record_files()

    def list(self) -> list[Tag]:
        """Return all tags, sorted by name."""
        return [*self._session.repository.tags.list().values()]
