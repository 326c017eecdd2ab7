"""`omnigraph test`.

Exit codes: 0 all tests hold, 1 one has failed, 2 a file is broken or there is nothing to run.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from omnigraph.cli.options.flags import ScopedCommand
from omnigraph.cli.output.output import Output, json_option
from omnigraph.cli.output.streams import say
from omnigraph.cli.output.test_report import result_lines, summary
from omnigraph.texts import escaped
from omnigraph.wire import EXIT_FAILURE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph.pipelines.data_tests.model import DataTest, TestFile
    from omnigraph.pipelines.data_tests.run import Engine, TestResult

EXIT_BROKEN_FILE: Final = 2
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("test", cls=ScopedCommand)
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path), metavar="[PATH]…")
@click.option("-k", "text", metavar="TEXT", help="Only tests whose name or file has this text.")
@click.option(
    "--junit",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the results to this file as JUnit XML.",
)
@click.option("--update", is_flag=True, help="Write snapshots again that differ, never `rows`.")
@click.option("--fail-fast", is_flag=True, help="Stop after the first test that fails.")
@click.option(
    "--engine",
    type=click.Choice(["local", "spark"]),
    help="Where loads and merges run; with `local`, tests of pipelines are skipped.",
)
@click.option(
    "--scaffold", metavar="QUERY", help="Write the beginning of a test of this query, and end."
)
@click.option("--schema", "schema_path", type=_FILE, help="With --scaffold: the schema (`.pg`).")
@click.option("--query", "query_path", type=_FILE, help="With --scaffold: the queries (`.gq`).")
@json_option
def command(
    paths: tuple[Path, ...],
    text: str | None,
    junit: Path | None,
    update: bool,
    fail_fast: bool,
    engine: Engine | None,
    scaffold: str | None,
    schema_path: Path | None,
    query_path: Path | None,
    as_json: bool,
) -> None:
    """Run the tests of `*.test.yaml` files, by default those below this folder.

    Fixtures are built in a temporary folder; real graphs are opened for reading only.
    """
    out = Output(as_json=as_json)
    if scaffold is not None:
        _scaffold(scaffold, schema_path, query_path, out)
        return
    if schema_path is not None or query_path is not None:
        raise click.UsageError("--schema and --query go with --scaffold")
    from omnigraph.pipelines.data_tests.run import RunSettings, run_tests  # noqa: PLC0415 loads Lance

    files = _files(paths or (Path(),), out)
    _require_some(files, text)
    shown: set[Path] = set()

    def report(file: TestFile, result: TestResult) -> None:
        if as_json:
            return
        if file.path not in shown:
            shown.add(file.path)
            say(str(file.path))
        for line, colour in result_lines(result):
            click.secho(escaped(line), fg=colour)

    settings = RunSettings(updates=update, engine=engine)
    done = run_tests(
        files,
        settings,
        chosen=lambda file, test: _is_chosen(file, test, text),
        fail_fast=fail_fast,
        report=report,
    )
    if junit is not None:
        from omnigraph.pipelines.data_tests.junit import junit_xml  # noqa: PLC0415 seldom used

        junit.write_text(junit_xml(done), encoding="utf-8")
    out.result(summary(done), done.to_json())
    sys.exit(0 if done.ok else EXIT_FAILURE)


def _files(paths: Sequence[Path], out: Output) -> tuple[TestFile, ...]:
    """Return the test files; if one of them is broken, all mistakes are shown and nothing runs."""
    from omnigraph.pipelines.data_tests.find import find_test_files  # noqa: PLC0415 loads Lance
    from omnigraph.pipelines.data_tests.model import TestFileError  # noqa: PLC0415 loads Lance
    from omnigraph.pipelines.data_tests.read import load_test_files  # noqa: PLC0415 loads Lance

    try:
        found = load_test_files(find_test_files(paths))
    except TestFileError as error:
        out.error(error)
        sys.exit(EXIT_BROKEN_FILE)
    if not found:
        raise click.UsageError(f"no test files (`*.test.yaml`) in {', '.join(map(str, paths))}")
    return found


def _is_chosen(file: TestFile, test: DataTest, text: str | None) -> bool:
    return text is None or text.lower() in f"{file.path} {test.name}".lower()


def _require_some(files: Sequence[TestFile], text: str | None) -> None:
    if not any(_is_chosen(file, test, text) for file in files for test in file.tests):
        what = "the files have no tests" if text is None else f"no test matches -k '{text}'"
        raise click.UsageError(what)


# -- scaffold -------------------------------------------------------------------------------------


def _scaffold(query: str, schema_path: Path | None, query_path: Path | None, out: Output) -> None:
    """Write the file of a test; what another one has written stays."""
    from omnigraph.pipelines.data_tests.scaffold import scaffold  # noqa: PLC0415 loads Lance

    path = Path(f"{query}.test.yaml")
    schema = _the_file(schema_path, "*.pg", "--schema")
    queries = query_path or _the_file(None, "*.gq", "--query")
    text = scaffold(query, schema_path=schema, query_path=queries, folder=path.parent)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise click.UsageError(f"{path} exists already") from None
    out.result(f"wrote {path}", {"wrote": str(path)})


def _the_file(given: Path | None, pattern: str, option: str) -> Path:
    if given is not None:
        return given
    found = sorted(Path().glob(pattern))
    if len(found) != 1:
        raise click.UsageError(
            f"this folder has {len(found)} files {pattern}: name one by {option}"
        )
    return found[0]
