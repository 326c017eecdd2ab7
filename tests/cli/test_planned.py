"""Commands of later releases have their names, classes and errors today."""

from __future__ import annotations

import pytest

from omnigraph.cli.app import COMMANDS, is_planned
from omnigraph.cli.capabilities import RULES
from omnigraph.cli.planned import INSTEAD
from support.terminal import Terminal

_WORDS = """
alias blob branch change changes check cleanup cluster commit demo diff doctor embed export graphs
ingest init lineage lint load log login logout mcp mutate optimize pipeline policy profile queries
query read recovery repair schema serve shell snapshot sql tag test version
"""
NAMED_BY_THE_SPECIFICATION = frozenset(_WORDS.split())
OLD_WORDS = frozenset({"change", "read"})


def test_every_command_exists_or_says_what_works_today() -> None:
    planned = {name for name in NAMED_BY_THE_SPECIFICATION if is_planned(name)}
    assert planned == set(INSTEAD)
    assert COMMANDS.keys() | planned | OLD_WORDS == NAMED_BY_THE_SPECIFICATION
    families = {words.partition(" ")[0] for words in RULES}
    assert families >= NAMED_BY_THE_SPECIFICATION - OLD_WORDS


@pytest.mark.parametrize("name", sorted(INSTEAD))
def test_a_planned_command_ends_with_what_works_today(omnigraph: Terminal, name: str) -> None:
    result = omnigraph(name, "--json")
    assert (result.code, result.out) == (1, "")
    assert '"code": "OG-PLANNED"' in result.err
    hint = omnigraph(name, "anything", "--config", "x").err.splitlines()[-1]
    assert hint.startswith("hint: `omnigraph ")
    command = hint.removeprefix("hint: `omnigraph ").split()[0]
    assert command in COMMANDS


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("graphs list --store g", "`graphs list` is a served command and --store does not apply"),
        ("graphs list --cluster c --store g", "--cluster does not apply"),
        (
            "cluster validate --server s",
            "`cluster` is a cluster control command and --server does not",
        ),
        ("policy test --store g", "give `--cluster <dir|uri>`"),
        ("queries list --as ada", "`queries list` is a cluster control command and --as does not"),
        ("alias cites --graph g --store s", "--graph, --store does not apply"),
        ("pipeline run p.yaml --server s", "`pipeline` is a direct (storage-native) command"),
        ("mcp --cluster c", "`mcp` is a local command and --cluster does not apply"),
    ],
)
def test_the_address_is_checked_as_it_will_be(omnigraph: Terminal, args: str, message: str) -> None:
    result = omnigraph(*args.split())
    assert (result.code, result.out) == (1, "")
    assert message in result.err


@pytest.mark.parametrize(
    "args",
    [("query", "-v"), ("-v", "query"), ("branch", "--version"), ("branch", "list", "--version")],
)
def test_the_version_is_shown_before_and_behind_a_command(
    omnigraph: Terminal, args: tuple[str, ...]
) -> None:
    result = omnigraph(*args)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("omnigraph ")
    assert result.out.count("\n") == 1


def test_global_flags_may_stand_between_a_family_and_its_command(
    omnigraph: Terminal, graph: str
) -> None:
    result = omnigraph("branch", "--store", graph, "list")
    assert (result.code, result.out) == (0, "main\n")


def test_wrong_usage_is_json_for_programs(omnigraph: Terminal) -> None:
    result = omnigraph("load", "--frob", "--json")
    assert (result.code, result.out) == (2, "")
    assert '"code": "OG-USAGE"' in result.err
    assert "`omnigraph load --help` lists what it takes" in result.err
