"""Which changes of a schema a revert undoes: those that no stored value depends on."""

from __future__ import annotations

from omnigraph.changes.type_pairs import schema_steps
from omnigraph.errors import ConflictError
from omnigraph.manifest import Snapshot
from omnigraph.schema.migration.steps import AddProperty, RelaxProperty, RenameProperty, Step


class SchemaRevertError(ConflictError):
    """A commit changed the schema in a way that a revert does not undo; nothing was changed."""

    code = "OG-REVERT-SCHEMA"
    hint = "apply the schema that you want: `omnigraph schema apply`"
    graph_commit_id: str
    steps: tuple[str, ...]

    def _message(self) -> str:
        listed = "; ".join(self.steps)
        return f"a revert of {self.graph_commit_id} cannot undo these schema changes: {listed}"

    @property
    def details(self) -> dict[str, object]:
        """The steps that would have to be undone."""
        refusal = {"graph_commit_id": self.graph_commit_id, "steps": list(self.steps)}
        return {"schema_revert_refusal": refusal}


def require_undoable(commit_id: str, *, before: Snapshot, after: Snapshot) -> None:
    """Raise if a commit changed the schema by a step that a revert does not undo."""
    refused = tuple(s.describe() for s in schema_steps(before, after) if not _is_undone(s))
    if refused:
        raise SchemaRevertError(commit_id, refused)


def _is_undone(step: Step) -> bool:
    if isinstance(step, AddProperty):
        return step.default is None
    return step.tier == "metadata" or isinstance(step, RenameProperty | RelaxProperty)
