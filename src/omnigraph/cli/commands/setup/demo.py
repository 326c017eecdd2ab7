"""`omnigraph demo`: the main job as a story, each step with the command that a user would type."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Final

import click

from omnigraph.cli.demo.terminal import Stage
from omnigraph.cli.options.flags import ScopedCommand
from omnigraph.cli.output.output import Output

SCHEMA: Final = """\
// The packages of a Python environment, who wrote them and what they need.
node Package {
    name: String @key
    version: String
    licence: enum(apache, bsd, mit, mpl, psf, other)
    note: String?
    @check(name, "^[a-z0-9][a-z0-9-]*$")
}
node Author { name: String @key }
edge DependsOn: Package -> Package { optional: Bool }
edge AuthoredBy: Package -> Author
"""

BAD_RECORDS: Final = """\
{"type": "Package", "data": {"name": "No Good", "version": "1", "licence": "gpl"}}
{"edge": "DependsOn", "from": "click", "to": "nothing", "data": {"optional": false}}
"""

BAD_QUERIES: Final = """\
query needs($p: String) {
    match { $a: Package { nmae: $p }  $a dependsOn{1,3} $b }
    return { $b.name, $b.licnce }
}
"""

QUERIES: Final = """\
query needs($p: String) @description("Everything that a package needs, up to three steps away") {
    match { $a: Package { name: $p }  $a dependsOn{1,3} $b }
    return { $b.name, $b.licence }
    order { $b.name }
    limit 8
}
query needed_most() {
    match { $a: Package  $a dependsOn $b }
    return { $b.name, count($a) as packages }
    order { packages desc, $b.name }
    limit 5
}
query note($p: String) {
    match { $a: Package { name: $p } }
    return { $a.name, $a.version, $a.note }
}
query review($p: String, $note: String) { update Package set { note: $note } where name = $p }
query release($p: String, $v: String) { update Package set { version: $v } where name = $p }
"""

GRAPH: Final = "packages.omni"
SOCIAL: Final = "social.omni"
ROWS_DEFAULT: Final = 1_000_000


@click.command("demo", cls=ScopedCommand)
@click.option(
    "--dir",
    "folder",
    default="demo-graph",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to put the files; what an earlier demo left there is replaced.",
)
@click.option(
    "--rows",
    type=click.IntRange(min=10),
    default=ROWS_DEFAULT,
    show_default=True,
    help="Edges of the generated network; it has a fifth as many nodes.",
)
@click.option("--no-spark", is_flag=True, help="Load the network in this process.")
@click.option(
    "--json", "as_json", is_flag=True, help="Tell the story on stderr, and what was done as JSON."
)
def command(folder: Path, rows: int, no_spark: bool, as_json: bool) -> None:
    """Walk through what omnigraph does, end to end, and leave the graphs for you to go on."""
    stage = Stage(folder)
    stage.clear(GRAPH, SOCIAL, "network", "conflicts.jsonl")
    if not as_json:
        _tell(stage, rows, no_spark=no_spark)
        return
    with contextlib.redirect_stdout(sys.stderr):
        engine = _tell(stage, rows, no_spark=no_spark)
    shape = {
        "dir": str(folder),
        "graphs": [str(folder / GRAPH), str(folder / SOCIAL)],
        "engine": engine,
        "rows": rows,
        "steps": [step.to_json() for step in stage.steps],
    }
    Output(as_json=True).result("", shape)


def _tell(stage: Stage, rows: int, *, no_spark: bool) -> str:
    """Run the whole story; return the engine that has done its bulk part."""
    graph = stage.folder / GRAPH
    _model_and_load(stage, graph)
    _ask(stage, graph)
    _branch_and_merge(stage, graph)
    _travel_in_time(stage, graph)
    _crash(stage, graph)
    engine = _bulk(stage, rows, no_spark=no_spark)
    click.secho(f"\nThe graphs are in {stage.folder}. Go on with:", bold=True)
    click.echo(f"  omnigraph shell {graph}")
    click.echo(f"  omnigraph log {graph} --graph")
    click.echo("  omnigraph --help")
    return engine


def _model_and_load(stage: Stage, graph: Path) -> None:
    from omnigraph.cli.demo.installed import installed_records  # noqa: PLC0415 reads the machine

    stage.step("Write a schema: types of nodes and edges, and the rules that every row must obey.")
    schema = stage.write("packages.pg", SCHEMA)
    stage.run("init", "--schema", schema, graph)
    stage.step("Load data that this machine has: its own Python environment, as one commit.")
    records = stage.folder / "packages.jsonl"
    records.write_text("".join(f"{line}\n" for line in installed_records()), encoding="utf-8")
    stage.run("load", graph, "--data", records, "--mode", "append")
    stage.step("What breaks a rule is reported, all of it, and nothing is written.")
    bad = stage.write("bad.jsonl", BAD_RECORDS)
    stage.run("load", graph, "--data", bad, "--mode", "append")


def _ask(stage: Stage, graph: Path) -> None:
    stage.step("Write queries. Mistakes are all found at once, before anything runs.")
    queries = stage.write("queries.gq", BAD_QUERIES)
    stage.run("lint", graph, "--query", queries)
    stage.step("Correct them, and ask.")
    stage.write("queries.gq", QUERIES)
    stage.run("query", "needed_most", "--store", graph, "--query", queries)
    needs = ("query", "needs", "--store", graph, "--query", queries)
    stage.run(*needs, "--params", '{"p": "pylance"}')


def _branch_and_merge(stage: Stage, graph: Path) -> None:
    write = ("mutate", "--store", graph, "--query", stage.folder / "queries.gq")
    stage.step("Branch the whole graph, and change it there. Main does not see it.")
    stage.run("branch", "create", "review", "--uri", graph, "--as", "ada")
    reviewed = '{"p": "click", "note": "reviewed"}'
    stage.run(*write, "review", "--branch", "review", "--as", "ada", "--params", reviewed)
    stage.run("diff", "main", "review", "--uri", graph)
    stage.step("Meanwhile main moves on. Merging finds the rows that both have changed.")
    stage.run(*write, "release", "--as", "bo", "--params", '{"p": "click", "v": "99.0"}')
    stage.run("branch", "merge", "review", "--uri", graph)
    stage.step("The two changed different properties of one row: they can be combined.")
    stage.run(
        "branch", "conflicts", "review", "--uri", graph, "--out", stage.folder / "conflicts.jsonl"
    )
    stage.run("branch", "merge", "review", "--strategy", "property", "--uri", graph, "--as", "ada")
    asked = ("query", "note", "--store", graph, "--query", stage.folder / "queries.gq")
    stage.run(*asked, "--params", '{"p": "click"}')


def _travel_in_time(stage: Stage, graph: Path) -> None:
    from omnigraph.graph import Graph, OpenMode  # noqa: PLC0415 loads Lance

    stage.step("Every commit stays readable. Tags name some of them, and cleanup keeps those.")
    stage.run("log", graph, "--graph")
    with Graph.open(str(graph), mode=OpenMode.READ_ONLY) as opened:
        first = next(c for c in opened.list_commits() if c.operation == "load").graph_commit_id
    stage.run("tag", "create", "as-installed", first, "--uri", graph)
    asked = ("query", "note", "--store", graph, "--query", stage.folder / "queries.gq")
    stage.run(*asked, "--snapshot", first, "--params", '{"p": "click"}')


def _crash(stage: Stage, graph: Path) -> None:
    from omnigraph.cli.demo.crash import killed_load  # noqa: PLC0415 starts a process

    stage.step("Kill a load in the middle of its commit. The next write settles what it left.")
    made_up = ({"name": f"made-up-{n}", "version": "1", "licence": "mit"} for n in range(2_000))
    lines = (json.dumps({"type": "Package", "data": data}) + "\n" for data in made_up)
    records = stage.write("more.jsonl", "".join(lines), shown=False)
    stage.show(
        f"omnigraph load {graph} --data {records} --mode merge &  # and kill -9 while it commits"
    )
    if not killed_load(graph, records):
        stage.say("It was faster than the kill, twenty times; it is there as a whole.")
        return
    stage.run("recovery", "status", graph)
    write = ("mutate", "review", "--store", graph, "--query", stage.folder / "queries.gq")
    stage.run(*write, "--params", '{"p": "pip", "note": "after the crash"}')
    stage.run("recovery", "list", graph)


def _bulk(stage: Stage, rows: int, *, no_spark: bool) -> str:
    from omnigraph.cli.demo.people import SCHEMA as NETWORK  # noqa: PLC0415 loads NumPy
    from omnigraph.cli.demo.people import write_people  # noqa: PLC0415 loads NumPy
    from omnigraph.spark import java_problem  # noqa: PLC0415 starts Java

    social = stage.folder / SOCIAL
    problem = None if no_spark else java_problem()
    engine = "local" if no_spark or problem else "spark"
    stage.step(f"The same at scale: {rows:,} edges from parquet files become one commit.")
    schema = stage.write("social.pg", NETWORK)
    stage.run("init", "--schema", schema, social)
    people, knows = write_people(stage.folder / "network", rows)
    if problem:
        stage.say(f"{problem} Until then the load runs in this process.")
    stage.run(
        *("load", social, "--node", f"Person={people}", "--edge", f"Knows={knows}"),
        *("--mode", "append", "--engine", engine),
    )
    if engine == "spark":
        _read_with_spark(stage, social)
    query = (
        "query known_best() { match { $p: Person $p knows $q }"
        " return { $q.name, count($p) as n } order { n desc, $q.name } limit 3 }"
    )
    stage.run("query", "--store", social, "-e", query)
    return engine


def _read_with_spark(stage: Stage, social: Path) -> None:
    from omnigraph.spark import get_spark  # noqa: PLC0415 starts a JVM

    stage.step("And Spark reads it back: no jar, the package registers the format by itself.")
    stage.show(
        f"python -c \"spark.read.format('omnigraph').option('node', 'Person')"
        f".load('{social}').groupBy('city').count().orderBy('city').show()\""
    )
    frame = get_spark().read.format("omnigraph").option("node", "Person").load(str(social))
    for row in frame.groupBy("city").count().orderBy("city").collect():
        stage.say(f"{row['city']:8} {row['count']:>8}")
