"""What a command finds wrong, as data: commands collect diagnostics and go on where they can."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Severity: TypeAlias = Literal["error", "warning"]


@dataclass(frozen=True)
class Diagnostic:
    """One finding: its code is a contract, its path names what it is about.

    >>> str(Diagnostic("state_missing", "warning", "__cluster/state.json", "there is no ledger"))
    'WARN  state_missing __cluster/state.json: there is no ledger'
    """

    code: str
    severity: Severity
    path: str
    message: str

    def __str__(self) -> str:
        label = "ERROR" if self.severity == "error" else "WARN "
        return f"{label} {self.code} {self.path}: {self.message}"


class DiagnosedError(Exception):
    """Ends the work of a command, which reports the finding; never leaves this room."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        self.diagnostic = diagnostic
        super().__init__(str(diagnostic))


def error(code: str, path: str, message: str) -> Diagnostic:
    """Return a finding that makes the command fail."""
    return Diagnostic(code, "error", path, message)


def warning(code: str, path: str, message: str) -> Diagnostic:
    """Return a finding that the command survives."""
    return Diagnostic(code, "warning", path, message)


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    """Whether one of the findings is an error."""
    return any(found.severity == "error" for found in diagnostics)
