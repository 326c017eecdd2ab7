"""The text of a policy: groups of actors, protected branches, and rules that allow.

    version: 1
    kind: graph                          # optional; checked against what the bundle is bound to
    groups: {curators: [act-lena]}
    protected_branches: [main]
    rules:
      - id: curators-edit
        allow: {actors: {group: curators}, actions: [change], branch_scope: unprotected}

`_problems` lists the checks in the order in which they run; the first failure is reported. No rule
denies: what no rule allows is denied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from omnigraph.policy.actions import Action, PolicyKind, Scope, ScopeKey
from omnigraph.policy.errors import PolicyInvalidError
from omnigraph.strict_yaml import (
    StrictYamlError,
    Value,
    as_choice,
    as_list,
    as_map,
    as_text,
    as_texts,
    check_keys,
    check_number,
    check_version,
    quoted,
    read_yaml,
)


@dataclass(frozen=True)
class Group:
    """A named list of actors."""

    name: str
    members: tuple[str, ...]


@dataclass(frozen=True)
class Rule:
    """Lets the actors of a group do some actions, on some branches."""

    id: str
    group: str
    actions: tuple[Action, ...]
    branch_scope: Scope | None = None
    target_branch_scope: Scope | None = None

    def scope_of(self, key: ScopeKey) -> Scope | None:
        """Return the scope under a key, if the rule has one."""
        return self.branch_scope if key is ScopeKey.BRANCH else self.target_branch_scope


@dataclass(frozen=True)
class Bundle:
    """A policy as it was written; names are verbatim and distinguish case."""

    groups: tuple[Group, ...] = ()
    protected_branches: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    kind: PolicyKind | None = None


def read_bundle(text: str, *, kind: PolicyKind | None = None, source: str | None = None) -> Bundle:
    """Read and check a bundle; with a kind, also that it fits what it is bound to."""
    try:
        members = _members(read_yaml(text))
        bundle = _bundle(members)
        check_version(members["version"])
    except StrictYamlError as error:
        raise PolicyInvalidError(str(error), source=source) from error
    check_bundle(bundle, kind=kind, source=source)
    return bundle


def check_bundle(
    bundle: Bundle, *, kind: PolicyKind | None = None, source: str | None = None
) -> None:
    """Raise the first problem of a bundle."""
    problem = next(_problems(bundle, kind), None)
    if problem is not None:
        raise PolicyInvalidError(problem, source=source)


def policy_id(rule: Rule, action: Action) -> str:
    """Return the id of the Cedar policy of a rule and one of its actions."""
    return f"{rule.id}:{action}"


# -- shape ----------------------------------------------------------------------------------------


def _members(document: Value) -> dict[str, Value]:
    members = as_map(document, "the policy")
    optional = ("kind", "groups", "protected_branches", "rules")
    check_keys(members, "the policy", required=("version",), optional=optional)
    check_number(members["version"], "version")
    return members


def _bundle(members: dict[str, Value]) -> Bundle:
    groups = as_map(members.get("groups", {}), "groups")
    rules = as_list(members.get("rules", []), "rules")
    return Bundle(
        kind=_kind(members),
        groups=tuple(
            Group(name, as_texts(listed, f"group {quoted(name)}: members"))
            for name, listed in groups.items()
        ),
        protected_branches=as_texts(members.get("protected_branches", []), "protected_branches"),
        rules=tuple(_rule(rule, index) for index, rule in enumerate(rules)),
    )


def _kind(members: dict[str, Value]) -> PolicyKind | None:
    if "kind" not in members:
        return None
    return PolicyKind(as_choice(members["kind"], PolicyKind, "the policy", "kind"))


def _rule(value: Value, index: int) -> Rule:
    place = f"rules[{index}]"
    members = as_map(value, place)
    rule_id = members.get("id")
    where = f"rule {quoted(rule_id)}" if isinstance(rule_id, str) else place
    check_keys(members, where, required=("id", "allow"))
    allow = as_map(members["allow"], f"{where}: allow")
    check_keys(allow, f"{where}: allow", required=("actors", "actions"), optional=ScopeKey)
    actors = as_map(allow["actors"], f"{where}: actors")
    check_keys(actors, f"{where}: actors", required=("group",))
    actions = as_list(allow["actions"], f"{where}: actions")
    return Rule(
        id=as_text(members["id"], f"{where}: id"),
        group=as_text(actors["group"], f"{where}: group"),
        actions=tuple(Action(as_choice(item, Action, where, "action")) for item in actions),
        branch_scope=_scope(allow, ScopeKey.BRANCH, where),
        target_branch_scope=_scope(allow, ScopeKey.TARGET_BRANCH, where),
    )


def _scope(allow: dict[str, Value], key: ScopeKey, where: str) -> Scope | None:
    return Scope(as_choice(allow[key], Scope, where, key)) if key in allow else None


# -- meaning --------------------------------------------------------------------------------------


def _problems(bundle: Bundle, kind: PolicyKind | None) -> Iterator[str]:
    """Yield what is wrong, in the order in which it is to be reported."""
    yield from _group_problems(bundle)
    if not all(branch.strip() for branch in bundle.protected_branches):
        yield "protected_branches has a blank name"
    yield from _rules_problems(bundle)
    if kind is not None:
        yield from _binding_problems(bundle, kind)
    yield from _repeat_problems(bundle)


def _group_problems(bundle: Bundle) -> Iterator[str]:
    for group in bundle.groups:
        if not group.name.strip():
            yield f"group {quoted(group.name)} has a blank name"
        if not group.members:
            yield f"group {quoted(group.name)} has no members"
        if not all(member.strip() for member in group.members):
            yield f"group {quoted(group.name)} has a blank member"


def _rules_problems(bundle: Bundle) -> Iterator[str]:
    groups = {group.name for group in bundle.groups}
    seen: set[str] = set()
    for index, rule in enumerate(bundle.rules):
        if not rule.id.strip():
            yield f"rules[{index}] has a blank id"
        if rule.id in seen:
            yield f"two rules have the id {quoted(rule.id)}"
        seen.add(rule.id)
        for problem in _rule_problems(rule, groups):
            yield f"rule {quoted(rule.id)} {problem}"


def _rule_problems(rule: Rule, groups: set[str]) -> Iterator[str]:
    if not rule.group.strip():
        yield "has a blank group"
    if rule.group not in groups:
        yield f"names group {quoted(rule.group)}, which is not declared"
    if not rule.actions:
        yield "has no actions"
    scopes = [key for key in ScopeKey if rule.scope_of(key) is not None]
    if len(scopes) > 1:
        yield f"has both {' and '.join(scopes)}"
    for key in scopes:
        for action in rule.actions:
            if action.scope_key is not key:
                yield f"uses {key} with unsupported action '{action}'"
    if len({action.kind for action in rule.actions}) > 1:
        yield f"has the server-scoped action '{Action.GRAPH_LIST}' together with per-graph actions"


def _binding_problems(bundle: Bundle, kind: PolicyKind) -> Iterator[str]:
    if bundle.kind not in {None, kind}:
        yield f"it says kind: {bundle.kind}, but is bound to a {kind}"
    for rule in bundle.rules:
        for action in rule.actions:
            if action.kind is not kind:
                word = "server-scoped" if action.kind is PolicyKind.SERVER else "per-graph"
                yield f"rule {quoted(rule.id)} uses {word} action '{action}' in a {kind} policy"


def _repeat_problems(bundle: Bundle) -> Iterator[str]:
    """Find actions that a rule lists twice: two Cedar policies would have one id."""
    for rule in bundle.rules:
        for index, action in enumerate(rule.actions):
            if action in rule.actions[:index]:
                repeated = quoted(policy_id(rule, action))
                yield (
                    f"rule {quoted(rule.id)} lists action '{action}' twice: "
                    f"duplicate policy id {repeated}"
                )
