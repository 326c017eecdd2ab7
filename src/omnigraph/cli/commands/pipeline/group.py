"""`omnigraph pipeline …`.

Exit codes: 0 done or nothing new, 1 the run or its checks have failed, 2 the file is broken.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from omnigraph.cli.address import acting, resolve_address, resolve_cluster, resolve_scope
from omnigraph.cli.options.engine import spark_options, spark_session, wants_spark
from omnigraph.cli.options.flags import ScopedGroup, flags
from omnigraph.cli.options.together import Decorator
from omnigraph.cli.output.output import Output, json_option
from omnigraph.cli.output.pipeline_report import history_text, plan_text, run_text, status_text
from omnigraph.cli.output.streams import say
from omnigraph.wire import EXIT_FAILURE

if TYPE_CHECKING:
    from omnigraph.pipelines import Pipeline

EXIT_BROKEN_FILE: Final = 2


@click.group("pipeline", cls=ScopedGroup)
def command() -> None:
    """Check and run pipelines that are declared in files.

    With `--cluster DIR`, FILE is the name of a pipeline that the `cluster.yaml` of the folder
    declares, and the graph that it loads is the applied one of that cluster.
    """


def _file_argument() -> Decorator:
    return click.argument("file", metavar="FILE|NAME")


@command.command("validate")
@_file_argument()
@spark_options
@json_option
def validate(file: str, spark_master: str | None, spark_remote: str | None, as_json: bool) -> None:
    """Check names, SQL, mappings and checks of a file; no rows are read."""
    from omnigraph.pipelines import validate_path  # noqa: PLC0415 loads Lance

    path, graph = _located(file)
    session = _session(spark_master, spark_remote)
    found = validate_path(path, graph=graph, spark=session)
    lines = [f"{path}:{one}" for one in found.diagnostics]
    Output(as_json=as_json).result("\n".join(lines or [f"{path}: ok"]), found.to_json())
    sys.exit(0 if found.ok else EXIT_BROKEN_FILE)


@command.command("plan")
@_file_argument()
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=1_000,
    show_default=True,
    help="How many rows of each step are checked.",
)
@spark_options
@json_option
def plan(
    file: str, sample: int, spark_master: str | None, spark_remote: str | None, as_json: bool
) -> None:
    """Show what a run would read, load and check; nothing is written."""
    with _broken_file(as_json=as_json):
        found = _load(file).plan(spark=_session(spark_master, spark_remote), sample_rows=sample)
    Output(as_json=as_json).result(plan_text(found), found.to_json())


@command.command("run")
@_file_argument()
@click.option("--run-id", metavar="ID", help="Name the run; a published one is not repeated.")
@click.option(
    "--begin-again",
    is_flag=True,
    help="Let a stream whose checkpoint is lost read everything once more.",
)
@spark_options
@json_option
def run(
    file: str,
    run_id: str | None,
    begin_again: bool,
    spark_master: str | None,
    spark_remote: str | None,
    as_json: bool,
) -> None:
    """Read the sources, load the graph, check it, and publish what holds.

    With a trigger it is a stream: every micro-batch is a run. SIGINT and SIGTERM end it after the
    micro-batch that is running.
    """
    out = Output(as_json=as_json)
    is_quiet = flags().quiet
    with _broken_file(as_json=as_json):
        pipeline = _load(file)
        out.write_target(pipeline.file.target.graph)
        is_stream = pipeline.file.trigger is not None
        found = pipeline.run(
            run_id=run_id,
            actor_id=acting(),
            spark=_session(spark_master, spark_remote),
            progress=not is_quiet,
            report=None if is_quiet else _report,
            on_batch=lambda batch: out.event(run_text(batch), batch.to_json()),
            begin_again=begin_again,
            takes_signals=is_stream,
        )
    if not is_stream:
        out.result(run_text(found), found.to_json())
    elif found.batch is None:
        out.event(run_text(found), found.to_json())
    sys.exit(EXIT_FAILURE if found.state in ("failed", "checks_failed") else 0)


@command.command("status")
@_file_argument()
@json_option
def status(file: str, as_json: bool) -> None:
    """Show the last run, and where the next one begins."""
    with _broken_file(as_json=as_json):
        history = _load(file).history()
    last = history.runs[0] if history.runs else None
    shape = {
        "pipeline": history.pipeline,
        "last_run": None if last is None else last.to_json(),
        "watermarks": {name: mark.value for name, mark in history.watermarks.items()},
    }
    Output(as_json=as_json).result(status_text(history), shape)


@command.command("history")
@_file_argument()
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many runs."
)
@click.option("--before", metavar="RUN-ID", help="Only runs that are older than this one.")
@json_option
def history(file: str, limit: int, before: str | None, as_json: bool) -> None:
    """List the runs, newest first."""
    with _broken_file(as_json=as_json):
        found = _load(file).history()
    runs, next_before = found.page(limit=limit, before=before)
    shape: dict[str, object] = {
        "pipeline": found.pipeline,
        "runs": [one.to_json() for one in runs],
    }
    if next_before is not None:
        shape["next_before"] = next_before
    Output(as_json=as_json).result(history_text(runs, next_before), shape)


@contextmanager
def _broken_file(*, as_json: bool) -> Iterator[None]:
    """End with the mistakes of a file that cannot be used."""
    from omnigraph.pipelines import PipelineFileError  # noqa: PLC0415 loads Lance

    try:
        yield
    except PipelineFileError as error:
        Output(as_json=as_json).error(error)
        sys.exit(EXIT_BROKEN_FILE)


def _load(file: str) -> Pipeline:
    from omnigraph.pipelines import Pipeline  # noqa: PLC0415 loads Lance

    path, graph = _located(file)
    return Pipeline.load(path, graph=graph)


def _located(file: str) -> tuple[str, str | None]:
    """Return the path of a pipeline, and the graph that takes the place of the one of the file."""
    if all(flags().get(name) is None for name in ("store", "profile", "cluster")):
        return _existing(file), None
    if resolve_scope().kind != "cluster":
        return _existing(file), resolve_address()
    from omnigraph.cluster.declared_pipeline import declared_pipeline  # noqa: PLC0415 a heavy room

    found = declared_pipeline(resolve_cluster().target, file)
    return str(found.file), found.graph


def _existing(file: str) -> str:
    """Return the path of a file that exists, or end with a usage error."""
    return str(click.Path(exists=True, dir_okay=False).convert(file, None, None))


def _session(spark_master: str | None, spark_remote: str | None) -> object | None:
    wants_spark("auto", spark_master=spark_master, spark_remote=spark_remote)
    return spark_session(spark_master=spark_master, spark_remote=spark_remote)


def _report(text: str) -> None:
    say(text, err=True)
