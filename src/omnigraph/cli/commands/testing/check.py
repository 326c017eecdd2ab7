"""`omnigraph check`.

Exit codes: 0 all rules hold or only warn, 1 one has failed, 2 a file is broken or has no rules.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from omnigraph.cli.address import graph_address, resolve_address, storage_options
from omnigraph.cli.options.flags import ScopedCommand
from omnigraph.cli.output.output import Output, json_option
from omnigraph.cli.output.test_report import contract_text
from omnigraph.wire import EXIT_FAILURE

if TYPE_CHECKING:
    from omnigraph.pipelines.contracts.model import ContractRule

EXIT_BROKEN_FILE: Final = 2


@click.command("check", cls=ScopedCommand)
@graph_address
@click.option("--branch", default="main", show_default=True, help="The branch.")
@click.option(
    "--file",
    "paths",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="A file with contracts, or a folder of test files; repeatable (default: this folder).",
)
@json_option
def command(uri: str | None, branch: str, paths: tuple[Path, ...], as_json: bool) -> None:
    """Check the rows of a graph against contracts: the `expectations` of files.

    Each type is read once, and only the columns that its rules name.
    """
    from omnigraph.graph import Graph, OpenMode, ReadTarget  # noqa: PLC0415 loads Lance
    from omnigraph.pipelines.contracts.run import run_rules  # noqa: PLC0415 loads Lance

    out = Output(as_json=as_json)
    rules = _rules(paths or (Path(),), out)
    with Graph.open(
        resolve_address(uri), mode=OpenMode.READ_ONLY, storage_options=storage_options()
    ) as graph:
        snapshot = graph.snapshot_of(ReadTarget.branch(branch))
        results = run_rules(rules, graph, snapshot)
    is_ok = not any(one.check.stops for one in results)
    shape = {
        "ok": is_ok,
        "uri": graph.uri,
        "branch": branch,
        "graph_commit_id": snapshot.commit_id,
        "checks": [one.to_json() for one in results],
    }
    out.result(contract_text(results), shape)
    sys.exit(0 if is_ok else EXIT_FAILURE)


def _rules(paths: tuple[Path, ...], out: Output) -> tuple[ContractRule, ...]:
    """Return the rules of all files, under different names; a broken file ends the command."""
    from omnigraph.pipelines.contracts.file import read_contract_text  # noqa: PLC0415 loads Lance
    from omnigraph.pipelines.contracts.read import numbered  # noqa: PLC0415 loads Lance
    from omnigraph.pipelines.data_tests.find import find_test_files  # noqa: PLC0415 loads Lance
    from omnigraph.pipelines.data_tests.model import TestFileError  # noqa: PLC0415 loads Lance

    found: list[ContractRule] = []
    for path in find_test_files(paths):
        text = path.read_bytes().decode(errors="surrogateescape")
        rules, diagnostics = read_contract_text(text)
        if diagnostics:
            out.error(TestFileError({str(path): diagnostics}))
            sys.exit(EXIT_BROKEN_FILE)
        found += rules
    if not found:
        shown = ", ".join(map(str, paths))
        raise click.UsageError(f"no contracts (`expectations`) in the test files of {shown}")
    return numbered(found)
