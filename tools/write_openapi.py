"""Writes the OpenAPI document of the server into `docs/reference/openapi.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from omnigraph.server.openapi import openapi_document
from omnigraph.server.routes import ROUTES

PAGE: Final = Path(__file__).parents[1] / "docs" / "reference" / "openapi.json"


def page() -> str:
    """Return the document of a server that asks for tokens."""
    document = openapi_document(ROUTES, requires_bearer=True)
    # A release changes the version, and nothing else.
    document["info"]["version"] = "VERSION"
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
