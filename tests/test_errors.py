"""Every error class: its template names fields that exist, and its instances survive pickling."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from string import Formatter
from traceback import format_exception
from typing import Any

import pytest

from omnigraph import Graph, SourceError, compile_schema
from omnigraph.cluster.diagnostics import Diagnostic
from omnigraph.errors import InvalidInputError, OmnigraphError
from omnigraph.hints import CALLS, COMMAND_ONLY, in_python
from omnigraph.manifest.errors import TagExistsError
from omnigraph.query.select import QueryKindError
from omnigraph.read.access.blobs import BlobSelector
from omnigraph.schema.migration.cost import Price
from omnigraph.schema.migration.steps import UnsupportedChange
from omnigraph.spark.sink.stream import LastBatch
from omnigraph.write.rules.stored_checks import BrokenRule, Offender
from omnigraph.write.rules.violations import KeyConflict, Violation
from support.optional import importable_modules

VIOLATION = Violation(3, "Person", "age", "x", "enum", "V201", "invalid enum value")
SAMPLES: dict[str, object] = {
    "BlobSelector": BlobSelector("node", "Doc", "d7", "scan"),
    "tuple[Diagnostic, ...]": (Diagnostic("state_missing", "error", "state.json", "it is gone"),),
    "KeyConflict": KeyConflict("node", "Person", "ann", is_stored=True),
    "LastBatch": LastBatch(4, "checkpoint"),
    "Path": Path("folder/file"),
    "UnsupportedChange": UnsupportedChange(Price("metadata"), "node 'Person'", "it cannot be made"),
    "bool": True,
    "dict[str, int]": {"enum": 1},
    "float": 2.5,
    "int": 3,
    "int | None": 3,
    "str": "cluster",
    "str | None": "word",
    "tuple[BrokenRule, ...]": (BrokenRule("step", 1, (Offender("node:Doc", "d7", "wrong"),)),),
    "tuple[Violation, ...]": (VIOLATION,),
    "tuple[float | None, ...]": (0.5, None),
    "tuple[str, ...]": ("mcp", "two"),
}
"""A value for each type of a field."""


def kinds(kind: type[OmnigraphError] = OmnigraphError) -> Iterator[type[OmnigraphError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from kinds(child)


def overrides(kind: type[OmnigraphError], name: str) -> bool:
    return getattr(kind, name) is not getattr(OmnigraphError, name)


def declared() -> list[type[OmnigraphError]]:
    """Return the classes that are made from their fields, without a constructor of their own."""
    for name in importable_modules():
        import_module(name)
    ours = {kind for kind in kinds() if kind.__module__.startswith("omnigraph.")}
    made = (kind for kind in ours if kind.template or overrides(kind, "_message"))
    return sorted(made, key=lambda kind: kind.__name__)


DECLARED = declared()


def named(template: str) -> set[str]:
    """Return the fields that a template names: the names before a dot."""
    fields = (field for _, field, _, _ in Formatter().parse(template) if field is not None)
    return {field.partition(".")[0] for field in fields}


def unknown_fields(kind: type[OmnigraphError]) -> set[str]:
    hint = "" if "hint" in kind.signature().parameters else kind.hint or ""
    return (named(kind.template) | named(hint)) - set(kind.signature().parameters)


def sample(kind: type[OmnigraphError]) -> OmnigraphError:
    fields = kind.signature().parameters.values()
    return kind(**{field.name: SAMPLES[field.annotation] for field in fields})


def test_the_declared_errors_are_found() -> None:
    assert len(DECLARED) > 140


@pytest.mark.parametrize("kind", DECLARED, ids=lambda kind: kind.__name__)
def test_a_template_names_only_fields_of_its_class(kind: type[OmnigraphError]) -> None:
    assert unknown_fields(kind) == set()


@pytest.mark.parametrize("kind", DECLARED, ids=lambda kind: kind.__name__)
def test_a_declared_error_has_its_message_in_one_place(kind: type[OmnigraphError]) -> None:
    assert not overrides(kind, "__init__")
    assert bool(kind.template) is not overrides(kind, "_message")


@pytest.mark.parametrize("kind", DECLARED, ids=lambda kind: kind.__name__)
def test_a_declared_error_keeps_its_facts_and_survives_pickling(
    kind: type[OmnigraphError],
) -> None:
    error = sample(kind)
    assert error.args == (str(error),)
    for name, field in kind.signature().parameters.items():
        assert getattr(error, name) == SAMPLES[field.annotation]
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert (str(copy), copy.hint, copy.details) == (str(error), error.hint, error.details)
    assert vars(copy) == vars(error)


def test_every_leaf_is_declared_or_has_a_constructor() -> None:
    silent = [
        kind.__name__
        for kind in kinds()
        if kind.__module__.startswith("omnigraph.")
        and kind not in DECLARED
        and not kind.__subclasses__()
        and not overrides(kind, "__init__")
    ]
    assert silent == []


# -- the mechanism --------------------------------------------------------------------------------


class PairError(InvalidInputError):
    hint = "look at {{braces}} near {where}"
    template = "{where!r} has {count:03d} {{things}}"
    where: str
    count: int = 7


class LostFieldError(InvalidInputError):
    template = "there is no {such} field"
    other: str


def test_the_fields_are_given_by_position_or_by_name() -> None:
    for error in (
        PairError("here", 8),
        PairError(where="here", count=8),
        PairError("here", count=8),
    ):
        assert str(error) == "'here' has 008 {things}"
        assert (error.where, error.count) == ("here", 8)
        assert error.hint == "look at {braces} near here"
    assert PairError("here").count == 7


@pytest.mark.parametrize(
    ("args", "facts"),
    [((), {}), (("a", 1, 2), {}), (("a",), {"where": "b"}), (("a",), {"colour": 1})],
)
def test_other_arguments_than_the_fields_are_a_mistake(
    args: tuple[object, ...], facts: dict[str, object]
) -> None:
    kind: type[OmnigraphError] = PairError
    with pytest.raises(TypeError):
        kind(*args, **facts)


def test_a_template_with_an_unknown_field_is_found() -> None:
    assert unknown_fields(LostFieldError) == {"such"}
    with pytest.raises(KeyError):
        LostFieldError("x")


def test_braces_in_a_fact_are_only_text_and_facts_are_safe_to_show() -> None:
    error = PairError("{count} s3://user:secret@bucket \x1b")
    assert str(error) == r"'{count} s3://***@bucket \x1b' has 007 {things}"
    assert error.where == r"{count} s3://***@bucket \x1b"
    assert error.hint == r"look at {braces} near {count} s3://***@bucket \x1b"


def test_a_class_without_a_template_takes_its_message() -> None:
    assert InvalidInputError("{as} it is").args == ("{as} it is",)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    root = tmp_path_factory.mktemp("hints") / "g.omni"
    return Graph.init(root, "node Person { name: String @key }", durability="process")


HINTED = [kind for kind in DECLARED if isinstance(kind.hint, str)]
PROGRAMS_ONLY = ("omnigraph.cli", "omnigraph.server", "omnigraph.cluster", "omnigraph.pipelines")


@pytest.mark.parametrize("kind", HINTED, ids=lambda kind: kind.__name__)
def test_a_hint_speaks_python_in_a_traceback(kind: type[OmnigraphError]) -> None:
    if kind.__module__.startswith(PROGRAMS_ONLY):
        pytest.skip("raised by the command line, a server or a file of theirs")
    text = in_python(str(kind.hint))
    commands = re.findall(r"`omnigraph (\w+)", text)
    assert [first for first in commands if first not in COMMAND_ONLY] == []
    assert "`--" not in text


def test_a_hint_that_is_made_for_one_error_speaks_python_too() -> None:
    assert QueryKindError("q", is_mutation=True).__notes__ == ["hint: `graph.mutate(text)`"]
    assert QueryKindError("", is_mutation=False).__notes__ == ["hint: `graph.query(text)`"]
    assert in_python("read it with `omnigraph blob`") == "read it with `graph.blob(...)`"


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (
            "`omnigraph branch merge x --into main --prefer source` (or `target`)",
            "`graph.branches.merge('x', 'main', prefer='source')` (or `target`)",
        ),
        (
            "`omnigraph branch merge x --into main --schema target --allow-data-loss` drops",
            "`graph.branches.merge('x', 'main', schema='target', allow_data_loss=True)` drops",
        ),
        ("add `--allow-data-loss`", "add `allow_data_loss=True`"),
        (
            "`omnigraph branch conflicts x --into main` says what is wrong",
            "`graph.branches.conflicts('x', 'main')` says what is wrong",
        ),
        (
            "`omnigraph branch merge SOURCE --into TARGET` with two names",
            "`graph.branches.merge(source, target)` with two names",
        ),
        ("`omnigraph doctor --scrub`", "`graph.maintenance.scrub()`"),
    ],
)
def test_a_hint_keeps_the_choices_of_a_command_in_python(hint: str, expected: str) -> None:
    assert in_python(hint) == expected


@pytest.mark.parametrize("text", sorted(set(CALLS.values()) - {"help(Graph.load)"}))
def test_a_call_that_a_hint_names_can_be_made(text: str, graph: Graph) -> None:
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    names = ast.unparse(call.func).split(".")
    method: Any = {"graph": graph, "Graph": Graph}[names[0]]
    for name in names[1:]:
        method = getattr(method, name)
    if not any(isinstance(each, ast.Constant) and each.value is ... for each in call.args):
        given = {str(each.arg): None for each in call.keywords}
        inspect.signature(method).bind(*call.args, **given)


def test_a_traceback_shows_the_caret_and_the_hint() -> None:
    with pytest.raises(SourceError) as caught:
        compile_schema("node Person { name: Strng }", domain="people")
    text = "".join(format_exception(caught.value))
    assert "1 | node Person { name: Strng }" in text
    assert "^^^^^" in text
    assert "did you mean" in text


def test_notes_of_others_are_kept_and_follow_a_pickle() -> None:
    error = TagExistsError("v1")
    error.add_note("while publishing")
    copy = pickle.loads(pickle.dumps(error))
    assert copy.__notes__ == [
        "hint: choose another name, or forget it: `graph.tags.delete(name)`",
        "while publishing",
    ]


def test_notes_can_be_set_as_libraries_do_that_carry_errors_between_processes() -> None:
    error = TagExistsError("v1")
    error.add_note("while publishing")
    copy = TagExistsError("v1")
    copy.__notes__ = error.__notes__
    assert copy.__notes__ == error.__notes__
    copy.__notes__ = []
    assert copy.__notes__ == TagExistsError("v1").__notes__


def test_an_error_without_a_hint_has_no_notes() -> None:
    assert OmnigraphError("plain").__notes__ == []
