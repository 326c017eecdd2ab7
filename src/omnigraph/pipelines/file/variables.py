"""`${NAME}` and `${NAME:-default}` in the texts of a pipeline file; `$${` stands for `${`.

A value that comes from the environment may be a secret. It is known here by its name, and
`Variables.hide` puts the name back into every text that is shown or stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from omnigraph.pipelines.diagnostics import Findings
from omnigraph.strict_yaml import Value, path_below, path_of_item

_VARIABLE: Final = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{")
_SECRET_NAME: Final = re.compile("(?i)secret|token|passw|pwd|key|credential|auth|sig")
_HIDDEN_LENGTH_MIN: Final = 3
"""Shorter values would be found in texts that have nothing to do with them."""


def _is_secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None


@dataclass
class Variables:
    """The variables of one file, and what the environment gave for them."""

    environment: Mapping[str, str]
    given: dict[str, str] = field(default_factory=dict)
    """Names by the values that the environment has."""

    def hide(self, text: str) -> str:
        """Return a text with the names of variables in place of their values.

        >>> variables = Variables({"PW": "s3cret"})
        >>> variables.fill("${PW}", "", Findings()), variables.hide("password=s3cret")
        ('s3cret', 'password=${PW}')
        """
        return self._without(self.given, text)

    def hide_secrets(self, text: str) -> str:
        """Return a text with the names of those variables whose names say that they are secrets.

        >>> variables = Variables({"GIT_SHA": "abc123", "API_KEY": "xyz789"})
        >>> filled = variables.fill("${GIT_SHA} ${API_KEY}", "", Findings())
        >>> variables.hide_secrets(str(filled))
        'abc123 ${API_KEY}'
        """
        return self._without((v for v, name in self.given.items() if _is_secret(name)), text)

    def _without(self, values: Iterable[str], text: str) -> str:
        # A value may be a part of another one: what is left of that would be a part of a secret.
        for value in sorted(values, key=len, reverse=True):
            text = text.replace(value, f"${{{self.given[value]}}}")
        return text

    def fill(self, value: Value, path: str, findings: Findings) -> Value:
        """Return a value with its variables replaced; keys are left as they are."""
        if isinstance(value, str):
            return _VARIABLE.sub(lambda found: self._one(found, path, findings), value)
        if isinstance(value, list):
            return [
                self.fill(item, path_of_item(path, index), findings)
                for index, item in enumerate(value)
            ]
        if isinstance(value, dict):
            return {
                key: self.fill(inner, path_below(path, key), findings)
                for key, inner in value.items()
            }
        return value

    def _one(self, found: re.Match[str], path: str, findings: Findings) -> str:
        name, default = found[1], found[2]
        if found[0] == "$${":
            return "${"
        if name is None:
            findings.error("bad_variable", path, "'${' begins no variable: expected '${NAME}'")
            return found[0]
        value = self.environment.get(name)
        if value is not None:
            if len(value) >= _HIDDEN_LENGTH_MIN and not _is_secret(self.given.get(value, "")):
                self.given[value] = name
            return value
        if default is None:
            message = (
                f"the environment has no variable {name}; '${{{name}:-default}}' gives a default"
            )
            findings.error("unknown_variable", path, message)
            return found[0]
        return str(default)
