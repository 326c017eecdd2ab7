"""The YAML of a file, with the position of every value; what is no YAML is a finding."""

from __future__ import annotations

from omnigraph.pipelines.diagnostics import Diagnostic, Findings
from omnigraph.strict_yaml import Location, RepeatedKey, StrictYamlError, Value, read_yaml


def read_value(text: str, locations: dict[str, Location], findings: Findings) -> Value | None:
    """Return what a text holds and fill `locations`; None if the text is no YAML."""
    repeats: list[RepeatedKey] = []
    try:
        value = read_yaml(text, repeats=repeats, locations=locations)
    except StrictYamlError as error:
        line, column = (1, 1) if error.mark is None else (error.mark.line, error.mark.column)
        findings.found.append(Diagnostic("invalid_yaml", "error", "", line, column, str(error)))
        return None
    for repeat in repeats:
        message = f"the key stands twice; first on line {repeat.first_line}"
        repeated = Diagnostic("repeated_key", "error", repeat.path, repeat.line, 1, message)
        findings.found.append(repeated)
    return value


def undecodable() -> Diagnostic:
    """Return the finding of a file that is no text."""
    return Diagnostic("invalid_yaml", "error", "", 1, 1, "the text has no UTF-8 form")
