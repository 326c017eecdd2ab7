"""What only a text with mistakes needs: imported at its first use."""

from typing import TYPE_CHECKING

from omnigraph.late import LateModule

if TYPE_CHECKING:
    from omnigraph.query.language import syntax_hints
else:
    syntax_hints = LateModule("omnigraph.query.language.syntax_hints")

__all__ = ["syntax_hints"]
