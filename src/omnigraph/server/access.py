"""Who may do what on a served graph.

| tokens | policy | state |
|---|---|---|
| no | no | open: every action is allowed; only with `--unauthenticated` |
| yes | no | default-deny: only `read` is allowed |
| yes | yes | the policy decides; a graph without a policy of its own is default-deny |
| no | yes | refused at start: no request could be allowed |
"""

from __future__ import annotations

import logging
from enum import StrEnum

from omnigraph.policy import Policy, PolicyEvaluationError
from omnigraph.server.errors import BootRefusedError, ForbiddenError, PolicyFailedError

_log = logging.getLogger(__name__)


class Mode(StrEnum):
    """How a server decides."""

    OPEN = "open"
    DEFAULT_DENY = "default_deny"
    POLICY = "policy"


def mode_of(*, has_tokens: bool, has_policy: bool, unauthenticated: bool) -> Mode:
    """Return how the server decides, or refuse to start."""
    if has_tokens:
        return Mode.POLICY if has_policy else Mode.DEFAULT_DENY
    if has_policy:
        raise BootRefusedError(
            "there is a policy and no token: every request would be refused",
            "declare tokens, for example in OMNIGRAPH_SERVER_BEARER_TOKENS_FILE",
        )
    if not unauthenticated:
        raise BootRefusedError(
            "there is no token and no policy: everyone could read and write",
            "declare tokens, or start with --unauthenticated",
        )
    return Mode.OPEN


class Gate:
    """Decides about the actions on one graph, or about those on the server."""

    def __init__(self, mode: Mode, policy: Policy | None) -> None:
        self.mode = mode
        self._policy = policy

    def require(
        self,
        actor: str | None,
        action: str,
        *,
        branch: str | None = None,
        target_branch: str | None = None,
    ) -> None:
        """Raise unless the actor may do it."""
        if self.mode is Mode.OPEN and action != "graph_list":
            return
        allowed, rule_id, message = self._decide(actor, action, branch, target_branch)
        _log.info(
            "policy decision",
            extra={
                "actor_id": actor,
                "action": action,
                "branch": branch,
                "target_branch": target_branch,
                "allowed": allowed,
                "matched_rule_id": rule_id,
            },
        )
        if not allowed:
            raise ForbiddenError(message)

    def allows(self, actor: str | None, action: str) -> bool:
        """Whether the actor may do it where no branch is named."""
        return self.mode is Mode.OPEN or self._decide(actor, action, None, None)[0]

    def _decide(
        self, actor: str | None, action: str, branch: str | None, target_branch: str | None
    ) -> tuple[bool, str | None, str]:
        if self._policy is None or actor is None:
            has_none = self._policy is None and self.mode is not Mode.OPEN
            message = f"default-deny: no policy allows action '{action}'"
            return has_none and action == "read", None, message
        try:
            found = self._policy.decide(actor, action, branch, target_branch)
        except PolicyEvaluationError as error:
            raise PolicyFailedError(error.reason) from error
        return found.allowed, found.rule_id, found.message
