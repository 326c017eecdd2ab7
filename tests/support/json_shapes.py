"""The JSON Schemas of results, and what is wrong with a result."""

from __future__ import annotations

import json
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from support.pages import DOCS

FOLDER = DOCS / "reference" / "json"


def schemas() -> dict[str, dict[str, Any]]:
    return {
        path.stem: json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")
    }


def problems(name: str, found: object) -> list[str]:
    """Return where a result is not what the schema of that name says."""
    known = schemas()
    resources = [(f"{each}.json", Resource.from_contents(known[each])) for each in known]
    validator = Draft202012Validator(known[name], registry=Registry().with_resources(resources))
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(found)]
