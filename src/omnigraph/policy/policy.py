"""A policy: who may do what, and the sentence that says why.

1. What no rule permits is denied, and so is an actor that is in no group.
2. A request that presents no branch is neither on a protected nor on an unprotected branch.
3. A branch is trimmed before it is looked at; a blank one is no branch.
4. A branch is an actor's own if it is a legal name below `agent/<slug of the actor>/`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omnigraph.cache import BoundedCache
from omnigraph.names import is_own_branch
from omnigraph.policy.actions import Action, PolicyKind
from omnigraph.policy.bundle import Bundle, check_bundle, read_bundle
from omnigraph.policy.cedar import BranchView, CedarPolicy, Request, groups_by_actor
from omnigraph.policy.errors import (
    PolicyDeniedError,
    PolicyEvaluationError,
    PolicyFileError,
    PolicyInvalidError,
)
from omnigraph.strict_yaml import BYTES_MAX

GRAPH_ID_DEFAULT: Final = "default"
_DECISIONS_MAX: Final = 4096
_ABSENT: Final = BranchView()


@dataclass(frozen=True)
class Decision:
    """The answer to one request; the rule is the one with the smallest id that permits it."""

    allowed: bool
    rule_id: str | None
    message: str


class Policy:
    """A checked and compiled bundle. It never changes, and threads may share it.

    >>> policy = Policy.parse('''
    ... version: 1
    ... groups: {curators: [act-lena]}
    ... rules: [{id: edit, allow: {actors: {group: curators}, actions: [change]}}]
    ... ''')
    >>> policy.decide("act-lena", "change", branch="main").rule_id
    'edit'
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        kind: PolicyKind = PolicyKind.GRAPH,
        graph_id: str = GRAPH_ID_DEFAULT,
    ) -> None:
        check_bundle(bundle, kind=kind)
        self._bundle = bundle
        self._kind = kind
        self._graph_id = graph_id
        self._groups = groups_by_actor(bundle)
        self._protected = frozenset(bundle.protected_branches)
        self._cedar = CedarPolicy(bundle, graph_id)
        self._decided: BoundedCache[tuple[str | None]] = BoundedCache(_DECISIONS_MAX)

    @classmethod
    def parse(
        cls,
        text: str,
        *,
        kind: PolicyKind = PolicyKind.GRAPH,
        graph_id: str = GRAPH_ID_DEFAULT,
        source: str | None = None,
    ) -> Policy:
        """Read a bundle; `source` is the name of the text in messages."""
        bundle = read_bundle(text, kind=kind, source=source)
        return cls(bundle, kind=kind, graph_id=graph_id)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        kind: PolicyKind = PolicyKind.GRAPH,
        graph_id: str = GRAPH_ID_DEFAULT,
    ) -> Policy:
        """Read a bundle from a local file."""
        text = read_text(path, "policy")
        return cls.parse(text, kind=kind, graph_id=graph_id, source=os.fspath(path))

    def __reduce__(self) -> tuple[object, ...]:
        """Carry the bundle to another process, which compiles it again."""
        return _rebuild, (self._bundle, self._kind, self._graph_id)

    @property
    def bundle(self) -> Bundle:
        """The rules as they were written."""
        return self._bundle

    @property
    def kind(self) -> PolicyKind:
        """What the policy is bound to."""
        return self._kind

    @property
    def actors(self) -> frozenset[str]:
        """Everyone who is in a group."""
        return frozenset(self._groups)

    @property
    def protected_branches(self) -> tuple[str, ...]:
        """The protected branches, as they were written."""
        return self._bundle.protected_branches

    def decide(
        self,
        actor_id: str,
        action: Action | str,
        branch: str | None = None,
        target_branch: str | None = None,
    ) -> Decision:
        """Decide one request; `PolicyEvaluationError` if that is not possible, never a denial."""
        action = action if isinstance(action, Action) else Action.parse(action)
        groups = self._groups.get(actor_id)
        if groups is None:
            message = f"policy denied action '{action}' for unknown actor '{actor_id}'"
            return Decision(allowed=False, rule_id=None, message=message)
        branch, target_branch = _trimmed(branch), _trimmed(target_branch)
        request = Request(
            actor_id,
            action,
            branch,
            self._view(actor_id, branch),
            target_branch,
            self._view(actor_id, target_branch),
        )
        key = (groups, action, request.branch_view, request.target_branch_view)
        known = self._decided.get(key)
        if known is None:
            known = (self._smallest_rule(request),)
            self._decided.put(key, known, 1)
        (rule_id,) = known
        return Decision(
            allowed=rule_id is not None,
            rule_id=rule_id,
            message=_message(request, is_allowed=rule_id is not None),
        )

    def require(
        self,
        actor_id: str | None,
        action: Action | str,
        branch: str | None = None,
        target_branch: str | None = None,
    ) -> Decision:
        """Return the decision that allows a request, else raise `PolicyDeniedError`.

        A request without an actor is denied. So is one that could not be evaluated.
        """
        if actor_id is None:
            raise PolicyDeniedError(f"policy denied: no actor was given for action '{action}'")
        try:
            decision = self.decide(actor_id, action, branch, target_branch)
        except PolicyEvaluationError as error:
            raise PolicyDeniedError(str(error)) from error
        if not decision.allowed:
            raise PolicyDeniedError(f"policy denied: {decision.message}")
        return decision

    def _smallest_rule(self, request: Request) -> str | None:
        return min(self._cedar.satisfied_rules(request), default=None)

    def _view(self, actor_id: str, branch: str) -> BranchView:
        if not branch:
            return _ABSENT
        return BranchView(
            is_present=True,
            is_protected=branch in self._protected,
            is_own=is_own_branch(branch, actor_id),
        )


def _rebuild(bundle: Bundle, kind: PolicyKind, graph_id: str) -> Policy:
    return Policy(bundle, kind=kind, graph_id=graph_id)


def _trimmed(branch: str | None) -> str:
    return "" if branch is None else branch.strip()


def _message(request: Request, *, is_allowed: bool) -> str:
    actor = f"for actor '{request.actor_id}'"
    if is_allowed:
        return f"policy allowed action '{request.action}' {actor}"
    on = f" on branch '{request.branch}'" if request.branch else ""
    targeting = f" targeting branch '{request.target_branch}'" if request.target_branch else ""
    return f"policy denied action '{request.action}'{on}{targeting} {actor}"


def read_text(path: str | os.PathLike[str], what: str) -> str:
    """Read a local file of bounded size."""
    name = os.fspath(path)
    try:
        with Path(path).open("rb") as file:
            found = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise PolicyFileError(name, error.strerror or str(error)) from error
    if len(found) > BYTES_MAX:
        reason = f"the text is longer than {BYTES_MAX} bytes"
        raise PolicyInvalidError(reason, what=what, source=name)
    try:
        return found.decode()
    except UnicodeDecodeError as error:
        raise PolicyInvalidError("the text is not UTF-8", what=what, source=name) from error
