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

Every leaf keeps its facts as fields, builds its own message and survives pickling. Every text that
an error keeps (its message, its hint, its facts) is safe to show: secrets of addresses are
hidden, and what would steer a terminal is escaped (`omnigraph.texts`).
"""

from __future__ import annotations

from typing import Any, ClassVar

from omnigraph.texts import shown


class OmnigraphError(Exception):
    """Base of every error that omnigraph raises on purpose."""

    code: ClassVar[str] = "OG-ERROR"
    """Stable identifier, documented in `docs/reference/errors.md`."""

    hint: str | None = None
    """What to do next, as one sentence or command."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(shown(each) if isinstance(each, str) else each for each in args))

    def __setattr__(self, name: str, value: object) -> None:
        """Set a fact; a text is stored in the form that is safe to show."""
        super().__setattr__(name, shown(value) if isinstance(value, str) else value)

    @property
    def details(self) -> dict[str, object] | None:
        """Facts for programs in addition to the message, where one sentence is not enough."""
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


class InvalidInputError(OmnigraphError):
    """The request is wrong; fix it and try again."""

    code = "OG-INVALID"


class NotFoundError(OmnigraphError):
    """A named thing does not exist."""

    code = "OG-NOT-FOUND"


class DeniedError(OmnigraphError):
    """A policy or a permission refused the request."""

    code = "OG-DENIED"


class ConflictError(OmnigraphError):
    """Nothing landed because something changed meanwhile; refresh and try again."""

    code = "OG-CONFLICT"


class PreconditionError(ConflictError):
    """Nothing landed because what the caller demanded does not hold; never retried."""

    code = "OG-PRECONDITION"
    expected: str
    actual: str | None


class OutcomeUnknownError(OmnigraphError):
    """The effect may or may not have landed; recovery decides, delete nothing."""

    code = "OG-OUTCOME-UNKNOWN"


class CorruptError(OmnigraphError):
    """Stored data breaks an invariant; nothing was rewritten."""

    code = "OG-CORRUPT"


class UnavailableError(OmnigraphError):
    """This machine or installation lacks something that the request needs."""

    code = "OG-UNAVAILABLE"
