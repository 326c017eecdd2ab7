"""What a session knows about its jobs.

Only this module uses a `sparkContext`, and only to read: classic sessions have one and know how far
their jobs are, Connect sessions have none. What is not known is not shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def running_tasks(spark: SparkSession) -> Mapping[str, int]:
    """Return how many tasks the running stages have and have done; nothing where unknown."""
    # Connect sessions refuse, and a session that is stopping may raise anything.
    with suppress(Exception):
        tracker = spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        tasks = sum(stage.numTasks for stage in known)
        done = sum(stage.numCompletedTasks for stage in known)
        return {"tasks": tasks, "done": done} if tasks else {}
    return {}


def application_id(spark: SparkSession) -> str | None:
    """Return the id of the session's Spark application; None on Connect."""
    with suppress(Exception):
        found: str = spark.sparkContext.applicationId
        return found
    return None


def classic_parallelism(spark: SparkSession) -> int | None:
    """Return how many tasks a classic session runs at once; None on Connect."""
    with suppress(Exception):
        found: int = spark.sparkContext.defaultParallelism
        return found
    return None
