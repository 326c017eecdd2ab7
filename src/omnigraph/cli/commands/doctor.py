"""`omnigraph doctor`: whether this machine, and a graph, are in good order."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from typing import TYPE_CHECKING, Final

import click

from omnigraph.cli.address import graph_address, open_graph
from omnigraph.cli.flags import ScopedCommand, flags
from omnigraph.cli.output import Output, json_option
from omnigraph.errors import OmnigraphError

if TYPE_CHECKING:
    from omnigraph.graph import Finding

_PACKAGES: Final = ("omnigraph", "pylance", "pyarrow", "numpy", "obstore", "pyspark")
_MARKS: Final = {"ok": "ok     ", "note": "note   ", "problem": "PROBLEM"}


@click.command("doctor", cls=ScopedCommand)
@graph_address(positional=True)
@click.option("--no-spark", is_flag=True, help="Do not start a Spark session.")
@click.option(
    "--read-only", is_flag=True, help="Do not try the graph's storage with a small object."
)
@json_option
def command(uri: str | None, no_spark: bool, read_only: bool, as_json: bool) -> None:
    """Check this machine, and a graph when one is given; say what to do for each finding.

    Ends with exit code 1 when there is a problem.
    """
    findings = [_python(), *_packages(), _java()]
    if not no_spark and findings[-1].health == "ok":
        findings.append(_spark())
    if uri or flags().get("store") or flags().get("profile"):
        findings.extend(_graph(uri, read_only=read_only))
    text = "\n".join(_line(finding) for finding in findings)
    is_well = all(finding.health != "problem" for finding in findings)
    shape = {"ok": is_well, "findings": [finding.to_json() for finding in findings]}
    Output(as_json=as_json).result(text, shape)
    sys.exit(0 if is_well else 1)


def _python() -> Finding:
    from omnigraph.graph import Finding, Health  # noqa: PLC0415 loads Lance

    return Finding("python", Health.OK, f"{platform.python_version()} at {sys.executable}")


def _packages() -> list[Finding]:
    from omnigraph.graph import Finding, Health  # noqa: PLC0415 loads Lance

    found: list[Finding] = []
    for name in _PACKAGES:
        try:
            text = f"{name} {importlib.metadata.version(name)}"
            found.append(Finding("package", Health.OK, text))
        except importlib.metadata.PackageNotFoundError:
            remedy = (
                "pip install 'omnigraph[spark]'" if name == "pyspark" else f"pip install {name}"
            )
            found.append(Finding("package", Health.NOTE, f"{name} is not installed", remedy))
    return found


def _java() -> Finding:
    from omnigraph.graph import Finding, Health  # noqa: PLC0415 loads Lance
    from omnigraph.spark import java_problem  # noqa: PLC0415 starts Java

    problem = java_problem()
    if problem is None:
        return Finding("java", Health.OK, "new enough for Spark")
    return Finding("java", Health.NOTE, problem, "without it, work runs in process only")


def _spark() -> Finding:
    from omnigraph.graph import Finding, Health  # noqa: PLC0415 loads Lance
    from omnigraph.spark import get_spark, worker_problem  # noqa: PLC0415 starts a JVM

    try:
        session = get_spark()
        problem = worker_problem(session)
    except (OmnigraphError, RuntimeError) as error:
        return Finding("spark", Health.PROBLEM, f"no session: {error}", "see the message above")
    if problem is not None:
        remedy = "install omnigraph where Spark's Python workers run"
        return Finding("spark", Health.PROBLEM, problem, remedy)
    return Finding("spark", Health.OK, f"{session.version}, and its workers have omnigraph")


def _graph(uri: str | None, *, read_only: bool) -> list[Finding]:
    from omnigraph.graph import Finding, Health  # noqa: PLC0415 loads Lance

    try:
        graph = open_graph(uri, read_only=True)
    except OmnigraphError as error:
        return [Finding("graph", Health.PROBLEM, str(error), error.hint)]
    opened = Finding("graph", Health.OK, f"{graph.uri} opens, {len(graph.branch_list())} branches")
    return [opened, *graph.examine(try_writing=not read_only)]


def _line(finding: Finding) -> str:
    line = f"{_MARKS[finding.health]} {finding.topic}: {finding.message}"
    return f"{line}\n        → {finding.remedy}" if finding.remedy else line
