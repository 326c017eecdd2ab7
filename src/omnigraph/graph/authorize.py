"""The gate of every write of a handle: its policy, and the actor that it acts for.

1. Without a policy every write is allowed, and nothing is evaluated.
2. With a policy a write without an actor is denied.
3. A handle that has an actor acts for no other one.
4. The gate is asked before the write reads or writes anything.
"""

from __future__ import annotations

import os
from typing import Final

from omnigraph.dataclass import dataclass
from omnigraph.errors import DeniedError
from omnigraph.graph.late import policies
from omnigraph.names import check_actor
from omnigraph.policy import Action


class ActorBoundError(DeniedError):
    """A call names another actor than the one that its handle acts for."""

    code = "OG-ACTOR-BOUND"
    hint = "open another handle for that actor, or one without an actor"
    template = "the handle acts for '{bound_actor_id}', not for '{actor_id}'"
    bound_actor_id: str
    actor_id: str


@dataclass(frozen=True)
class WriteGate:
    """Decides about the writes of one handle."""

    policy: policies.Policy | None = None
    actor_id: str | None = None

    def authorize(
        self,
        action: Action,
        *,
        branch: str | None = None,
        target_branch: str | None = None,
        actor_id: str | None = None,
    ) -> str | None:
        """Return the actor that the write is recorded for, or raise unless it may be done."""
        check_actor(actor_id)
        actor = self._actor(actor_id)
        if self.policy is not None:
            self.policy.require(actor, action, branch, target_branch)
        return actor

    def _actor(self, given: str | None) -> str | None:
        if self.actor_id is None or given is None:
            return given if self.actor_id is None else self.actor_id
        if given != self.actor_id:
            raise ActorBoundError(self.actor_id, given)
        return given


UNGATED: Final = WriteGate()
"""The gate of a handle without a policy and without an actor."""


def write_gate(
    policy: policies.Policy | str | os.PathLike[str] | None, actor_id: str | None = None
) -> WriteGate:
    """Return the gate of a handle; a path is read and compiled."""
    check_actor(actor_id)
    if policy is None:
        return WriteGate(None, actor_id)
    found = policy if isinstance(policy, policies.Policy) else policies.Policy.load(policy)
    if found.kind is not policies.PolicyKind.GRAPH:
        problem = "it is the policy of a server, and a graph needs one of its own"
        raise policies.PolicyInvalidError(problem)
    return WriteGate(found, actor_id)
