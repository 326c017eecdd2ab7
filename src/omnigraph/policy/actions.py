"""What an actor may do, and how a rule may limit it to some branches."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from omnigraph.dataclass import dataclass
from omnigraph.names import choice


class PolicyKind(StrEnum):
    """What a bundle is bound to, which is also the kind of resource that an action needs."""

    GRAPH = "graph"
    SERVER = "server"


class ScopeKey(StrEnum):
    """The branch of a request that a rule looks at."""

    BRANCH = "branch_scope"
    TARGET_BRANCH = "target_branch_scope"


class Scope(StrEnum):
    """The branches that a rule is limited to."""

    ANY = "any"
    PROTECTED = "protected"
    UNPROTECTED = "unprotected"
    OWN = "own"


class Action(StrEnum):
    """What a request wants to do."""

    READ = "read"
    EXPORT = "export"
    CHANGE = "change"
    SCHEMA_APPLY = "schema_apply"
    BRANCH_CREATE = "branch_create"
    BRANCH_DELETE = "branch_delete"
    BRANCH_MERGE = "branch_merge"
    INVOKE_QUERY = "invoke_query"
    ADMIN = "admin"
    GRAPH_LIST = "graph_list"

    @classmethod
    def parse(cls, text: str) -> Action:
        """Read the name of an action, with hyphens or underscores.

        >>> Action.parse("schema-apply")
        <Action.SCHEMA_APPLY: 'schema_apply'>
        """
        return choice(cls, text.replace("-", "_"), "action")

    @property
    def kind(self) -> PolicyKind:
        """The kind of resource that the action needs."""
        return ACTIONS[self].kind

    @property
    def scope_key(self) -> ScopeKey | None:
        """The scope key that a rule with this action may have."""
        return ACTIONS[self].scope_key


@dataclass(frozen=True)
class ActionTraits:
    """The kind of resource that an action needs, and the scope key that its rules may have."""

    kind: PolicyKind
    scope_key: ScopeKey | None


_GRAPH: Final = PolicyKind.GRAPH

ACTIONS: Final[Mapping[Action, ActionTraits]] = MappingProxyType(
    {
        Action.READ: ActionTraits(_GRAPH, ScopeKey.BRANCH),
        Action.EXPORT: ActionTraits(_GRAPH, ScopeKey.BRANCH),
        Action.CHANGE: ActionTraits(_GRAPH, ScopeKey.BRANCH),
        Action.SCHEMA_APPLY: ActionTraits(_GRAPH, ScopeKey.TARGET_BRANCH),
        Action.BRANCH_CREATE: ActionTraits(_GRAPH, ScopeKey.TARGET_BRANCH),
        Action.BRANCH_DELETE: ActionTraits(_GRAPH, ScopeKey.TARGET_BRANCH),
        Action.BRANCH_MERGE: ActionTraits(_GRAPH, ScopeKey.TARGET_BRANCH),
        Action.INVOKE_QUERY: ActionTraits(_GRAPH, None),
        Action.ADMIN: ActionTraits(_GRAPH, None),
        Action.GRAPH_LIST: ActionTraits(PolicyKind.SERVER, None),
    }
)
