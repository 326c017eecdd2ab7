"""Files that hold contracts: `expectations:` of a test file, or of a file of their own."""

from __future__ import annotations

from pathlib import Path

from omnigraph.pipelines.contracts.model import ContractRule
from omnigraph.pipelines.contracts.read import read_contracts
from omnigraph.pipelines.diagnostics import Diagnostic, Findings
from omnigraph.pipelines.file.shape import Shape
from omnigraph.pipelines.file.yaml_value import read_value, undecodable
from omnigraph.strict_yaml import Location

KEY = "expectations"


def read_contract_text(text: str) -> tuple[tuple[ContractRule, ...], tuple[Diagnostic, ...]]:
    """Return the rules of a text and what is wrong with them; other keys are not looked at."""
    locations: dict[str, Location] = {}
    findings = Findings(locations)
    value = read_value(text, locations, findings)
    if value is None:
        return (), findings.sorted
    members = Shape(value, "", findings).members() or {}
    rules = read_contracts(members[KEY]) if KEY in members else ()
    return rules, findings.sorted


def read_contract_file(path: Path) -> tuple[tuple[ContractRule, ...], str | None]:
    """Return the rules of a file, and in one line what is wrong with it."""
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError:
        return (), f"{path}:{undecodable()}"
    except OSError as error:
        return (), f"cannot read {path}: {error.strerror}"
    rules, diagnostics = read_contract_text(text)
    if diagnostics:
        return (), "; ".join(f"{path}:{one}" for one in diagnostics)
    return rules, None if rules else f"{path} has no '{KEY}'"
