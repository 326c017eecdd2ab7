"""`omnigraph cluster graph`."""

from __future__ import annotations

from typing import Final

import click

from omnigraph.cli.options.cluster import config_option
from omnigraph.cli.options.flags import ScopedCommand
from omnigraph.cli.output.cluster_drawing import dot_drawing, mermaid_drawing, text_drawing
from omnigraph.cli.output.cluster_report import (
    dependencies_json,
    end_with_report,
    resources_json,
)
from omnigraph.cli.output.output import json_option

_DRAWINGS: Final = {"text": text_drawing, "dot": dot_drawing, "mermaid": mermaid_drawing}


@click.command("graph", cls=ScopedCommand)
@config_option
@click.option(
    "--format",
    "form",
    type=click.Choice([*_DRAWINGS, "json"]),
    default="text",
    show_default=True,
    help="How to draw it.",
)
@json_option
def command(config_dir: str, form: str, as_json: bool) -> None:
    """Draw what depends on what. In text, dependents are indented below what they need."""
    from omnigraph.cluster.load_desired import load_desired  # noqa: PLC0415 loads the languages

    desired = load_desired(config_dir)
    is_json = as_json or form == "json"
    # A drawing goes to other programs, so it has no findings in it unless they are errors.
    is_drawn = desired.is_valid and not is_json
    end_with_report(
        config_dir=config_dir,
        diagnostics=() if is_drawn else desired.diagnostics,
        lines=_DRAWINGS[form](desired) if is_drawn else [],
        members={
            "resources": resources_json(desired),
            "dependencies": dependencies_json(desired),
        },
        as_json=is_json,
    )
