"""Finds what nothing refers to: dead forks, pins and files, and whole datasets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from omnigraph.maintenance.cleanup.needed import (
    LEASED_ORPHAN_AGE_MIN_S,
    CleanupPolicy,
    ulid_time_us,
)
from omnigraph.maintenance.cleanup.planner import CleanupPlan
from omnigraph.manifest import Repository
from omnigraph.manifest.layout import MANIFEST
from omnigraph.store.objects.protocol import ObjectInfo
from omnigraph.store.records import BranchInfo

_PIN_PREFIX: Final = "omnigraph."


class Leftovers:
    """What of one graph is old and not needed by a plan."""

    def __init__(
        self,
        repository: Repository,
        policy: CleanupPolicy,
        plan: CleanupPlan,
        now: int,
        stored: Mapping[str, list[ObjectInfo]],
    ) -> None:
        self._datasets = repository.store.datasets
        self._plan = plan
        self._now = now
        self._stored = stored
        lowest_s = LEASED_ORPHAN_AGE_MIN_S if repository.branch_locks.can_be_lost else 0
        self._orphan_age_us = max(policy.orphan_age_s, lowest_s) * 1_000_000

    def are_in(self, location: str) -> bool:
        """Whether a dataset has something that nothing refers to, or is all left over."""
        if location != MANIFEST and location not in self._plan.needs.locations:
            return self.is_dead(location)
        return (
            any(self.dead_files(location))
            or any(self.dead_pins(location))
            or any(self.is_free(location, fork.name) for fork in self.forks(location))
        )

    def is_old(self, since_us: int) -> bool:
        """Whether something has reached the orphan age."""
        return self._now - since_us >= self._orphan_age_us

    def is_dead(self, location: str) -> bool:
        """Whether a dataset that nothing needs is old, and no running job is about to fill it."""
        made = ulid_time_us(location)
        return (
            self.is_old(max(info.modified_us for info in self._stored[location]))
            and (made is None or self.is_old(made))
            and not any(path.startswith(f"{location}/") for path in self._plan.declared)
        )

    def dead_pins(self, location: str) -> list[str]:
        """Return the pins whose tag never came to be, or is gone."""
        if location == MANIFEST:
            return []
        return [
            pin.name
            for pin in self._datasets.list_tags(location)
            if pin.name.startswith(_PIN_PREFIX)
            and pin.name not in self._plan.pins
            and (made := ulid_time_us(pin.name)) is not None
            and self.is_old(made)
        ]

    def forks(self, location: str) -> list[BranchInfo]:
        """Return the Lance branches of a table."""
        return [] if location == MANIFEST else list(self._datasets.list_branches(location))

    def is_free(self, location: str, name: str) -> bool:
        """Whether a fork is old and nothing refers to it."""
        made = ulid_time_us(name)
        is_needed = (location, name) in self._plan.needs.versions
        return not is_needed and made is not None and self.is_old(made)

    def dead_files(self, location: str) -> list[ObjectInfo]:
        """Return old files that no version names."""
        if location in self._plan.busy:
            # Tasks of a running job have not declared their files yet, and a paused writer commits
            # its files when it resumes.
            return []
        return [
            info
            for info in self._datasets.unreferenced_files(location)
            if self.is_old(info.modified_us) and info.path not in self._plan.declared
        ]
