"""Other writers that come between the preparation of a write and its lock."""

from __future__ import annotations

from collections.abc import Callable

from omnigraph.failpoints import arm, disarm


def interrupt(action: Callable[[], object]) -> None:
    """Do something between the preparation of the next write and its lock."""

    def once() -> None:
        disarm()
        action()

    arm("write.post_stage", once)
