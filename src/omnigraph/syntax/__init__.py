"""Source text, positions in it, diagnostics, and the parser behind both languages."""

from omnigraph.syntax.diagnostics import Diagnostic, Phase, SourceError
from omnigraph.syntax.source import Position, SourceText, Span

__all__ = ["Diagnostic", "Phase", "Position", "SourceError", "SourceText", "Span"]
