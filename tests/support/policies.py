"""Policies for tests: builders, tricky names, and an oracle that decides without Cedar."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final

from omnigraph.policy import Action, Bundle, Group, Rule, Scope

HOSTILE: Final = (
    "quote \" and ' end",
    "back\\slash \\n \\u{41} \\",
    "two\nlines\r\tand\x00nul",
    'x"] || true; //',
    'Omnigraph::Group::"people"',
    "::",
    "${x} {{y}} %s",
    "日本 \u202e ẞ é e\u0301 \U0001f600",
    "?principal",
    "long" * 5_000,
    "*",
    "a:read",
)
"""Names that would be something else if they were ever read as a part of a language."""


def rule(
    rule_id: str,
    group: str,
    actions: Sequence[Action],
    *,
    on: Scope | None = None,
    targeting: Scope | None = None,
) -> Rule:
    return Rule(rule_id, group, tuple(actions), on, targeting)


def groups(**members: Sequence[str]) -> tuple[Group, ...]:
    return tuple(Group(name, tuple(listed)) for name, listed in members.items())


# -- the oracle -----------------------------------------------------------------------------------


def decide(
    bundle: Bundle, actor_id: str, action: Action, branch: str | None, target: str | None
) -> tuple[bool, str | None, str]:
    """Decide from the written rules alone."""
    if not any(actor_id in group.members for group in bundle.groups):
        return False, None, f"policy denied action '{action}' for unknown actor '{actor_id}'"
    branch, target = (branch or "").strip(), (target or "").strip()
    ids = [
        rule.id
        for rule in bundle.rules
        if action in rule.actions
        and any(g.name == rule.group and actor_id in g.members for g in bundle.groups)
        and _holds(rule.branch_scope, branch, actor_id, bundle)
        and _holds(rule.target_branch_scope, target, actor_id, bundle)
    ]
    if ids:
        return True, min(ids), f"policy allowed action '{action}' for actor '{actor_id}'"
    on = f" on branch '{branch}'" if branch else ""
    targeting = f" targeting branch '{target}'" if target else ""
    return False, None, f"policy denied action '{action}'{on}{targeting} for actor '{actor_id}'"


def _holds(scope: Scope | None, branch: str, actor_id: str, bundle: Bundle) -> bool:
    if scope is None or scope == "any":
        return True
    if not branch:
        return False
    if scope == "own":
        part = r"[A-Za-z0-9_][A-Za-z0-9_-]*"
        below = branch.removeprefix(f"agent/{slug(actor_id)}/")
        return below != branch and re.fullmatch(rf"{part}(/{part})*", below) is not None
    return (branch in bundle.protected_branches) == (scope == "protected")


def slug(actor_id: str) -> str:
    is_plain = re.fullmatch(r"[a-z0-9][a-z0-9-]{0,47}", actor_id)
    if is_plain and not re.search(r"-[0-9a-f]{12}\Z", actor_id):
        return actor_id
    word = "".join(mark for mark in actor_id if mark.isascii() and mark.isalnum()).lower()[:35]
    return f"{word or 'actor'}-{hashlib.sha256(actor_id.encode()).hexdigest()[:12]}"
