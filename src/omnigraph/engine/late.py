"""What only merges, maintenance, exports and differences need: imported at its first use."""

from typing import TYPE_CHECKING

from omnigraph.late import LateModule

if TYPE_CHECKING:
    from omnigraph.changes import selection as selections
    from omnigraph.maintenance import workers as maintenance
    from omnigraph.merge import workers as merging
    from omnigraph.write.export import exporter
else:
    selections = LateModule("omnigraph.changes.selection")
    maintenance = LateModule("omnigraph.maintenance.workers")
    merging = LateModule("omnigraph.merge.workers")
    exporter = LateModule("omnigraph.write.export.exporter")

__all__ = ["exporter", "maintenance", "merging", "selections"]
