"""`omnigraph doctor`: whether this machine, and a graph, are in good order."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from typing import TYPE_CHECKING, Final

import click

from omnigraph.cli.address import graph_address, open_graph, resolve_address, storage_options
from omnigraph.cli.options.flags import ScopedCommand, flags
from omnigraph.cli.options.spelled import SHARE
from omnigraph.cli.output.output import Output, json_option
from omnigraph.errors import OmnigraphError

if TYPE_CHECKING:
    from omnigraph.graph import Finding, ReadableCommits, ScrubReport, ScrubRequest

_PACKAGES: Final = ("omnigraph", "pylance", "pyarrow", "numpy", "obstore", "pyspark")
_MARKS: Final = {"ok": "ok     ", "note": "note   ", "problem": "PROBLEM"}


@click.command("doctor", cls=ScopedCommand)
@graph_address
@click.option("--no-spark", is_flag=True, help="Do not start a Spark session.")
@click.option(
    "--read-only", is_flag=True, help="Do not try the graph's storage with a small object."
)
@click.option("--scrub", is_flag=True, help="Compare the graph's files with their checksums.")
@click.option("--branch", help="With --scrub: only what this branch needs.")
@click.option("--sample", type=SHARE, help="With --scrub: read only this share, such as 5%.")
@click.option("--seed", help="With --sample: which files; by default the day chooses.")
@click.option("--adopt", is_flag=True, help="With --scrub: give a checksum to files without one.")
@json_option
def command(
    uri: str | None,
    no_spark: bool,
    read_only: bool,
    scrub: bool,
    branch: str | None,
    sample: float | None,
    seed: str | None,
    adopt: bool,
    as_json: bool,
) -> None:
    """Check this machine, and a graph when one is given; say what to do for each finding.

    Ends with exit code 1 when there is a problem. With --scrub nothing but the files of the graph
    is looked at, and a damaged one is the problem.
    """
    if scrub:
        from omnigraph.graph import ScrubRequest  # noqa: PLC0415 loads Lance

        share = 1.0 if sample is None else sample
        _scrub(uri, Output(as_json=as_json), ScrubRequest(branch, share, seed, adopt))
        return
    if branch or sample or seed or adopt:
        raise click.UsageError("--branch, --sample, --seed and --adopt need --scrub")
    findings = [_python(), *_packages(), _java()]
    # Spark is optional: what it lacks is a note above, and a session would fail for that reason.
    if not no_spark and _has("pyspark") and findings[-1].health == "ok":
        findings.append(_spark())
    if uri or flags().get("store") or flags().get("profile"):
        findings.extend(_graph(uri, read_only=read_only))
    text = "\n".join(_line(finding) for finding in findings)
    is_well = all(finding.health != "problem" for finding in findings)
    shape = {"ok": is_well, "findings": [finding.to_json() for finding in findings]}
    Output(as_json=as_json).result(text, shape)
    sys.exit(0 if is_well else 1)


def _scrub(uri: str | None, out: Output, request: ScrubRequest) -> None:
    from omnigraph.graph import scrub_graph  # noqa: PLC0415 loads Lance

    address = resolve_address(uri)
    report = scrub_graph(address, request, storage_options=storage_options())
    out.result(_scrub_text(report), {"uri": address, **report.to_json()})
    sys.exit(0 if report.is_sound else 1)


def _scrub_text(report: ScrubReport) -> str:
    read = f"{report.files} files, {report.compared} compared, {report.bytes_read} bytes read"
    lines = [
        f"{read} (sample {report.share:.0%}, seed {report.seed})" if report.share < 1 else read
    ]
    for damage in report.damaged:
        lines.append(f"{_MARKS['problem']} {damage.path}: {damage.problem}, {damage.detail}")
        what = f"{damage.kind} of {damage.table}"
        lines.append(f"        {what}: {damage.rows}" if damage.rows else f"        {what}")
        lines.extend(_readable(commits) for commits in damage.commits)
        lines.append(f"        → {damage.remedy}")
    if report.adopted:
        lines.append(f"{_MARKS['note']} {report.adopted} files have got a checksum")
    if report.without_checksum:
        count = len(report.without_checksum)
        lines.append(f"{_MARKS['note']} {count} files have no checksum")
        lines.append("        → `omnigraph doctor --scrub --adopt` gives them one")
    if report.is_sound:
        lines.append(f"{_MARKS['ok']} nothing is damaged")
    return "\n".join(lines)


def _readable(commits: ReadableCommits) -> str:
    total = commits.readable + commits.unreadable
    newest = f", newest {commits.newest}" if commits.newest else ""
    return (
        f"        branch {commits.branch}: {commits.readable} of {total} commits readable{newest}"
    )


def _python() -> Finding:
    from omnigraph.graph import Finding, Health  # noqa: PLC0415 loads Lance

    return Finding("python", Health.OK, f"{platform.python_version()} at {sys.executable}")


def _packages() -> list[Finding]:
    from omnigraph.graph import Finding, Health  # noqa: PLC0415 loads Lance

    found: list[Finding] = []
    for name in _PACKAGES:
        if _has(name):
            text = f"{name} {importlib.metadata.version(name)}"
            found.append(Finding("package", Health.OK, text))
        else:
            remedy = (
                "pip install 'omnigraph[spark]'" if name == "pyspark" else f"pip install {name}"
            )
            found.append(Finding("package", Health.NOTE, f"{name} is not installed", remedy))
    return found


def _has(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


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
