"""The members of a stored JSON object, each read as what it must be.

A stored record may be damaged or forged. Every member is checked here, so that
no value of another shape is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from omnigraph.names import TableKey
from omnigraph.store.uri import is_clean_path

_SHOWN_MAX: Final = 60


class MemberError(ValueError):
    """A member is missing or is not what it must be."""

    def __init__(self, name: str, expected: str, found: object) -> None:
        self.name = name
        shown = repr(found)
        shown = shown if len(shown) <= _SHOWN_MAX else f"{shown[:_SHOWN_MAX]}…"
        super().__init__(f"member {name} is {shown}, expected {expected}")


class Members:
    """Reads the members of one object; `name` says in errors which object it is."""

    def __init__(self, form: object, name: str = "") -> None:
        if not isinstance(form, dict):
            raise MemberError(name, "an object", form)
        self.form: dict[str, Any] = form
        self._name = name

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text; without a default it must be there."""
        found = self.form.get(name, default)
        if not isinstance(found, str):
            raise self._error(name, "text", found)
        return found

    def optional_text(self, name: str) -> str | None:
        """Return a text, or None where there is none."""
        return None if self.form.get(name) is None else self.text(name)

    def number(self, name: str, default: int | None = None) -> int:
        """Return a whole number that is not negative."""
        found = self.form.get(name, default)
        if not isinstance(found, int) or isinstance(found, bool) or found < 0:
            raise self._error(name, "a whole number", found)
        return found

    def optional_number(self, name: str) -> int | None:
        """Return a whole number, or None where there is none."""
        return None if self.form.get(name) is None else self.number(name)

    def path(self, name: str) -> str:
        """Return the path of a dataset below the root."""
        found = self.text(name)
        if not is_clean_path(found):
            raise self._error(name, "the path of a dataset", found)
        return found

    def optional_path(self, name: str) -> str | None:
        """Return the name of a lineage, or None where there is none."""
        return None if self.form.get(name) is None else self.path(name)

    def table_key(self, name: str) -> TableKey:
        """Return the key of a table."""
        found = TableKey(self.text(name))
        if not found.is_valid:
            raise self._error(name, "the key of a table", found)
        return found

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts, empty where there is none."""
        found = self._list(name)
        if not all(isinstance(each, str) for each in found):
            raise self._error(name, "a list of texts", found)
        return tuple(found)

    def objects(self, name: str, *, is_required: bool = False) -> tuple[Members, ...]:
        """Return a list of objects, empty where there is none."""
        if is_required and name not in self.form:
            raise self._error(name, "a list", None)
        found = enumerate(self._list(name))
        return tuple(Members(each, f"{self._full(name)}[{place}]") for place, each in found)

    def inner(self, name: str) -> Members:
        """Return an object."""
        return Members(self.form.get(name), self._full(name))

    def optional_inner(self, name: str) -> Members | None:
        """Return an object, or None where there is none."""
        return None if self.form.get(name) is None else self.inner(name)

    def mapping(self, name: str) -> dict[str, Any]:
        """Return an object as it is."""
        return self.inner(name).form

    def optional_texts_by_name(self, name: str) -> Mapping[str, str]:
        """Return an object whose members are texts, empty where there is none."""
        found = {} if self.form.get(name) is None else self.mapping(name)
        if not all(isinstance(each, str) for each in found.values()):
            raise self._error(name, "an object of texts", found)
        return found

    def _list(self, name: str) -> list[Any]:
        found = self.form.get(name, [])
        if not isinstance(found, list):
            raise self._error(name, "a list", found)
        return found

    def _full(self, name: str) -> str:
        return f"{self._name}.{name}" if self._name else name

    def _error(self, name: str, expected: str, found: object) -> MemberError:
        return MemberError(self._full(name), expected, found)
