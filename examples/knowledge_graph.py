"""A knowledge graph from parquet files, with Spark.

    python examples/knowledge_graph.py [FOLDER]

Shows: tables of other systems become nodes and edges in one commit, cleaned by Spark on their way;
rows that break a rule are set aside and told, not lost; the same load again changes nothing;
queries mix hops with full text; Spark reads the graph back. Needs Java 17 or newer.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as sql

from omnigraph import Graph
from omnigraph.spark import get_spark

SCHEMA = """\
node Paper {
    doi: String @key
    title: String @index
    year: I32?
    @range(year, 1600..2100)
}
node Author { name: String @key }
edge Cites: Paper -> Paper
edge Wrote: Author -> Paper { position: I32? }
"""

QUERIES = """\
query builds_on($doi: String) {
    match { $p: Paper { doi: $doi }  $p cites{1,3} $old }
    return { $old.title as title, $old.year as year }
    order { year }
}
query about($words: String) {
    match { $p: Paper  search($p.title, $words)  $a wrote $p }
    return { $p.title as title, $a.name as author }
    order { title, author }
}
"""


def main(folder: Path) -> None:
    """Tell the story in an empty folder."""
    write_exports(folder)
    spark = get_spark()
    graph = Graph.init(folder / "papers.omni", SCHEMA)

    print("1. Two exports of a library become four tables; Spark tidies them up.")
    papers = spark.read.parquet(str(folder / "papers.parquet"))
    papers = papers.withColumn("doi", sql.lower(sql.trim("doi"))).dropDuplicates(["doi"])
    written = papers.select("doi", sql.posexplode("authors").alias("position", "name"))
    links = spark.read.parquet(str(folder / "citations.parquet"))
    tables = {
        "Paper": papers.select("doi", "title", "year"),
        "Author": written.select("name").distinct(),
        "Wrote": written.selectExpr("name AS src", "doi AS dst", "position + 1 AS position"),
        "Cites": links.selectExpr("lower(citing) AS src", "lower(cited) AS dst"),
    }

    print("2. All of them are one commit. What breaks a rule is set aside:")
    result = graph.load(
        tables,
        mode="merge",
        engine="spark",
        spark=spark,
        on_error="quarantine",
        quarantine=folder / "rejected",
        actor_id="library-import",
    )
    print(f"   {result.inserted} entities, {result.rejected} rejected, by {result.engine}")

    print("3. The same again: no row differs, so none is written.")
    result = graph.load({"Author": tables["Author"]}, mode="merge", engine="spark", spark=spark)
    print(f"   {result.inserted} inserted, {result.updated} updated, {result.unchanged} unchanged")

    print("4. What does the newest paper stand on, up to three steps away?")
    for row in graph.query(QUERIES, "builds_on", {"doi": "10.1/graphs"}).to_pylist():
        print(f"   {row['year']} {row['title']}")

    print("5. Words of a title, and one hop to who wrote it:")
    for row in graph.query(QUERIES, "about", {"words": "model"}).to_pylist():
        print(f"   {row['title']}: {row['author']}")

    print("6. And Spark reads it back, with a filter that storage answers:")
    recent = graph.to_spark(spark, "Paper", columns=["title", "year"], where="year >= 1976")
    for found in recent.orderBy("year").collect():
        print(f"   {found['year']} {found['title']}")
    graph.close()


def write_exports(folder: Path) -> None:
    """Write what another system would have given us, with its little faults."""
    folder.mkdir(parents=True, exist_ok=True)
    papers = [
        ("10.1/CODD", "A Relational Model of Data", 1970, ["Codd"]),
        (" 10.1/codd", "A Relational Model of Data", 1970, ["Codd"]),
        ("10.1/chen", "The Entity-Relationship Model", 1976, ["Chen"]),
        ("10.1/graphs", "Property Graphs in Practice", 2024, ["Ines", "Omar"]),
        ("10.1/oops", "A Paper from the Far Future", 3024, ["Nobody"]),
    ]
    columns = [list(column) for column in zip(*papers, strict=True)]
    table = pa.table(dict(zip(("doi", "title", "year", "authors"), columns, strict=True)))
    table = table.set_column(2, "year", table["year"].cast(pa.int32()))
    pq.write_table(table, folder / "papers.parquet")
    citations = pa.table(
        {"citing": ["10.1/chen", "10.1/GRAPHS"], "cited": ["10.1/codd", "10.1/chen"]}
    )
    pq.write_table(citations, folder / "citations.parquet")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="knowledge-graph-")))
