"""A flow of Spark's own declarative pipelines that ends in a graph: new files become people."""

from __future__ import annotations

import os

from pyspark import pipelines
from pyspark.sql import DataFrame, SparkSession

HOME = os.environ["SOCIAL_HOME"]

# The id makes every batch land once, also when Spark repeats it after a crash.
pipelines.create_sink(
    "people_of_the_graph",
    "omnigraph",
    {
        "path": f"{HOME}/social.omni",
        "node": "Person",
        "graphMode": "merge",
        "txnAppId": "social-people",
    },
)


@pipelines.append_flow(target="people_of_the_graph")
def people() -> DataFrame:
    """Read the files that came since the last run."""
    spark = SparkSession.active()
    columns = "full_name STRING, age INT, country STRING, updated_at TIMESTAMP"
    # A file is a batch: of a person in two files, the later one stays.
    reader = spark.readStream.schema(columns).options(header=True, maxFilesPerTrigger=1)
    files = reader.csv(f"{HOME}/in/people")
    return files.selectExpr("full_name AS name", "age", "upper(country) AS country")
