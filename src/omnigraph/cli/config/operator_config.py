"""The operator's own file: defaults, servers, clusters, profiles, aliases.

It is `config.yaml` in `$OMNIGRAPH_HOME`, else in `~/.omnigraph`. A missing file is an empty one.
Unknown keys are warned about and ignored; tokens never live here. A profile is checked when it is
used, so that one broken profile does not stop the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypeVar, cast

from omnigraph.cli.output.formats import (
    CELL_LAYOUTS,
    COLUMN_WIDTH_DEFAULT,
    READ_FORMATS,
    CellLayout,
    ReadFormat,
)
from omnigraph.dataclass import dataclass
from omnigraph.errors import InvalidInputError

ScopeKind: TypeAlias = Literal["server", "cluster", "store"]
SCOPE_KINDS: Final[tuple[ScopeKind, ...]] = ("server", "cluster", "store")


_KNOWN: Final = {
    "operator": {"actor"},
    "defaults": {
        "output",
        "table_max_column_width",
        "table_cell_layout",
        "server",
        "store",
        "default_graph",
    },
    "servers": {"url"},
    "clusters": {"root"},
    "profiles": {"server", "cluster", "store", "default_graph"},
    "aliases": {"server", "query", "graph", "args", "params", "format"},
}
"""The known keys of each section, or of what the keys of the section name."""

_OF_NAMES: Final = ("servers", "clusters", "profiles", "aliases")
"""Sections whose keys are names."""

_Section: TypeAlias = Mapping[str, object]
_T = TypeVar("_T", bound=str)


class OperatorConfigError(InvalidInputError):
    """The operator's file cannot be used."""

    code = "OG-OPERATOR-CONFIG"
    hint = "fix the file, or name another directory with OMNIGRAPH_HOME"
    template = "{path}: {problem}"
    path: Path
    problem: str


class UnknownProfileError(InvalidInputError):
    """There is no profile of this name."""

    code = "OG-PROFILE"
    hint = "see `omnigraph profile list`"
    name: str
    known: tuple[str, ...]

    def _message(self) -> str:
        return f"unknown profile '{self.name}' (defined: {', '.join(self.known) or 'none'})"


class InvalidProfileError(InvalidInputError):
    """A profile names no address, or more than one."""

    code = "OG-PROFILE"
    hint = "give it exactly one of server, cluster and store in config.yaml"
    template = "profile '{name}' is invalid: {problem}"
    name: str
    problem: str


@dataclass(frozen=True)
class Profile:
    """A named address: where, and which graph there."""

    name: str
    kind: ScopeKind
    target: str
    default_graph: str | None = None


@dataclass(frozen=True)
class OperatorConfig:
    """What the operator has set."""

    path: Path
    actor: str | None = None
    output: ReadFormat | None = None
    column_width_max: int = COLUMN_WIDTH_DEFAULT
    cell_layout: CellLayout = CELL_LAYOUTS[0]
    default_server: str | None = None
    default_store: str | None = None
    default_graph: str | None = None
    servers: Mapping[str, str] = field(default_factory=dict)
    clusters: Mapping[str, str] = field(default_factory=dict)
    profiles: Mapping[str, object] = field(default_factory=dict)
    """As they stand in the file: `profile` reads one."""
    aliases: Mapping[str, object] = field(default_factory=dict)

    def profile(self, name: str) -> Profile:
        """Return one profile, checked."""
        if name not in self.profiles:
            raise UnknownProfileError(name, tuple(sorted(self.profiles)))
        found = self.profiles[name]
        if not isinstance(found, dict):
            raise InvalidProfileError(name, "it is not a mapping")
        section = cast("_Section", found)
        given = [kind for kind in SCOPE_KINDS if section.get(kind) is not None]
        if len(given) != 1:
            listed = ", ".join(given) or "none"
            raise InvalidProfileError(
                name, f"it needs exactly one of server, cluster and store, and has {listed}"
            )
        target, graph = section[given[0]], section.get("default_graph")
        if not isinstance(target, str) or not isinstance(graph, str | None):
            raise InvalidProfileError(name, "its values must be text")
        return Profile(name, given[0], target, graph)


def operator_home() -> Path:
    """Return the directory of the operator's files."""
    named = os.environ.get("OMNIGRAPH_HOME")
    return Path(named).expanduser() if named else Path.home() / ".omnigraph"


def read_operator_config(warn: Callable[[str], None]) -> OperatorConfig:
    """Read the operator's file; `warn` is called for unknown keys."""
    path = operator_home() / "config.yaml"
    sections = _sections(path)
    _warn_of_unknown(sections, warn)
    operator, defaults = sections["operator"], sections["defaults"]
    config = OperatorConfig(
        path=path,
        actor=_text(path, operator, "operator.actor"),
        output=_choice(path, defaults, "defaults.output", READ_FORMATS),
        column_width_max=_width(path, defaults),
        cell_layout=_choice(path, defaults, "defaults.table_cell_layout", CELL_LAYOUTS)
        or CELL_LAYOUTS[0],
        default_server=_text(path, defaults, "defaults.server"),
        default_store=_text(path, defaults, "defaults.store"),
        default_graph=_text(path, defaults, "defaults.default_graph"),
        servers=_addresses(path, sections, "servers", "url"),
        clusters=_addresses(path, sections, "clusters", "root"),
        profiles=sections["profiles"],
        aliases=sections["aliases"],
    )
    if config.default_store and (config.default_server or config.default_graph):
        raise OperatorConfigError(
            path, "defaults.store excludes defaults.server and defaults.default_graph"
        )
    return config


def _sections(path: Path) -> dict[str, _Section]:
    empty: dict[str, _Section] = {name: {} for name in _KNOWN}
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return empty
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorConfigError(path, f"it cannot be read ({error})") from None
    import yaml  # noqa: PLC0415 - slow, and most runs have no such file

    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise OperatorConfigError(path, f"it is not YAML ({error})") from None
    except RecursionError:
        raise OperatorConfigError(path, "it nests too deep") from None
    if found is None:
        return empty
    if not isinstance(found, dict):
        raise OperatorConfigError(path, "it must be a mapping of sections")
    for name, section in found.items():
        if section is not None and name in _KNOWN and not isinstance(section, dict):
            raise OperatorConfigError(path, f"{name} must be a mapping")
        empty[str(name)] = section or {}
    return empty


def _warn_of_unknown(sections: Mapping[str, _Section], warn: Callable[[str], None]) -> None:
    for name, section in sections.items():
        for dotted in _unknown_in(name, section):
            warn(f"unknown key {dotted} in the operator configuration is ignored")


def _unknown_in(name: str, section: _Section) -> Iterator[str]:
    if name not in _KNOWN:
        yield name
        return
    parts: _Section = {name: section}
    if name in _OF_NAMES:
        parts = {f"{name}.{key}": value for key, value in section.items()}
    for dotted, part in parts.items():
        if isinstance(part, dict):
            yield from (f"{dotted}.{key}" for key in part if key not in _KNOWN[name])


def _text(path: Path, section: _Section, dotted: str) -> str | None:
    value = section.get(dotted.rpartition(".")[2])
    if value is None or isinstance(value, str):
        return value
    raise OperatorConfigError(path, f"{dotted} must be text")


def _choice(path: Path, section: _Section, dotted: str, known: tuple[_T, ...]) -> _T | None:
    value = _text(path, section, dotted)
    found = next((one for one in known if one == value), None)
    if value is not None and found is None:
        raise OperatorConfigError(path, f"{dotted} is '{value}': expected {', '.join(known)}")
    return found


def _width(path: Path, defaults: _Section) -> int:
    value = defaults.get("table_max_column_width")
    if value is None:
        return COLUMN_WIDTH_DEFAULT
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise OperatorConfigError(path, "defaults.table_max_column_width must be a positive number")
    return value


def _addresses(path: Path, sections: Mapping[str, _Section], name: str, key: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry, section in sections[name].items():
        value = section.get(key) if isinstance(section, dict) else None
        if not isinstance(value, str) or not value:
            raise OperatorConfigError(path, f"{name}.{entry}.{key} is required")
        found[str(entry)] = value
    return found
