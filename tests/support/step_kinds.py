"""Every kind of step that a migration can have, for the tests that want each of them covered.

A difference, which is no migration, has `RetypeProperty` too.
"""

from __future__ import annotations

from typing import Final

from omnigraph.schema.migration import steps

STEP_KINDS: Final[tuple[type[steps.Step], ...]] = tuple(
    found
    for found in vars(steps).values()
    if isinstance(found, type)
    and issubclass(found, steps.Step)
    and getattr(found, "kind", "")
    and found is not steps.RetypeProperty
)
