"""Keeping `__manifest` small to read.

Every publish adds a small fragment or two, and reading a manifest of hundreds of them is what makes
a publish slow. Tidying rewrites them into one. It changes no row, removes no version and keeps the
manifest version in which each row was created, so history is the same before and after. It need not
rewrite the head row: a publish that meets it deletes a row of a fragment that is gone, is refused
by Lance, and tries again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.store.errors import StaleBaseError

if TYPE_CHECKING:
    from omnigraph.manifest.layout import Incarnation
    from omnigraph.manifest.reader import ManifestReader
    from omnigraph.store.datasets import DatasetStore
    from omnigraph.store.records import CompactionOptions


def tidy(
    datasets: DatasetStore,
    reader: ManifestReader,
    incarnation: Incarnation,
    options: CompactionOptions | None = None,
) -> bool:
    """Rewrite the fragments of a branch's manifest into one; False when a publish was faster.

    With `options` only the fragments that they name: a long history is not rewritten every time.
    """
    base = reader.open(incarnation, reader.head_version(incarnation)).at
    results = [datasets.run_compaction(task) for task in datasets.plan_compaction(base, options)]
    if not results:
        return False
    try:
        datasets.commit_staged(datasets.stage_compaction(base, results))
    except StaleBaseError:
        return False
    return True
