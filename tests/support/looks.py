"""Events that are set after so many looks, to cancel a query at a chosen step."""

from __future__ import annotations

import threading


class SetAfter(threading.Event):
    """Is set from the n-th look at it on."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.looks_left = looks
        self.looks = 0

    def is_set(self) -> bool:
        self.looks += 1
        return self.looks > self.looks_left
