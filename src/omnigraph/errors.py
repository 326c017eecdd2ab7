"""The error tree.

The first level says what the caller should do next:

| branch | meaning | next step |
|---|---|---|
| `InvalidInputError` | the request is wrong | fix it, then try again |
| `NotFoundError` | a named thing does not exist | check the name |
| `DeniedError` | a policy or permission refused it | ask for access |
| `ConflictError` | nothing landed, another writer was faster | refresh, then try again |
| `PreconditionError`, a conflict | what the caller demanded does not hold | look again, decide |
| `OutcomeUnknownError` | it may have landed | delete nothing: recovery decides |
| `CorruptError` | stored data breaks an invariant | stop, keep the files, look |
| `UnavailableError` | something this machine lacks (Java, an extra, a network) | install it |

A leaf is a declaration: its code, its hint, the template of its message, and its facts as
annotated fields. The fields, in their order, are the arguments of its constructor:

    class TagExistsError(ConflictError):
        code = "OG-TAG-EXISTS"
        hint = "choose another name, or forget it: `omnigraph tag delete {tag}`"
        template = "tag '{tag}' already exists"
        tag: str

Every leaf survives pickling. Every text that an error keeps (its message, its hint, its facts) is
safe to show: secrets of addresses are hidden, and what would steer a terminal is escaped
(`omnigraph.texts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from inspect import Parameter, Signature, signature
from typing import Any, ClassVar, Final, dataclass_transform

from omnigraph.hints import in_python
from omnigraph.texts import shown


@dataclass_transform(eq_default=False)
class OmnigraphError(Exception):
    """Base of every error that omnigraph raises on purpose."""

    code: ClassVar[str] = "OG-ERROR"
    """Stable identifier, documented in `docs/reference/errors.md`."""

    hint: str | None = None
    """What to do next, as one sentence or command; may name fields in braces, like `template`."""

    template: ClassVar[str] = ""
    """The message, with the names of fields in braces; a brace of the message is doubled."""

    def __init_subclass__(cls, *, init: bool = True) -> None:
        """Accept `init=False`: type checkers then expect a message instead of fields."""
        super().__init_subclass__()

    def __init__(self, *args: object, **facts: object) -> None:
        """Take the fields by position or name; a class without a template takes its message."""
        if not self.template and type(self)._message is OmnigraphError._message:
            super().__init__(*(shown(each) if isinstance(each, str) else each for each in args))
            return
        bound = self.signature().bind(*args, **facts)
        bound.apply_defaults()
        # A message is made safe as a whole, so it is built from the facts as they were given.
        vars(self).update(bound.arguments)
        message, hint = self._message(), self._hint()
        for name, value in bound.arguments.items():
            setattr(self, name, value)
        if hint != self.hint:
            self.hint = hint
        super().__init__(shown(message))

    @classmethod
    @cache
    def signature(cls) -> Signature:
        """Return what the class is made from: its fields, those of its bases first."""
        fields: dict[str, Parameter] = {}
        for base in reversed(cls.__mro__[: cls.__mro__.index(OmnigraphError)]):
            for name, annotation in vars(base).get("__annotations__", {}).items():
                if str(annotation).startswith("ClassVar"):
                    continue
                default = vars(base).get(name, Parameter.empty)
                fields[name] = Parameter(
                    name, Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation
                )
        return Signature(list(fields.values()))

    def _message(self) -> str:
        """Return the message; a leaf overrides this where a template is not enough."""
        return self.template.format_map(vars(self))

    def _hint(self) -> str | None:
        """Return the hint; a leaf overrides this where a template is not enough."""
        if self.hint is None or "hint" in vars(self):
            return self.hint
        return self.hint.format_map(vars(self))

    @classmethod
    def of_facts(cls, facts: Mapping[str, object]) -> OmnigraphError | None:
        """Return the error that was made of these facts; None where they are not enough."""
        is_declared = cls.template or cls._message is not OmnigraphError._message
        own_init = cls.__init__ is not OmnigraphError.__init__
        if not own_init and not is_declared:
            return None
        parameters = (signature(cls) if own_init else cls.signature()).parameters
        try:
            return cls(**{name: facts[name] for name in parameters if name in facts})
        except (TypeError, AttributeError, KeyError, ValueError):
            return None

    def __setattr__(self, name: str, value: object) -> None:
        """Set a fact; a text is stored in the form that is safe to show."""
        super().__setattr__(name, shown(value) if isinstance(value, str) else value)

    @property
    def details(self) -> dict[str, object] | None:
        """Facts for programs in addition to the message, where one sentence is not enough."""
        return None

    @property
    def __notes__(self) -> list[str]:
        """What a traceback prints below the message: where it is, and what to do next."""
        return [*self._own_notes(), *vars(self).get("_added_notes", [])]

    @__notes__.setter
    def __notes__(self, notes: Iterable[str]) -> None:
        """Take the notes of another error; those that every such error has stay once."""
        own = self._own_notes()
        vars(self)["_added_notes"] = [note for note in notes if note not in own]

    def _own_notes(self) -> list[str]:
        hint = f"hint: {in_python(self.hint)}" if self.hint else None
        return [note for note in (self._excerpt(), hint) if note]

    def add_note(self, note: str) -> None:
        """Add a line to what a traceback prints."""
        vars(self).setdefault("_added_notes", []).append(note)

    def _excerpt(self) -> str | None:
        """Return what the error is about: lines of a source text, or further violations.

        A leaf that has them does.
        """
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild from message and facts: `__init__` of a leaf takes its facts in its own way."""
        return _revive, (type(self), self.args, self.__dict__)


def _revive(
    kind: type[OmnigraphError], args: tuple[object, ...], facts: dict[str, object]
) -> OmnigraphError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(facts)
    return error


class InvalidInputError(OmnigraphError, init=False):
    """The request is wrong; fix it and try again."""

    code = "OG-INVALID"


class NotFoundError(OmnigraphError, init=False):
    """A named thing does not exist."""

    code = "OG-NOT-FOUND"


class DeniedError(OmnigraphError, init=False):
    """A policy or a permission refused the request."""

    code = "OG-DENIED"


class ConflictError(OmnigraphError, init=False):
    """Nothing landed because something changed meanwhile; refresh and try again."""

    code = "OG-CONFLICT"


class PreconditionError(ConflictError, init=False):
    """Nothing landed because what the caller demanded does not hold; never retried."""

    code = "OG-PRECONDITION"
    expected: str
    actual: str | None


class OutcomeUnknownError(OmnigraphError, init=False):
    """The effect may or may not have landed; recovery decides, delete nothing."""

    code = "OG-OUTCOME-UNKNOWN"


class CorruptError(OmnigraphError, init=False):
    """Stored data breaks an invariant; nothing was rewritten."""

    code = "OG-CORRUPT"


class UnavailableError(OmnigraphError, init=False):
    """This machine or installation lacks something that the request needs."""

    code = "OG-UNAVAILABLE"


EXTRAS: Final = {
    "cedarpy": "server",
    "httptools": "server",
    "httpx2": "client",
    "msgspec": "client",
    "openlineage": "lineage",
    "pyspark": "spark",
    "starlette": "server",
    "uvicorn": "server",
    "uvloop": "server",
}
"""The extra that installs a library."""


class LibraryMissingError(UnavailableError):
    """What was asked for needs a library that is not installed."""

    code = "OG-LIBRARY-MISSING"
    template = "this needs {library}, which is not installed"
    library: str

    def _hint(self) -> str:
        extra = EXTRAS.get(self.library)
        return f"pip install 'omnigraph[{extra}]'" if extra else f"pip install {self.library}"


def missing_extra(error: ModuleNotFoundError) -> LibraryMissingError | None:
    """Return the error for a library of an extra; None for any other module.

    >>> missing_extra(ModuleNotFoundError(name="pyspark.sql")).hint
    "pip install 'omnigraph[spark]'"
    """
    library = (error.name or "").partition(".")[0]
    return LibraryMissingError(library) if library in EXTRAS else None
