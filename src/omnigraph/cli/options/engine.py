"""Where bulk work runs: in this process, or on a Spark that the options name."""

from __future__ import annotations

import click

from omnigraph.cli.options.together import Decorator, choice_option, together

spark_options = together(
    click.option("--spark-master", metavar="URL", help="Start Spark there."),
    click.option("--spark-remote", metavar="URL", help="Use that Spark Connect server."),
)


def engine_option(text: str) -> Decorator:
    """Add `--engine`."""
    return choice_option("--engine", known=["auto", "local", "spark"], help=text)


def engine_options(text: str) -> Decorator:
    """Add `--engine`, `--spark-master` and `--spark-remote`."""
    return together(engine_option(text), spark_options)


def wants_spark(engine: str, *, spark_master: str | None, spark_remote: str | None) -> bool:
    """Whether the options ask for Spark; those that contradict each other are an error."""
    sparks = [one for one in (spark_master, spark_remote) if one is not None]
    if len(sparks) > 1:
        raise click.UsageError("--spark-master and --spark-remote are mutually exclusive")
    if sparks and engine == "local":
        raise click.UsageError("--engine local uses no Spark: leave the address of one out")
    return engine == "spark" or bool(sparks)


def spark_session(*, spark_master: str | None, spark_remote: str | None) -> object | None:
    """Return a session on the named Spark; None where none is named."""
    if spark_master is None and spark_remote is None:
        return None
    from omnigraph.spark import get_spark  # noqa: PLC0415 an optional library

    return get_spark(master=spark_master, remote=spark_remote)
