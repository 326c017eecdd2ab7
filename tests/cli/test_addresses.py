"""Which graph a command means, and which flags it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.cli.app import COMMANDS
from omnigraph.cli.capabilities import RULES, rule_of
from omnigraph.cli.options.flags import ScopedCommand
from support.commands import all_commands
from support.terminal import Terminal


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("OMNIGRAPH_HOME", str(home))
    return home / "config.yaml"


# -- where an address comes from ------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [
        ("snapshot", "g.omni"),
        ("snapshot", "--store", "g.omni"),
        ("--store", "g.omni", "snapshot"),
        ("snapshot", "--store=g.omni"),
        ("snapshot", "--profile", "here"),
        ("--profile", "here", "snapshot"),
        ("query", "all", "--query", "q.gq", "--profile", "here"),
        ("--profile", "here", "query", "all", "--query", "q.gq"),
    ],
)
def test_every_way_to_address_a_graph_reaches_it(
    omnigraph: Terminal, graph: str, config: Path, args: tuple[str, ...]
) -> None:
    config.write_text(f"profiles: {{here: {{store: '{graph}'}}}}\n")
    assert omnigraph(*args).code == 0


def test_the_environment_names_a_profile_and_flags_beat_it(
    omnigraph: Terminal, graph: str, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text(f"profiles: {{here: {{store: '{graph}'}}, gone: {{store: nowhere}}}}\n")
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "gone")
    assert omnigraph("snapshot").code == 1
    assert omnigraph("snapshot", "--profile", "here").code == 0
    assert omnigraph("snapshot", "--store", graph).code == 0
    assert omnigraph("version").code == 0


def test_a_default_store_is_the_last_resort(omnigraph: Terminal, graph: str, config: Path) -> None:
    config.write_text(f"defaults: {{store: '{graph}'}}\n")
    assert omnigraph("snapshot").code == 0
    refused = omnigraph("snapshot", "--graph", "papers")
    assert "does not apply to a store scope" in refused.err


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (("snapshot",), "no graph addressed"),
        (("snapshot", "a", "--store", "b"), "mutually exclusive"),
        (("snapshot", "--store", "a", "--server", "http://b"), "mutually exclusive"),
        (("snapshot", "a", "--graph", "g"), "already a single graph"),
        (("snapshot", "https://x.test"), "--server https://x.test"),
        (("optimize", "https://x.test"), "direct storage access"),
        (("snapshot", "--server", "lab"), "unknown server 'lab' (defined: home)"),
        (("snapshot", "--server", "s3://bucket/g"), "is not a server"),
        (("snapshot", "--server", "home"), "http://h.test:9 does not answer"),
        (("optimize", "--profile", "served"), "direct storage access"),
        (("snapshot", "--profile", "nope"), "unknown profile 'nope'"),
        (("snapshot", "--profile", "two"), "exactly one of server, cluster and store"),
        (("snapshot", "--profile", "clustered"), "not valid for graph data commands"),
        (("optimize", "--cluster", "ours"), "the cluster at ./none is not ready to serve"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_with_what_would_work(
    omnigraph: Terminal, config: Path, args: tuple[str, ...], part: str
) -> None:
    config.write_text(
        "servers: {home: {url: 'http://h.test:9/'}}\n"
        "clusters: {ours: {root: ./none}}\n"
        "profiles:\n"
        "  served: {server: home}\n"
        "  clustered: {cluster: ours}\n"
        "  two: {server: home, store: x}\n"
    )
    result = omnigraph(*args)
    assert (result.code, result.out) == (1, "")
    assert part in result.err


# -- the operator's file --------------------------------------------------------------------------


def test_the_operator_is_the_actor_unless_another_is_named(
    omnigraph: Terminal, graph: str, config: Path
) -> None:
    config.write_text("operator: {actor: act-ines}\n")
    made = omnigraph("branch", "create", "a", "--uri", graph, "--json")
    assert made.json["actor_id"] == "act-ines"
    made = omnigraph("branch", "create", "b", "--uri", graph, "--as", "bo", "--json")
    assert made.json["actor_id"] == "bo"


def test_unknown_keys_are_warned_about_and_ignored(
    omnigraph: Terminal, graph: str, config: Path
) -> None:
    config.write_text(
        "colour: red\n"
        "defaults: {outptu: json}\n"
        f"profiles: {{here: {{store: '{graph}', shade: 1}}}}\n"
    )
    result = omnigraph("snapshot", "--profile", "here")
    assert result.code == 0
    for key in ("colour", "defaults.outptu", "profiles.here.shade"):
        assert f"warning: unknown key {key} " in result.err


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("- a", "must be a mapping of sections"),
        ("a: [", "not YAML"),
        ("defaults: {output: html}", "defaults.output is 'html'"),
        ("defaults: {store: a, server: b}", "defaults.store excludes"),
        ("servers: {a: {}}", "servers.a.url is required"),
        ("operator: 3", "operator must be a mapping"),
        ("defaults: {table_max_column_width: wide}", "must be a positive number"),
    ],
)
def test_a_broken_file_is_an_error_that_names_it(
    omnigraph: Terminal, config: Path, text: str, part: str
) -> None:
    config.write_text(text)
    result = omnigraph("snapshot", "--profile", "x")
    assert result.code == 1
    assert part in result.err
    assert str(config) in result.err


def test_the_output_form_and_width_are_the_operators(
    omnigraph: Terminal, graph: str, config: Path
) -> None:
    query = (
        "query",
        "--store",
        graph,
        "-e",
        "query q() { match { $p: Person } return { $p.name } }",
    )
    config.write_text("defaults: {output: csv}\n")
    assert omnigraph(*query).out == "p.name\n"
    assert omnigraph(*query, "--format", "kv").out.startswith("0 rows")


def test_profiles_are_listed_with_the_broken_ones(
    omnigraph: Terminal, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text("profiles: {a: {store: x}, b: {}}\ndefaults: {output: kv, store: y}\n")
    monkeypatch.setenv("OMNIGRAPH_PROFILE", "a")
    first, second = omnigraph("profile", "list", "--json").json
    assert (first["name"], first["binding"], first["active"]) == ("a", "store: x", True)
    assert (second["valid"], second["binding"][:8]) == (False, "invalid:")
    assert omnigraph("profile", "show", "--json").json["target"] == "x"
    monkeypatch.delenv("OMNIGRAPH_PROFILE")
    shown = omnigraph("profile", "show", "--json").json
    assert (shown["name"], shown["target"], shown["output_format"]) == ("(defaults)", "y", "kv")


# -- classes of commands --------------------------------------------------------------------------


def test_every_command_has_a_class() -> None:
    families = {name.partition(" ")[0] for name in RULES}
    assert COMMANDS.keys() <= families
    assert rule_of(("schema", "plan")) != rule_of(("schema", "show"))


@pytest.mark.parametrize(
    ("args", "command", "flag", "remedy"),
    [
        (("optimize", "--server", "x"), "optimize", "server", "--cluster <dir> --graph <id>"),
        (("--as", "a", "optimize", "g"), "optimize", "as", "storage URI"),
        (("schema", "plan", "--cluster", "c"), "schema plan", "cluster", "storage URI"),
        (("version", "--store", "x"), "version", "store", "addresses no graph"),
        (("init", "--store", "x"), "init", "store", "storage URI"),
        (("commit", "show", "--as", "a", "X"), "commit", "as", ""),
        (("query", "--cluster", "c"), "query", "cluster", ""),
        (("optimize", "--as", "a", "--server", "x"), "optimize", "server", ""),
    ],
)
def test_a_flag_that_does_not_apply_is_refused_before_anything_else(
    omnigraph: Terminal, args: tuple[str, ...], command: str, flag: str, remedy: str
) -> None:
    result = omnigraph(*args)
    assert (result.code, result.out) == (1, "")
    assert f"`{command}` is a " in result.err
    assert f"--{flag} does not apply" in result.err
    assert remedy in result.err


# -- consent and silence --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [
        ("branch", "delete", "b", "--uri", "s3://nowhere/g"),
        ("load", "s3://nowhere/g", "--data", "d.jsonl", "--mode", "overwrite"),
        ("cleanup", "s3://nowhere/g", "--keep", "3", "--confirm"),
    ],
)
def test_remote_destruction_needs_consent_before_the_graph_is_opened(
    omnigraph: Terminal, args: tuple[str, ...]
) -> None:
    result = omnigraph(*args)
    assert result.code == 1
    assert "refusing destructive" in result.err
    assert "--yes" in result.err


def test_quiet_leaves_the_target_line_out(omnigraph: Terminal, graph: str) -> None:
    assert omnigraph("branch", "create", "a", "--uri", graph).err.startswith("omnigraph branch")
    assert omnigraph("branch", "create", "b", "--uri", graph, "--quiet").err == ""
    assert omnigraph("--quiet", "branch", "delete", "b", "--uri", graph).err == ""


def test_every_command_takes_the_global_flags() -> None:
    for words, command in all_commands():
        assert isinstance(command, ScopedCommand), words
