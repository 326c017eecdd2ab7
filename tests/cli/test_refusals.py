"""Every refusal ends with what would work: a hint on each error, and commands that exist in it."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest

import omnigraph
from omnigraph.cli.app import COMMANDS, root
from omnigraph.cli.capabilities import RULES
from omnigraph.errors import OmnigraphError
from omnigraph.syntax import SourceError
from support.optional import importable_modules
from support.terminal import Terminal

PACKAGE = Path(omnigraph.__file__).parent
COMMAND = re.compile(r"`omnigraph ([a-z][a-z -]*)")

STEP_IN_THE_MESSAGE = {
    "ConflictingAddressError": "each of its messages names the address that would work",
    "IdentityResolutionError": "each of its diagnostics has a place and a hint of its own",
    "MutationValueError": "each of its messages says which values fit, where no hint does",
    "QuerySelectionError": "without a hint where the text has no query, which the message says",
    "SourceError": "each of its diagnostics has a place and, where one is known, a hint",
}
"""Errors without a hint, because their message ends with the step; the table below shows each."""


def below(kind: type[OmnigraphError]) -> set[type[OmnigraphError]]:
    return {kind}.union(*(below(child) for child in kind.__subclasses__()))


def raised_errors() -> list[type[OmnigraphError]]:
    """Return the errors that are raised as they are: all but those that only group others."""
    for name in importable_modules():
        import_module(name)
    ours = (kind for kind in below(OmnigraphError) if kind.__module__.startswith("omnigraph."))
    leaves = (kind for kind in ours if not kind.__subclasses__() or kind is SourceError)
    return sorted(leaves, key=lambda kind: kind.__name__)


def sets_its_hint(kind: type[OmnigraphError]) -> bool:
    """Whether every instance is given a hint, never one that may be None."""
    if "_hint" in vars(kind):
        return str(kind._hint.__annotations__["return"]) == "str"
    if "__init__" not in vars(kind):
        field = kind.signature().parameters.get("hint")
        return field is not None and field.annotation == "str"
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind.__init__)))
    [function] = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    always = (node for node in function.body if isinstance(node, ast.Assign))
    values = [node.value for node in always if ast.unparse(node.targets[0]) == "self.hint"]
    given = {argument.arg: argument for argument in function.args.args}
    annotated = (given[v.id] for v in values if isinstance(v, ast.Name) and v.id in given)
    may_be_none = any("None" in ast.unparse(a.annotation) for a in annotated if a.annotation)
    has_none = any(
        isinstance(part, ast.Constant) and part.value is None
        for value in values
        for part in ast.walk(value)
    )
    return bool(values) and not may_be_none and not has_none


def test_the_errors_are_found() -> None:
    names = {kind.__name__ for kind in raised_errors()}
    assert len(names) > 120
    assert {"GraphNotFoundError", "ConsentMissingError", "JavaMissingError"} <= names


@pytest.mark.parametrize("kind", raised_errors(), ids=lambda kind: kind.__name__)
def test_every_refusal_has_a_hint(kind: type[OmnigraphError]) -> None:
    if kind.__name__ in STEP_IN_THE_MESSAGE:
        return
    always = isinstance(kind.hint, str) and kind.hint.strip() != ""
    assert always or sets_its_hint(kind), f"{kind.__name__} does not say what would work"


class AlwaysHintError(OmnigraphError):
    def __init__(self) -> None:
        super().__init__("no")
        self.hint = "try again"


class MaybeHintError(OmnigraphError):
    def __init__(self, hint: str | None = None) -> None:
        self.hint = hint
        super().__init__("no")


class SometimesHintError(OmnigraphError):
    def __init__(self, is_known: bool) -> None:
        super().__init__("no")
        self.hint = "try again" if is_known else None


class ComputedHintError(OmnigraphError):
    is_known: bool

    def _hint(self) -> str:
        return "look again" if self.is_known else "try again"


class ComputedMaybeHintError(OmnigraphError):
    is_known: bool

    def _hint(self) -> str | None:
        return "try again" if self.is_known else None


class FieldHintError(OmnigraphError):
    hint: str


class FieldMaybeHintError(OmnigraphError):
    hint: str | None


class BranchHintError(OmnigraphError):
    def __init__(self, is_known: bool) -> None:
        super().__init__("no")
        if is_known:
            self.hint = "try again"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (AlwaysHintError, True),
        (MaybeHintError, False),
        (SometimesHintError, False),
        (ComputedHintError, True),
        (ComputedMaybeHintError, False),
        (FieldHintError, True),
        (FieldMaybeHintError, False),
        (BranchHintError, False),
        (OmnigraphError, False),
    ],
)
def test_a_hint_that_may_be_missing_is_found(kind: type[OmnigraphError], expected: bool) -> None:
    assert sets_its_hint(kind) is expected


# -- commands in messages -------------------------------------------------------------------------


def texts_of(path: Path) -> Iterator[str]:
    """Yield the texts of a source file that people may read, docstrings left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    silent = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in silent
        ):
            yield node.value


def is_a_command(words: str) -> bool:
    """Whether the first words are those of a command, and its flags exist.

    >>> is_a_command("branch list"), is_a_command("branch lst"), is_a_command("frob")
    (True, False, False)
    """
    first, *others = words.split()
    if first in RULES and first not in COMMANDS:
        return True  # laid out, and explained by the error that a later release takes away
    if first not in COMMANDS:
        return False
    command = root.get_command(click.Context(root), first)
    if not isinstance(command, click.Group) or not others or others[0].startswith("-"):
        return True
    return others[0] in command.list_commands(click.Context(command))


def test_every_command_that_a_message_names_exists() -> None:
    named = {
        (path.name, words)
        for path in sorted(PACKAGE.rglob("*.py"))
        for text in texts_of(path)
        for words in COMMAND.findall(text)
    }
    assert len(named) > 20
    assert sorted(where for where in named if not is_a_command(where[1])) == []


# -- what people see ------------------------------------------------------------------------------

STEPS: list[tuple[str, str]] = [
    ("snapshot nowhere.omni", "`omnigraph init --schema FILE {folder}/nowhere.omni` makes one"),
    ("init --schema s.pg g.omni", "`omnigraph snapshot {folder}/g.omni` shows what is there"),
    ("snapshot", "`--server NAME|URL` or `--profile NAME`, or set defaults.store"),
    ("snapshot g.omni --store g.omni", "give one of them"),
    ("snapshot g.omni --graph x", "leave out --graph"),
    ("snapshot https://graphs.example", "address it with `--server https://graphs.example`"),
    ("lint --query q.gq https://graphs.example", "give the root of the graph"),
    ("snapshot --server s3://bucket/g", "`--store s3://bucket/g` opens storage"),
    ("snapshot --server lab", "or give its URL"),
    ("snapshot --cluster lab", "leave out --cluster"),
    ("version --store g.omni", "leave out --store"),
    ("snapshot --profile lab", "`omnigraph profile list`"),
    ("branch delete draft --uri s3://b/g", "`omnigraph branch delete … --yes` consents"),
    ("snapshot g.omni --branch dratf", "did you mean 'draft'?"),
    ("snapshot g.omni --branch zebra", "`omnigraph branch list`"),
    ("snapshot g.omni --branch x..y", "and `/` between parts"),
    ("branch create draft --uri g.omni", "`omnigraph tag list` the tags"),
    ("branch create main --uri g.omni", "`omnigraph branch list` shows those that exist"),
    ("branch create x --uri g.omni --as omnigraph:x", "`--as NAME` with a name of your own"),
    ("branch merge draft --into draft --uri g.omni", "with two names"),
    ("commit show XYZ --uri g.omni", "`omnigraph commit list`"),
    ("tag create v1 --uri g.omni", "or forget it: `omnigraph tag delete v1`"),
    ("tag delete v2 --uri g.omni", "`omnigraph tag list`"),
    ("load g.omni --data no.jsonl --mode append", "`--data -` reads standard input"),
    ("load g.omni --data bad.jsonl --mode append", "`--on-error quarantine`"),
    ("query all --store g.omni", "give the text with `--query FILE` or `-e '…'`"),
    ("query grow --query q.gq --store g.omni", "omnigraph mutate grow`"),
    ("mutate all --query q.gq --store g.omni", "omnigraph query all`"),
    ("query all --query q.gq --params [] --store g.omni", '`--params \'{{"name": "value"}}\'`'),
    (
        "query all --query q.gq --params x --store g.omni",
        "`--param NAME=VALUE` once for each parameter",
    ),
    ("query non --query q.gq --store g.omni", "it has 'all', 'grow'"),
    ("query all --query q.gq --max-rows 0 --store g.omni", "or allow more rows"),
    ("recovery show 01J00000000000000000000000 --uri g.omni", "`omnigraph recovery list`"),
    ("schema apply g.omni --schema no.pg", "take this one out of the file"),
    ("export g.omni --out full --format parquet", "folder"),
    ("export g.omni --type Persn", "Person"),
    ("changes poll --cursor x --uri g.omni", "baseline"),
]


@pytest.fixture
def refuse(omnigraph: Terminal, graph: str) -> Callable[[str], tuple[int, str, str]]:
    """Return a runner on a graph that has a branch, a tag and two queries."""
    for words in (
        "load g.omni --data good.jsonl --mode append",
        "branch create draft --uri g.omni",
        "tag create v1 --uri g.omni",
    ):
        Path("good.jsonl").write_text('{"type": "Person", "data": {"name": "a"}}', encoding="utf-8")
        assert omnigraph(*words.split()).code == 0
    Path("bad.jsonl").write_text('{"type": "Person", "data": {"age": "x"}}', encoding="utf-8")
    Path("no.pg").write_text("node Person { name: String @key  age: Bool? }", encoding="utf-8")
    Path("full").mkdir()
    Path("full", "file").touch()

    def run(words: str) -> tuple[int, str, str]:
        result = omnigraph(*words.split(), "--quiet")
        return result.code, result.out, result.err

    return run


def test_what_is_refused_ends_with_the_step_that_works(
    refuse: Callable[[str], tuple[int, str, str]], tmp_path: Path
) -> None:
    wrong = []
    for words, step in STEPS:
        code, out, err = refuse(words)
        ending = step.format(folder=tmp_path)
        if (code, out) != (1, "") or ending not in err.splitlines()[-1]:
            wrong.append(f"{words}\n  wanted: {ending}\n  exit {code}: {out}{err}")
    assert wrong == [], "\n".join(wrong)
