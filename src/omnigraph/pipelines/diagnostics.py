"""What is wrong with a pipeline file: collected, each with its position."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from omnigraph.errors import InvalidInputError
from omnigraph.names import nearest_name
from omnigraph.records import to_json
from omnigraph.strict_yaml import Location, Mark
from omnigraph.texts import shown

Severity: TypeAlias = Literal["error", "warning"]


@dataclass(frozen=True)
class Diagnostic:
    """One finding: its code is a contract, `path` and position say what it is about.

    >>> str(Diagnostic("unknown_key", "error", "target.grap", 3, 10, "unknown key 'grap'"))
    "3:10 error unknown_key target.grap: unknown key 'grap'"
    """

    code: str
    severity: Severity
    path: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        subject = f" {self.path}" if self.path else ""
        return f"{self.line}:{self.column} {self.severity} {self.code}{subject}: {self.message}"


@dataclass
class Findings:
    """Collects diagnostics of one file; knows where its values are."""

    locations: Mapping[str, Location] = field(default_factory=dict)
    found: list[Diagnostic] = field(default_factory=list)
    hide: Callable[[str], str] = str
    """Takes secrets out of a message."""

    def error(self, code: str, path: str, message: str, *, at_key: bool = False) -> None:
        """Add a finding that makes the file unusable."""
        self._add("error", code, path, message, at_key=at_key)

    def warning(self, code: str, path: str, message: str) -> None:
        """Add a finding that the user should know of."""
        self._add("warning", code, path, message, at_key=False)

    def _add(self, severity: Severity, code: str, path: str, message: str, *, at_key: bool) -> None:
        found = self.locations.get(path)
        mark = Mark(1, 1) if found is None else found.key if at_key else found.value
        text = shown(self.hide(message))
        self.found.append(Diagnostic(code, severity, path, mark.line, mark.column, text))

    @property
    def has_errors(self) -> bool:
        """Whether the file cannot be used."""
        return any(one.severity == "error" for one in self.found)

    def require_usable(self, name: str) -> None:
        """Raise the errors of a file, if there are any."""
        errors = tuple(one for one in self.sorted if one.severity == "error")
        if errors:
            raise PipelineFileError(name, errors)

    @property
    def sorted(self) -> tuple[Diagnostic, ...]:
        """The findings in the order of the file, none twice."""
        unique = dict.fromkeys(self.found)
        return tuple(sorted(unique, key=lambda one: (one.line, one.column, one.code, one.message)))


def did_you_mean(name: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    """Return the end of a message about an unknown name: the nearest one, or all.

    >>> did_you_mean("peple", ("people", "follows")), did_you_mean("x", ("people", "follows"))
    ("; did you mean 'people'?", '; expected one of people, follows')
    """
    near = nearest_name(name, known)
    if near is not None:
        return f"; did you mean '{near}'?"
    return f"; expected one of {', '.join(known)}" if known else ""


class PipelineFileError(InvalidInputError):
    """A pipeline file is broken; carries everything that was found."""

    code = "OG-PIPELINE-FILE"
    hint = "`omnigraph pipeline validate FILE` lists what is wrong"

    def __init__(self, name: str, diagnostics: tuple[Diagnostic, ...]) -> None:
        self.name = name
        self.diagnostics = diagnostics
        super().__init__("\n".join(f"{name}:{one}" for one in diagnostics))

    @property
    def details(self) -> dict[str, object]:
        """The diagnostics, for programs."""
        return {"diagnostics": [to_json(one) for one in self.diagnostics]}
