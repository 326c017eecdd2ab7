"""`omnigraph demo`: the main job as a story, each step with the command that a user would type."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Final

import click

from omnigraph.cli.flags import ScopedCommand

SCHEMA: Final = """\
// Python packages, who wrote them and what they need.
node Package @description("A distribution on the package index") {
    name: String @key
    version: String
    licence: enum(mit, bsd, apache, other)
    summary: String? @index
    downloads: I64?
    @range(downloads, 0..)
    @check(name, "^[a-z0-9][a-z0-9._-]*$")
}
node Author { name: String @key }
edge DependsOn: Package -> Package { extra: String? }
edge WrittenBy: Package -> Author
"""

NEXT_SCHEMA: Final = """\
// Python packages, who wrote them and what they need.
node Package @description("A distribution on the package index") {
    name: String @key
    version: String
    licence: enum(mit, bsd, apache, mpl, other)
    abstract: String? @index @rename_from(summary)
    downloads: I64?
    archived: Bool?
    @range(downloads, 0..)
    @check(name, "^[a-z0-9][a-z0-9._-]*$")
}
node Author { name: String @key }
edge DependsOn: Package -> Package { extra: String? }
edge WrittenBy: Package -> Author
"""

BAD_QUERIES: Final = """\
query needs($p: String) {
    match { $a: Package { nmae: $p }  $a dependsOn{1,3} $b }
    return { $b.name, $b.licnce }
}
"""

QUERIES: Final = """\
query needs($p: String) @description("Everything a package needs, up to three steps away") {
    match { $a: Package { name: $p }  $a dependsOn{1,3} $b }
    return { $b.name, $b.licence }
    order { $b.name }
}
query authors_of_mit() {
    match { $p: Package { licence: "mit" }  $p writtenBy $a }
    return { $a.name, count($p) as packages }
    order { packages desc }
    limit 10
}
query versions() {
    match { $p: Package }
    return { $p.name, $p.version }
    order { $p.name }
}
query release($name: String, $version: String) {
    update Package set { version: $version } where name = $name
}
"""


RECORDS: Final = """\
{"type": "Package", "data": {"name": "arrow", "version": "26.0", "licence": "apache"}}
{"type": "Package", "data": {"name": "lance", "version": "14.0", "licence": "apache"}}
{"type": "Package", "data": {"name": "graph", "version": "0.1", "licence": "mit"}}
{"type": "Package", "data": {"name": "spark", "version": "4.3", "licence": "apache"}}
{"type": "Author", "data": {"name": "Ada"}}
{"edge": "DependsOn", "from": "graph", "to": "lance"}
{"edge": "DependsOn", "from": "lance", "to": "arrow"}
{"edge": "DependsOn", "from": "graph", "to": "spark", "data": {"extra": "spark"}}
{"edge": "WrittenBy", "from": "graph", "to": "Ada"}
"""

BAD_RECORDS: Final = """\
{"type": "Package", "data": {"name": "No Good", "version": "1", "licence": "gpl"}}
{"type": "Package", "data": {"name": "late", "version": "1", "licence": "mit", "downloads": -1}}
"""

GRAPH: Final = "packages.omni"


@click.command("demo", cls=ScopedCommand)
@click.option(
    "--dir",
    "folder",
    default="demo-graph",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to put the files; what an earlier demo left there is replaced.",
)
def command(folder: Path) -> None:
    """Walk through what omnigraph does, end to end, and leave the graph for you to go on."""
    demo = _Demo(folder)
    demo.step("Write a schema: node types, edge types, and the rules that every row must obey.")
    demo.write("packages.pg", SCHEMA)
    demo.run("init", "--schema", "packages.pg", GRAPH)
    demo.step("Load records. What breaks a rule is reported, all of it, and nothing is written.")
    demo.write("bad.jsonl", BAD_RECORDS)
    demo.run("load", GRAPH, "--data", "bad.jsonl", "--mode", "append")
    demo.step("Good records become one commit, nodes and edges together.")
    demo.write("packages.jsonl", RECORDS)
    demo.run("load", GRAPH, "--data", "packages.jsonl", "--mode", "append")
    demo.step("Write queries. Mistakes are all found at once, before anything runs.")
    demo.write("queries.gq", BAD_QUERIES)
    demo.run("lint", GRAPH, "--query", "queries.gq")
    demo.step("Correct them, and ask.")
    demo.write("queries.gq", QUERIES)
    demo.ask("needs", '{"p": "graph"}')
    demo.step("Branch the whole graph. It costs the same for ten types or a thousand.")
    demo.run("branch", "create", "review", "--uri", GRAPH, "--as", "ada")
    demo.run(
        *("mutate", "release", "--store", GRAPH, "--query", "queries.gq", "--branch", "review"),
        *("--params", '{"name": "lance", "version": "15.0"}', "--as", "ada"),
    )
    demo.step("The branch has the new version, main has the old one.")
    demo.ask("versions", "{}", "--branch", "review")
    demo.ask("versions", "{}")
    demo.run("commit", "list", GRAPH, "--branch", "review")
    demo.step("Plan a schema change. Names move, data stays; the plan says what each step costs.")
    demo.write("next.pg", NEXT_SCHEMA)
    demo.run("schema", "plan", GRAPH, "--schema", "next.pg")
    demo.finish()


_FILES: Final = (GRAPH, "packages.pg", "next.pg", "queries.gq", "packages.jsonl", "bad.jsonl")


class _Demo:
    """Runs commands of the real command line inside one folder and shows them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in _FILES:
            _remove(folder / name)
        folder.mkdir(parents=True, exist_ok=True)
        self._number = 0

    def step(self, text: str) -> None:
        """Say what comes next."""
        self._number += 1
        click.secho(f"\n{self._number}. {text}", bold=True)

    def write(self, name: str, text: str) -> None:
        """Write a file and show it."""
        (self._folder / name).write_text(text, encoding="utf-8")
        click.secho(f"$ cat {self._folder / name}", fg="cyan")
        click.echo(text.rstrip())

    def run(self, *args: str) -> None:
        """Show a command and run it."""
        from omnigraph.cli.app import run  # noqa: PLC0415 the root command lists this module

        placed = [str(self._folder / arg) if arg in _FILES else arg for arg in args]
        click.secho(f"$ omnigraph {shlex.join(placed)}", fg="cyan")
        run(placed)

    def ask(self, name: str, params: str, *more: str) -> None:
        """Run one of the queries."""
        where = ("--store", GRAPH, "--query", "queries.gq")
        self.run("query", name, *where, "--params", params, *more)

    def finish(self) -> None:
        """Say where the graph is and how to go on."""
        click.secho(f"\nThe graph is in {self._folder}. Go on with:", bold=True)
        click.echo(f"  omnigraph snapshot {self._folder / GRAPH}")
        click.echo("  omnigraph --help")


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
