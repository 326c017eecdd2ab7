"""What the command line prints and how it ends: stdout, stderr and exit code of each command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import click
import pytest

from omnigraph.cli.app import COMMANDS, HIDDEN, root
from support.terminal import SCHEMA, Result, Terminal

ULID = r"[0-9A-HJKMNP-TV-Z]{26}"
OMNIGRAPH = [str(Path(sys.executable).parent / "omnigraph")]


# -- version and help -----------------------------------------------------------------------------


def test_version_prints_the_release_and_the_storage_format(omnigraph: Terminal) -> None:
    expected = f"omnigraph {version('omnigraph')}\ninternal-schema 3\n"
    assert omnigraph("version") == Result(0, expected, "")


@pytest.mark.parametrize("flag", ["-v", "--version"])
def test_the_version_flags_print_the_release_alone(omnigraph: Terminal, flag: str) -> None:
    assert omnigraph(flag) == Result(0, f"omnigraph {version('omnigraph')}\n", "")


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_every_command_that_is_not_hidden_also_by_capability(
    omnigraph: Terminal, flag: str
) -> None:
    result = omnigraph(flag)
    assert result.code == 0
    assert result.err == ""
    listed, _, capabilities = result.out.partition("COMMANDS BY CAPABILITY:")
    for name, (_, text) in COMMANDS.items():
        is_listed = re.search(rf"^  {name} +{re.escape(text)}$", listed, re.MULTILINE) is not None
        assert is_listed == (name not in HIDDEN)
        assert is_listed == (re.search(rf"\b{name}\b", capabilities) is not None)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help(omnigraph: Terminal, name: str) -> None:
    result = omnigraph(name, "--help")
    assert result.code == 0
    assert result.out.startswith(f"Usage: omnigraph {name} ")


# -- results --------------------------------------------------------------------------------------


def test_init_makes_a_graph_and_says_where(omnigraph: Terminal, tmp_path: Path) -> None:
    result = omnigraph("init", "--schema", "s.pg", "g.omni")
    assert result == Result(0, "initialized g.omni\n", "")
    assert (tmp_path / "g.omni" / "_schema.pg").read_text(encoding="utf-8") == SCHEMA


def test_snapshot_shows_every_dataset(omnigraph: Terminal, graph: str) -> None:
    expected = (
        "branch main at manifest version 1\n"
        "edge type 'Knows': 0 entities, version 1\n"
        "node type 'Person': 0 entities, version 1\n"
    )
    assert omnigraph("snapshot", graph) == Result(0, expected, "")


def test_snapshot_as_json(omnigraph: Terminal, graph: str) -> None:
    shape = omnigraph("snapshot", graph, "--json").json
    datasets = shape.pop("datasets")
    assert shape == {
        "graph_branch": "main",
        "graph_manifest_version": 1,
        "internal_schema_version": 3,
    }
    assert datasets[1] == {
        "entity_kind": "node",
        "type_name": "Person",
        "dataset_path": "nodes/40d76f1f51639ec0",
        "published_dataset_version": 1,
        "native_dataset_branch": None,
        "entity_count": 0,
    }


def test_json_is_indented_and_keeps_other_letters(omnigraph: Terminal) -> None:
    Path("ä.pg").write_text('node Ort @description("für alle") {}', encoding="utf-8")
    omnigraph("init", "--schema", "ä.pg", "g.omni")
    out = omnigraph("schema", "show", "g.omni", "--json").out
    assert out == ('{\n  "schema_source": "node Ort @description(\\"für alle\\") {}"\n}\n')


def test_branches_are_created_listed_and_deleted(omnigraph: Terminal, graph: str) -> None:
    created = omnigraph("branch", "create", "team/etl", "--uri", graph)
    target = f"omnigraph branch create → {graph} (direct, local)\n"
    assert created == Result(0, "created branch team/etl from main\n", target)
    assert omnigraph("branch", "list", "--uri", graph) == Result(0, "main\nteam/etl\n", "")
    deleted = omnigraph("branch", "delete", "team/etl", "--uri", graph)
    target = f"omnigraph branch delete → {graph} (direct, local)\n"
    assert deleted == Result(0, "deleted branch team/etl\n", target)
    assert omnigraph("branch", "list", "--uri", graph).out == "main\n"


def test_branches_as_json(omnigraph: Terminal, graph: str) -> None:
    made = omnigraph("branch", "create", "a", "--uri", graph, "--as", "ada", "--json")
    assert made.json == {"uri": graph, "from": "main", "name": "a", "actor_id": "ada"}
    cut = omnigraph("branch", "create", "b", "--from", "a", "--uri", graph, "--json")
    assert cut.json == {"uri": graph, "from": "a", "name": "b", "actor_id": None}
    assert omnigraph("branch", "list", "--uri", graph, "--json").json == {
        "branches": ["main", "a", "b"]
    }
    gone = omnigraph("branch", "delete", "b", "--uri", graph, "--json")
    assert gone.json == {"uri": graph, "name": "b", "actor_id": None}


def test_commits_are_listed_and_shown(omnigraph: Terminal, graph: str) -> None:
    listed = omnigraph("commit", "list", graph)
    found = re.fullmatch(rf"({ULID}) graph_branch=main graph_manifest_version=1\n", listed.out)
    assert found is not None
    shown = omnigraph("commit", "show", found[1], "--uri", graph)
    assert re.fullmatch(
        rf"graph_commit_id: {found[1]}\ngraph_manifest_version: 1\ncreated_at: \d+\n", shown.out
    )
    [commit] = omnigraph("commit", "list", graph, "--limit", "1", "--json").json["commits"]
    assert commit == omnigraph("commit", "show", found[1], "--uri", graph, "--json").json
    assert set(commit) == {
        "graph_commit_id",
        "graph_branch",
        "graph_manifest_version",
        "parent_commit_id",
        "merged_parent_commit_id",
        "actor_id",
        "created_at",
    }


def test_schema_show_prints_the_text_as_it_was_written(omnigraph: Terminal, graph: str) -> None:
    assert omnigraph("schema", "show", graph) == Result(0, SCHEMA, "")
    assert omnigraph("schema", "show", graph, "--json").json == {"schema_source": SCHEMA}


def test_schema_plan_says_what_it_takes(omnigraph: Terminal, graph: str) -> None:
    expected = (
        "supported: yes\n"
        "- rename property node:Person.age to years [rewrite, node:Person, 0 rows]\n"
    )
    assert omnigraph("schema", "plan", graph, "--schema", "next.pg") == Result(0, expected, "")
    same = omnigraph("schema", "plan", graph, "--schema", "s.pg")
    assert same == Result(0, "supported: yes\nno schema changes\n", "")


def test_an_unsupported_plan_is_a_result_and_no_error(omnigraph: Terminal, graph: str) -> None:
    Path("no.pg").write_text("node Person { name: String @key  age: Bool? }", encoding="utf-8")
    plan = omnigraph("schema", "plan", graph, "--schema", "no.pg", "--json")
    assert plan.code == 0
    assert plan.json["supported"] is False
    assert plan.json["uri"] == graph
    assert plan.json["step_count"] == len(plan.json["steps"])
    assert [step["mode"] for step in plan.json["steps"] if "mode" in step] == ["soft"]
    hard = omnigraph("schema", "plan", graph, "--schema", "no.pg", "--allow-data-loss", "--json")
    assert [step["mode"] for step in hard.json["steps"] if "mode" in step] == ["hard"]


def test_lint_reports_on_each_query(omnigraph: Terminal, graph: str) -> None:
    expected = (
        "OK    read all\nOK    mutation grow\nINFO  2 queries, 0 errors, 0 warnings, 0 infos\n"
    )
    assert omnigraph("lint", graph, "--query", "q.gq") == Result(0, expected, "")
    assert omnigraph("lint", "--query", "q.gq", "--schema", "s.pg") == Result(0, expected, "")


def test_lint_fails_with_the_report_on_stdout_and_the_places_on_stderr(
    omnigraph: Terminal, graph: str
) -> None:
    result = omnigraph("lint", graph, "--query", "bad.gq")
    assert result.code == 1
    assert result.out == (
        "ERROR read all: type error: T6: node type 'Person' has no property 'nmae'"
        " (in query 'all')\n"
        "INFO  1 query, 1 error, 0 warnings, 0 infos\n"
    )
    assert " --> bad.gq:1:45\n" in result.err
    assert "did you mean `$p.name`?" in result.err


def test_lint_as_json_is_complete_and_stderr_stays_empty(omnigraph: Terminal, graph: str) -> None:
    result = omnigraph("lint", graph, "--query", "bad.gq", "--json")
    assert (result.code, result.err) == (1, "")
    assert result.json["status"] == "error"
    assert result.json["schema_source"] == {"kind": "graph", "uri": graph}
    offline = omnigraph("lint", "--query", "q.gq", "--schema", "s.pg", "--json").json
    assert offline["schema_source"] == {"kind": "file", "path": "s.pg"}
    assert [found["status"] for found in offline["results"]] == ["ok", "ok"]


# -- addresses ------------------------------------------------------------------------------------


def test_a_graph_is_addressed_in_three_ways(omnigraph: Terminal, graph: str) -> None:
    by_position = omnigraph("snapshot", graph)
    assert by_position == omnigraph("snapshot", "--store", graph)
    assert omnigraph("branch", "list", "--uri", graph) == omnigraph(
        "branch", "list", "--store", graph
    )


def test_a_relative_root_and_a_file_url_are_the_same_graph(omnigraph: Terminal, graph: str) -> None:
    assert omnigraph("snapshot", "g.omni") == omnigraph("snapshot", f"file://{graph}")


def test_no_graph_two_graphs_and_a_server_are_refused(omnigraph: Terminal) -> None:
    assert omnigraph("snapshot") == Result(
        1,
        "",
        "error: no graph addressed: give a URI, `--store URI`, `--server NAME|URL` or"
        " `--profile NAME`, or set defaults.store\n",
    )
    assert omnigraph("snapshot", "a", "--store", "b") == Result(
        1, "", "error: URI a and --store b are mutually exclusive: give one of them\n"
    )
    served = omnigraph("snapshot", "https://graphs.example")
    assert (served.code, served.out) == (1, "")
    assert "https://graphs.example is a server" in served.err


# -- errors ---------------------------------------------------------------------------------------


def test_a_missing_graph_is_an_error_with_the_command_that_makes_one(
    omnigraph: Terminal, tmp_path: Path
) -> None:
    root = tmp_path / "nowhere.omni"
    assert omnigraph("snapshot", "nowhere.omni") == Result(
        1,
        "",
        f"error: there is no graph at {root}\n"
        f"hint: `omnigraph init --schema FILE {root}` makes one\n",
    )
    assert not root.exists()


def test_an_error_as_json_is_on_stderr(omnigraph: Terminal, graph: str) -> None:
    result = omnigraph("commit", "show", "XYZ", "--uri", graph, "--json")
    assert (result.code, result.out) == (1, "")
    assert json.loads(result.err) == {
        "error": "commit 'XYZ' not found",
        "code": "OG-COMMIT-NOT-FOUND",
        "hint": "`omnigraph commit list`",
    }


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ("snapshot", "--branch", "dratf"),
            "branch 'dratf' not found\nhint: did you mean 'draft'?",
        ),
        (("commit", "list", "--branch", "zebra"), "branch 'zebra' not found"),
        (("snapshot", "--branch", "a b"), "branch name 'a b' is not legal"),
    ],
)
def test_an_unknown_branch_is_an_error(
    omnigraph: Terminal, graph: str, args: tuple[str, ...], message: str
) -> None:
    omnigraph("branch", "create", "draft", "--uri", graph)
    result = omnigraph(*args, "--store", graph)
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith(f"error: {message}")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("create", "main"), "branch 'main' always exists and cannot be created"),
        (("create", "draft"), "branch 'draft' already exists"),
        (("create", "draft/x"), "branch 'draft/x' cannot exist beside 'draft'"),
        (("create", "x", "--from", "y"), "branch 'y' not found"),
        (("create", "x", "--as", "omnigraph:me"), "actor id 'omnigraph:me' is reserved"),
        (("delete", "main"), "branch 'main' cannot be deleted"),
        (("delete", "drift"), "branch 'drift' not found\nhint: did you mean 'draft'?"),
    ],
)
def test_a_branch_command_that_cannot_work_changes_nothing(
    omnigraph: Terminal, graph: str, args: tuple[str, ...], message: str
) -> None:
    omnigraph("branch", "create", "draft", "--uri", graph)
    result = omnigraph("branch", *args, "--uri", graph)
    assert (result.code, result.out) == (1, "")
    assert f"error: {message}" in result.err
    assert omnigraph("branch", "list", "--uri", graph).out == "main\ndraft\n"


def test_init_never_replaces_a_graph(omnigraph: Terminal, graph: str) -> None:
    for flags in ((), ("--force",)):
        result = omnigraph("init", "--schema", "next.pg", graph, *flags)
        hint = f"hint: choose another root; `omnigraph snapshot {graph}` shows what is there"
        assert result == Result(1, "", f"error: {graph} already holds a graph\n{hint}\n")
    assert omnigraph("schema", "show", graph).out == SCHEMA


def test_a_wrong_schema_is_shown_with_its_places(omnigraph: Terminal, tmp_path: Path) -> None:
    Path("bad.pg").write_text("node A { x: Strin }\nedge E: A -> B\n", encoding="utf-8")
    result = omnigraph("init", "--schema", "bad.pg", "g.omni")
    assert (result.code, result.out) == (1, "")
    assert " --> bad.pg:1:13\n" in result.err
    assert " --> bad.pg:2:14\n" in result.err
    assert not (tmp_path / "g.omni").exists()


@pytest.mark.parametrize(
    "args",
    [
        ("init", "--schema", "latin.pg", "g.omni"),
        ("lint", "--query", "q.gq", "--schema", "latin.pg"),
    ],
)
def test_a_schema_that_is_not_utf_8_is_shown_with_the_byte(
    omnigraph: Terminal, args: tuple[str, ...]
) -> None:
    Path("latin.pg").write_bytes("// Größe\nnode A {}".encode("latin-1"))
    result = omnigraph(*args)
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("parse error: the text is not UTF-8: byte 0xf6 at offset 5 [S008]")


def test_queries_that_are_not_utf_8_are_a_report(omnigraph: Terminal) -> None:
    Path("latin.gq").write_bytes("// Größe".encode("latin-1"))
    result = omnigraph("lint", "--query", "latin.gq", "--schema", "s.pg", "--json")
    assert result.code == 1
    [finding] = result.json["findings"]
    assert finding["code"] == "Q000"


# -- usage ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("snpshot",), "no such command 'snpshot'; did you mean `omnigraph snapshot`?"),
        (("frobnicate",), "no such command 'frobnicate'; see `omnigraph --help`"),
        (("branch", "crate"), "No such command 'crate'. Did you mean 'create'?"),
        (
            ("snapshot", "--jsn"),
            "No such option '--jsn'. (Did you mean one of: '--as', '--json', '--yes'?)",
        ),
        (("branch", "create"), "Missing argument 'NAME'."),
        (("init", "g.omni"), "Missing option '--schema'."),
        (
            ("load", "g.omni", "people.jsonl"),
            "Missing option '--mode'. Choose from: overwrite, append, merge",
        ),
        (("init", "--schema", "no.pg", "g.omni"), "File 'no.pg' does not exist."),
        (("init", "--schema", ".", "g.omni"), "File '.' is a directory."),
        (("lint", "--query", "no.gq", "--schema", "s.pg"), "File 'no.gq' does not exist."),
        (("commit", "list", "g.omni", "--limit", "0"), "0 is not in the range x>=1."),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_was_meant(
    omnigraph: Terminal, args: tuple[str, ...], message: str
) -> None:
    result = omnigraph(*args)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("Usage: omnigraph ")
    assert result.err.rstrip("\n").endswith(message)


@pytest.mark.parametrize(
    ("old", "new", "warning"),
    [
        ("check g.omni --query q.gq", "lint g.omni --query q.gq", "check` is now `omnigraph lint"),
        ("query lint g.omni --query q.gq", "lint g.omni --query q.gq", "query lint` is now"),
        ("query check g.omni --query q.gq", "lint g.omni --query q.gq", "query check` is now"),
        ("read all --query q.gq --store g.omni", "query all --query q.gq --store g.omni", "read`"),
        ("schema get g.omni", "schema show g.omni", ""),
        ("--store g.omni schema get", "schema show g.omni", ""),
    ],
)
def test_old_names_of_commands_work(
    omnigraph: Terminal, graph: str, old: str, new: str, warning: str
) -> None:
    before, after = omnigraph(*old.split()), omnigraph(*new.split())
    assert (before.code, before.out) == (after.code, after.out)
    assert warning in before.err
    assert before.err.count("\n") == (1 if warning else 0)


def test_no_error_shows_a_stack_trace(omnigraph: Terminal) -> None:
    for args in (("snapshot", "x"), ("snapshot", "ftp://x"), ("nothing",), ("init",)):
        assert "Traceback" not in omnigraph(*args).err


def options_of(command: click.Command, words: str) -> Iterator[tuple[str, click.Option]]:
    """Yield every option of a command and of those below it, with the words that lead to it."""
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield words, parameter
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            child = command.get_command(click.Context(command), name)
            assert child is not None
            yield from options_of(child, f"{words} {name}")


def test_every_option_says_what_it_is_for() -> None:
    options = list(options_of(root, "omnigraph"))
    assert len(options) > 150
    silent = [f"{words} {o.opts[0]}" for words, o in options if not o.hidden and not o.help]
    assert silent == []


# -- processes ------------------------------------------------------------------------------------


def fresh(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )


def test_start_up_and_the_help_of_every_command_load_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from omnigraph.cli.app import COMMANDS, run\n"
        "calls = [['--help'], ['--version'], ['version']]\n"
        "calls += [[name, '--help'] for name in COMMANDS]\n"
        "heavy = {'pyarrow', 'lance', 'numpy', 'pandas', 'lark', 'obstore', 'pyspark', 'yaml'}\n"
        "for call in calls:\n"
        "    code = run(call)\n"
        "    if code or heavy & set(sys.modules):\n"
        "        print(call, code, sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
        "        break\n"
    )
    assert fresh(script).stderr == ""


def test_the_installed_command_runs() -> None:
    done = subprocess.run([*OMNIGRAPH, "version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("omnigraph ")


@pytest.mark.parametrize("args", [["version"], ["snapshot", "g.omni"]], ids=lambda args: args[0])
def test_a_reader_that_is_gone_causes_no_noise(graph: str, args: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        child = subprocess.run(
            [*OMNIGRAPH, *args], stdout=writing, stderr=subprocess.PIPE, check=False, timeout=60
        )
    finally:
        os.close(writing)
    assert (child.returncode, child.stderr) == (1, b"")
