"""Named points at which a test can make a write fail, stop or die.

Only steps that no effect on storage marks have a name here; effects themselves are counted by the
fault-injecting store. A point does nothing unless it was armed, and nothing outside of tests arms
one: no setting and no environment variable of the product does.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Final

OF_A_WRITE: Final = (
    "write.post_stage",
    "write.turn_taken",
    "recovery.sidecar_write",
    "write.after_first_table",
    "write.post_phase_b_pre_manifest_commit",
    "recovery.sidecar_confirm",
    "graph_publish.before_commit_append",
    "graph_publish.after_commit_append",
    "write.sidecar_deleted",
)
"""The points of every write, in order; only merges confirm.

With the name of a writer in place of `write`, such as `mutation.post_stage`, only that one acts.
"""
OF_A_RECOVERY: Final = (
    "recovery.sidecar_list",
    "recovery.after_void",
    "recovery.after_announce",
    "recovery.after_restore",
    "recovery.after_roll_forward",
    "recovery.record_audit",
    "recovery.sidecar_delete",
)
OF_A_CLUSTER: Final = (
    "cluster_apply.before_graph_create",
    "cluster_apply.after_graph_create",
    "cluster_apply.before_schema_apply",
    "cluster_apply.after_schema_apply",
    "cluster_apply.after_payloads",
    "cluster_apply.before_graph_delete",
    "cluster_apply.after_graph_delete",
    "cluster_apply.before_state_write",
    "cluster_apply.after_state_write",
    "cluster_approve.before_approval_write",
    "cluster_approve.after_approval_write",
    "cluster_import.before_state_write",
    "cluster_import.after_state_write",
    "cluster_refresh.before_state_write",
    "cluster_refresh.after_state_write",
)
"""The points of the commands of a cluster, around what they do to graphs and stored records."""
FAILPOINTS: Final = (
    *OF_A_WRITE,
    "schema_apply.reserved",
    "schema_apply.locked",
    "schema_apply.published",
    *OF_A_RECOVERY,
    "strays.after_restore",
)
"""The points inside of a graph."""
WRITERS: Final = (
    "mutation",
    "load",
    "schema_apply",
    "branch_merge",
    "ensure_indices",
    "optimize",
)
_ANY: Final = "write."
_OF_ONE_WRITER: Final = frozenset(
    f"{writer}.{point.removeprefix(_ANY)}"
    for writer in WRITERS
    for point in OF_A_WRITE
    if point.startswith(_ANY)
)

Action = Callable[[], None]

_armed: dict[str, Action] = {}


class FailpointError(Exception):
    """What an armed point raises by default."""


def arm(name: str, action: Action | None = None) -> None:
    """Make a point act; by default it raises `FailpointError`."""
    known = (*FAILPOINTS, *OF_A_CLUSTER)
    if name not in known and name not in _OF_ONE_WRITER:
        raise ValueError(f"unknown failpoint {name!r}; known are {', '.join(known)}")
    _armed[name] = action or (lambda: _raise(name))


def disarm() -> None:
    """Make every point do nothing again."""
    _armed.clear()


def arm_all(text: str) -> None:
    """Arm points from a setting of a child process: `name=raise|die|stop`, separated by commas.

    `die` ends the process without cleanup. `stop` pauses it once, until it receives
    SIGCONT: afterwards it may pass the same point.
    """
    for item in filter(None, text.split(",")):
        name, _, action = item.partition("=")
        if action not in _ACTIONS:
            raise ValueError(f"unknown action {action!r}; known are {', '.join(_ACTIONS)}")
        arm(name, _ACTIONS[action](name))


def hit(name: str, *, writer: str = "") -> None:
    """Act if the point is armed, for all writers or for this one."""
    if not _armed:
        return
    action = _armed.get(name) or _armed.get(f"{writer}.{name.removeprefix(_ANY)}")
    if action is not None:
        action()


def _raise(name: str) -> None:
    raise FailpointError(name)


def _stop(name: str) -> None:
    _armed.pop(name, None)
    os.kill(os.getpid(), signal.SIGSTOP)


_ACTIONS: Final[dict[str, Callable[[str], Action]]] = {
    "raise": lambda name: lambda: _raise(name),
    "die": lambda _: lambda: os._exit(137),
    "stop": lambda name: lambda: _stop(name),
}
