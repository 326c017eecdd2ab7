"""The lineage of a commit: which job made it, from which inputs, with which result.

It is a part of the properties of the commit, under fixed keys. Each value but those of the engine
is JSON; what is not known is left out:

| property | content |
|---|---|
| `job` | `{namespace, name, version?, file_digest?, run_id}` |
| `inputs` | `[{source?, uri, format, version?, digest?, rows?, bytes?, files?, columns?}]` |
| `outputs` | per type `{kind?, inserted, updated, deleted, unchanged, rejected}`; `kind` of edges |
| `columns` | `{"Person.name": ["people.full_name"]}`: properties, and the columns they come from |
| `checks` | `[{name, expect?, value, passed, severity?, error?}]` |
| `engine`, `spark_app_id`, `omnigraph_version`, `python_version` | plain texts |

1. Only the engine writes these keys. A caller who names one is refused, so what they say is true.
2. They hold no secret: addresses are masked before they are stored.
3. A commit can do without them. One that an older release has made has none, and a value that
   cannot be read counts as absent; neither is an error.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from importlib.metadata import version
from typing import Any, Final, TypeVar, cast

import orjson

from omnigraph.dataclass import dataclass
from omnigraph.errors import InvalidInputError
from omnigraph.names import TableKey, check_label

ENGINE_KEYS: Final = ("engine", "spark_app_id", "omnigraph_version", "python_version")
_JSON_KEYS: Final = ("job", "inputs", "outputs", "columns", "checks")
LINEAGE_KEYS: Final = frozenset({*_JSON_KEYS, *ENGINE_KEYS})
"""Properties of a commit that only the engine writes."""

_COUNTERS: Final = ("inserted", "updated", "deleted", "unchanged", "rejected")
_TEXT_MAX: Final = 60_000
_SHOWN_MAX: Final = 2_000
_Part = TypeVar("_Part")


class ReservedPropertyError(InvalidInputError):
    """A caller names a property of a commit that the engine itself writes."""

    code = "OG-RESERVED-PROPERTY"
    hint = "give the property another name; the argument `job` names the job of a commit"
    template = "the commit property '{key}' is reserved for the lineage of the commit"
    key: str


def check_properties(properties: Mapping[str, str] | None) -> None:
    """Refuse properties of a caller that the engine itself writes."""
    for key in properties or ():
        if key in LINEAGE_KEYS:
            raise ReservedPropertyError(key)


# -- parts ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """What made a commit. Without `run_id` it is the id of the operation."""

    namespace: str
    name: str
    version: str | None = None
    file_digest: str | None = None
    run_id: str | None = None

    def __post_init__(self) -> None:
        for key, value in vars(self).items():
            if value is not None:
                check_label(f"the {key} of a job", value)

    def named(self, name: str) -> Job:
        """Return a job of the same kind with another name, for another run."""
        return Job(self.namespace, name)

    def of_run(self, run_id: str) -> Job:
        """Return the job with the id of its run, unless it has one."""
        return self if self.run_id is not None else replace(self, run_id=run_id)

    def to_json(self) -> dict[str, object]:
        """Return what is known."""
        return {name: value for name, value in vars(self).items() if value is not None}


def job_of(asked: str | Job | None, default: Job) -> Job:
    """Return the job of a call: the one asked for, by its name or as a whole, else the default."""
    if asked is None:
        return default
    return default.named(asked) if isinstance(asked, str) else asked


@dataclass(frozen=True)
class InputRead:
    """What was read of one source; texts hold no secrets."""

    source: str | None
    uri: str
    format: str
    version: str | None = None
    rows: int | None = None
    bytes: int | None = None
    files: int | None = None
    digest: str | None = None
    columns: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Return what is known."""
        return {name: value for name, value in vars(self).items() if value not in (None, ())}


@dataclass(frozen=True)
class TypeCounts:
    """What a job did to the rows of one type."""

    type_name: str
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0
    rejected: int = 0
    is_edge: bool = False

    @property
    def table_key(self) -> str:
        """The table of the type."""
        if self.is_edge:
            return TableKey.edge(self.type_name.removeprefix("edge:"))
        return TableKey.node(self.type_name)

    def plus(self, other: TypeCounts) -> TypeCounts:
        """Return the sum of two counts of one type."""
        return TypeCounts(
            self.type_name,
            **{name: getattr(self, name) + getattr(other, name) for name in _COUNTERS},
            is_edge=self.is_edge or other.is_edge,
        )

    def to_json(self) -> dict[str, object]:
        """Return the counts as programs see them."""
        return {"type_name": self.type_name, **{name: getattr(self, name) for name in _COUNTERS}}


@dataclass(frozen=True)
class CheckResult:
    """What a check has found."""

    name: str
    expect: str
    value: object
    passed: bool
    is_warning: bool = False
    error: str | None = None

    @property
    def stops(self) -> bool:
        """Whether the run must not be published because of it."""
        return not self.passed and not self.is_warning

    def to_json(self) -> dict[str, object]:
        """Return the result as programs see it."""
        shape: dict[str, object] = {
            "name": self.name,
            "expect": self.expect,
            "value": self.value[:_SHOWN_MAX] if isinstance(self.value, str) else self.value,
            "passed": self.passed,
        }
        if self.is_warning:
            shape["severity"] = "warn"
        if self.error is not None:
            shape["error"] = self.error[:_SHOWN_MAX]
        return shape


# -- the whole ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lineage:
    """What the properties of one commit say of its job."""

    job: Job
    inputs: tuple[InputRead, ...] = ()
    outputs: tuple[TypeCounts, ...] = ()
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    checks: tuple[CheckResult, ...] = ()
    engine: Mapping[str, str] = field(default_factory=dict)
    """The properties `ENGINE_KEYS`, as far as they are known."""

    def to_properties(self) -> dict[str, str]:
        """Return the properties of the commit; what is too long for one is named as such."""
        texts = {key: _bounded(_text(value)) for key, value in self._values().items() if value}
        return {**texts, **self.engine}

    def to_json(self) -> dict[str, object]:
        """Return the lineage as programs see it."""
        return {**self._values(), **self.engine}

    def _values(self) -> dict[str, object]:
        return {
            "job": self.job.to_json(),
            "inputs": [one.to_json() for one in self.inputs],
            "outputs": {one.type_name: _counters(one) for one in self.outputs},
            "columns": {name: list(read) for name, read in self.columns.items()},
            "checks": [one.to_json() for one in self.checks],
        }

    def output(self, type_name: str) -> TypeCounts | None:
        """Return what the job did to one type."""
        return next((one for one in self.outputs if one.type_name == type_name), None)


def _text(value: object) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        # Integers of more than 64 bits, halves of surrogate pairs, values without a form in JSON.
        return json.dumps(value, default=str)


def _bounded(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else json.dumps({"truncated": len(text)})


def _counters(one: TypeCounts) -> dict[str, object]:
    counters = {name: getattr(one, name) for name in _COUNTERS}
    return {"kind": "edge", **counters} if one.is_edge else counters


def type_names(table_keys: Iterable[str]) -> dict[str, str]:
    """Return what the outputs of a commit call its tables: by type, else by the whole key.

    >>> type_names(["node:Person", "edge:Knows", "edge:Person"])
    {'node:Person': 'Person', 'edge:Knows': 'Knows', 'edge:Person': 'edge:Person'}
    """
    found: dict[str, str] = {}
    for key in sorted(table_keys, key=lambda key: (TableKey(key).is_edge, key)):
        name = TableKey(key).type_name
        found[key] = key if name in found.values() else name
    return found


@cache
def _versions() -> dict[str, str]:
    return {
        "omnigraph_version": version("omnigraph"),
        "python_version": platform.python_version(),
    }


def runtime(engine: str, spark_app_id: str | None = None) -> dict[str, str]:
    """Return the properties that name the engine of this process and its versions."""
    application = {} if spark_app_id is None else {"spark_app_id": spark_app_id}
    return {"engine": engine, **application, **_versions()}


# -- reading --------------------------------------------------------------------------------------


def read_lineage(properties: Mapping[str, str]) -> Lineage | None:
    """Return the lineage that the properties of a commit state; None if they state none.

    What others have written under our names counts as absent.
    """
    job = _job(_object(properties.get("job")))
    if job is None:
        return None
    return Lineage(
        job=job,
        inputs=tuple(_known(_input(one) for one in _list(properties.get("inputs")))),
        outputs=tuple(
            TypeCounts(
                name,
                **{key: _count(counts.get(key)) for key in _COUNTERS},
                is_edge=counts.get("kind") == "edge",
            )
            for name, counts in _object(properties.get("outputs")).items()
            if isinstance(counts, dict)
        ),
        columns={
            name: [str(one) for one in read]
            for name, read in _object(properties.get("columns")).items()
            if isinstance(read, list)
        },
        checks=tuple(_known(_check(one) for one in _list(properties.get("checks")))),
        engine={key: properties[key] for key in ENGINE_KEYS if key in properties},
    )


def _known(found: Iterable[_Part | None]) -> Iterator[_Part]:
    return (one for one in found if one is not None)


def _job(shape: dict[str, Any]) -> Job | None:
    texts = {
        key: value
        for key in ("namespace", "name", "version", "file_digest", "run_id")
        if isinstance(value := shape.get(key), str)
    }
    if "namespace" not in texts or "name" not in texts:
        return None
    try:
        return Job(**texts)
    except InvalidInputError:
        return None


def _input(shape: dict[str, Any]) -> InputRead | None:
    if not isinstance(shape.get("uri"), str):
        return None
    columns = shape.get("columns")
    return InputRead(
        source=_optional_text(shape.get("source")),
        uri=shape["uri"],
        format=str(shape.get("format", "")),
        version=_optional_text(shape.get("version")),
        rows=_optional_count(shape.get("rows")),
        bytes=_optional_count(shape.get("bytes")),
        files=_optional_count(shape.get("files")),
        digest=_optional_text(shape.get("digest")),
        columns=tuple(str(one) for one in columns) if isinstance(columns, list) else (),
    )


def _check(shape: dict[str, Any]) -> CheckResult | None:
    if not isinstance(shape.get("name"), str) or not isinstance(shape.get("passed"), bool):
        return None
    return CheckResult(
        name=shape["name"],
        expect=str(shape.get("expect", "")),
        value=shape.get("value"),
        passed=shape["passed"],
        is_warning=shape.get("severity") == "warn",
        error=_optional_text(shape.get("error")),
    )


def _optional_text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _optional_count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _count(value: object) -> int:
    return _optional_count(value) or 0


def _object(text: object) -> dict[str, Any]:
    found = _json(text)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _list(text: object) -> list[dict[str, Any]]:
    found = _json(text)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _json(text: object) -> object:
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
