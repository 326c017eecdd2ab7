"""What only the text of a schema, or a change of it, needs: imported at its first use."""

from typing import TYPE_CHECKING

from omnigraph.late import LateModule

if TYPE_CHECKING:
    from omnigraph.schema.ir import identity as identities
    from omnigraph.schema.language import check as checking
    from omnigraph.schema.migration import plan as planning
else:
    checking = LateModule("omnigraph.schema.language.check")
    identities = LateModule("omnigraph.schema.ir.identity")
    planning = LateModule("omnigraph.schema.migration.plan")

__all__ = ["checking", "identities", "planning"]
