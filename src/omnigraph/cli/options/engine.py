"""Where bulk work runs: in this process, or on a Spark that the options name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def engine_option(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `--engine`."""
    return click.option(
        "--engine",
        type=click.Choice(["auto", "local", "spark"]),
        default="auto",
        show_default=True,
        help=text,
    )


def engine_options(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `--engine`, `--spark-master` and `--spark-remote`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            click.option("--spark-remote", metavar="URL", help="Use that Spark Connect server."),
            click.option("--spark-master", metavar="URL", help="Start Spark there."),
            engine_option(text),
        ):
            command = option(command)
        return command

    return decorate


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
