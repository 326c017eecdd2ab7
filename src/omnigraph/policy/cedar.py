"""A bundle as Cedar policies, entities and a schema; the only home of cedarpy.

1. Each pair of a rule and one of its actions is one `permit` policy; its id is
   `<rule id>:<action>`.
2. Policies, entities and requests are handed over as JSON, not as Cedar text, so no name of a
   group, actor, rule or branch can be read as a part of the language.
3. Conditions read only the flags of the context. A decision is therefore a function of the actor's
   groups, the action and the flags of both branches, and may be cached by them.
4. A compiled policy has passed the strict validation of Cedar against the schema.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import ModuleType
from typing import Final, NamedTuple, TypeAlias

from omnigraph.policy.actions import ACTIONS, Action, PolicyKind, Scope, ScopeKey
from omnigraph.policy.bundle import Bundle, Rule, policy_id
from omnigraph.policy.errors import CedarMissingError, PolicyEvaluationError, PolicyInvalidError

NAMESPACE: Final = "Omnigraph"
SERVER_ID: Final = "root"

Json: TypeAlias = "dict[str, Json] | list[Json] | str | bool"

_PREFIXES: Final = {ScopeKey.BRANCH: "branch", ScopeKey.TARGET_BRANCH: "target_branch"}
_RESOURCE_TYPES: Final = {PolicyKind.GRAPH: "Graph", PolicyKind.SERVER: "Server"}


class BranchView(NamedTuple):
    """A branch of a request as rules see it; a request without one has an absent view."""

    is_present: bool = False
    is_protected: bool = False
    is_own: bool = False


@dataclass(frozen=True)
class Request:
    """What is to be decided."""

    actor_id: str
    action: Action
    branch: str
    branch_view: BranchView
    target_branch: str
    target_branch_view: BranchView


class CedarPolicy:
    """Compiled rules. It never changes, and threads may share it."""

    def __init__(self, bundle: Bundle, graph_id: str) -> None:
        library = _library()
        self._library = library
        self._graph_id = graph_id
        try:
            schema = library.Schema.from_str(schema_text())
            self._policies = library.PolicySet.from_json_str(json.dumps(policies(bundle, graph_id)))
            self._entities = library.Entities.from_json_str(
                json.dumps(entities(bundle, graph_id)), schema
            )
        except ValueError as error:
            raise PolicyInvalidError(f"Cedar rejects it: {error}") from error
        result = library.validate_policies(str(self._policies), schema)
        if not result.validation_passed:
            raise PolicyInvalidError(f"Cedar rejects it: {result.errors[0]}")

    def satisfied_rules(self, request: Request) -> list[str]:
        """Return the ids of the rules that permit a request, in no order."""
        answer = self._library.is_authorized(
            {
                "principal": _uid("Actor", request.actor_id),
                "action": _uid("Action", request.action),
                "resource": _resource(request.action, self._graph_id),
                "context": json.dumps(_context(request)),
            },
            self._policies,
            self._entities,
        )
        if answer.diagnostics.errors or answer.decision.value == "NoDecision":
            raise PolicyEvaluationError("; ".join(answer.diagnostics.errors) or "no decision")
        suffix = f":{request.action}"
        return [reason.removesuffix(suffix) for reason in answer.diagnostics.reasons]


def _library() -> ModuleType:
    try:
        import cedarpy  # noqa: PLC0415 - an optional library
    except ImportError as error:
        raise CedarMissingError from error
    return cedarpy


# -- schema ---------------------------------------------------------------------------------------


def schema_text() -> str:
    """Return the schema: what actors, resources and contexts of each action look like."""
    actions = "\n".join(_action_text(action) for action in Action)
    return f"""namespace {NAMESPACE} {{
  entity Group;
  entity Actor in [Group];
  entity Graph;
  entity Server;
  type Request = {{
    has_branch: Bool, branch: String, branch_is_protected: Bool, branch_is_own: Bool,
    has_target_branch: Bool, target_branch: String, target_branch_is_protected: Bool,
    target_branch_is_own: Bool,
  }};
{actions}
}}
"""


def _action_text(action: Action) -> str:
    resource = _RESOURCE_TYPES[ACTIONS[action].kind]
    return (
        f'  action "{action}" appliesTo '
        f"{{ principal: [Actor], resource: [{resource}], context: Request }};"
    )


# -- policies -------------------------------------------------------------------------------------


def policies(bundle: Bundle, graph_id: str) -> Json:
    """Return the policies in the JSON form of Cedar."""
    found: dict[str, Json] = {
        policy_id(rule, action): _policy(rule, action, graph_id)
        for rule in bundle.rules
        for action in rule.actions
    }
    return {"staticPolicies": found, "templates": {}, "templateLinks": []}


def _policy(rule: Rule, action: Action, graph_id: str) -> Json:
    return {
        "effect": "permit",
        "principal": {"op": "in", "entity": _uid("Group", rule.group)},
        "action": {"op": "==", "entity": _uid("Action", action)},
        "resource": {"op": "==", "entity": _resource(action, graph_id)},
        "conditions": _conditions(rule),
    }


def _conditions(rule: Rule) -> list[Json]:
    for key in ScopeKey:
        scope = rule.scope_of(key)
        if scope is not None:
            return [{"kind": "when", "body": _condition(scope, _PREFIXES[key])}]
    return []


def _condition(scope: Scope, prefix: str) -> Json:
    if scope is Scope.ANY:
        return {"Value": True}
    is_protected, is_own = _attribute(f"{prefix}_is_protected"), _attribute(f"{prefix}_is_own")
    claims: dict[Scope, Json] = {
        Scope.PROTECTED: is_protected,
        Scope.UNPROTECTED: {"==": {"left": is_protected, "right": {"Value": False}}},
        Scope.OWN: is_own,
    }
    return {"&&": {"left": _attribute(f"has_{prefix}"), "right": claims[scope]}}


def _attribute(name: str) -> Json:
    return {".": {"left": {"Var": "context"}, "attr": name}}


# -- entities and requests ------------------------------------------------------------------------


def entities(bundle: Bundle, graph_id: str) -> Json:
    """Return groups, actors with their groups, the graph, and the server where a rule needs it."""
    groups = [_entity(_uid("Group", group.name)) for group in bundle.groups]
    actors = [
        _entity(_uid("Actor", actor_id), [_uid("Group", name) for name in names])
        for actor_id, names in groups_by_actor(bundle).items()
    ]
    resources = [_entity(_uid("Graph", graph_id))]
    if any(action.kind is PolicyKind.SERVER for rule in bundle.rules for action in rule.actions):
        resources.append(_entity(_uid("Server", SERVER_ID)))
    return [*groups, *actors, *resources]


def groups_by_actor(bundle: Bundle) -> dict[str, tuple[str, ...]]:
    """Return the groups of every actor, in the order of the bundle."""
    found: dict[str, dict[str, None]] = {}
    for group in bundle.groups:
        for member in group.members:
            found.setdefault(member, {})[group.name] = None
    return {actor_id: tuple(names) for actor_id, names in found.items()}


def _entity(uid: Json, parents: list[Json] | None = None) -> Json:
    return {"uid": uid, "attrs": {}, "parents": parents or []}


def _uid(kind: str, name: str) -> Json:
    return {"type": f"{NAMESPACE}::{kind}", "id": name}


def _resource(action: Action, graph_id: str) -> Json:
    kind = action.kind
    return _uid(_RESOURCE_TYPES[kind], SERVER_ID if kind is PolicyKind.SERVER else graph_id)


def _context(request: Request) -> Json:
    return {
        "has_branch": request.branch_view.is_present,
        "branch": _encodable(request.branch),
        "branch_is_protected": request.branch_view.is_protected,
        "branch_is_own": request.branch_view.is_own,
        "has_target_branch": request.target_branch_view.is_present,
        "target_branch": _encodable(request.target_branch),
        "target_branch_is_protected": request.target_branch_view.is_protected,
        "target_branch_is_own": request.target_branch_view.is_own,
    }


def _encodable(text: str) -> str:
    """Return a text that Cedar can take; no condition reads it."""
    return text.encode("utf-8", "replace").decode()
