"""What each command works on, and so which address it accepts.

One table: command, class, accepted scope flags. A flag that a command does not accept is refused
before anything else is read.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from omnigraph.dataclass import dataclass
from omnigraph.errors import InvalidInputError

SCOPE_FLAGS: Final = ("server", "cluster", "graph", "store", "as", "profile")
"""The flags that name an address and an actor, in the order of their check."""


class Capability(StrEnum):
    """A class of commands, by the phrase that messages use."""

    DATA = "data"
    SERVED = "served"
    DIRECT = "direct (storage-native)"
    CONTROL = "cluster control"
    LOCAL = "local"


@dataclass(frozen=True)
class Rule:
    """What one command accepts; `remedy` ends the refusal of another flag."""

    capability: Capability
    flags: frozenset[str]
    remedy: str = ""


_READ = frozenset({"server", "graph", "store", "profile"})
_ANY = _READ | {"as"}
_UPKEEP = frozenset({"cluster", "graph", "store", "profile"})
_STORE = frozenset({"store", "profile"})
_CONTROL = frozenset({"cluster", "graph", "profile"})
_NONE: frozenset[str] = frozenset()

_A_URI = "give a storage URI"
_A_URI_OR_CLUSTER = "give a storage URI, or `--cluster <dir> --graph <id>`"
_A_CONFIG = "give `--config <dir>`"
_NO_GRAPH = "it addresses no graph"

_READS = Rule(Capability.DATA, _READ)
_WRITES = Rule(Capability.DATA, _ANY)
_LOCAL = Rule(Capability.LOCAL, _NONE, _NO_GRAPH)

RULES: Final[dict[str, Rule]] = {
    "branch": _WRITES,
    "blob": _READS,
    "changes": _READS,
    "commit": _READS,
    "commit revert": _WRITES,
    "diff": _WRITES,
    "export": _WRITES,
    "ingest": _WRITES,
    "lineage": _READS,
    "load": _WRITES,
    "log": _WRITES,
    "mutate": _WRITES,
    "query": _READS,
    "schema apply": _WRITES,
    "schema check": _LOCAL,
    "schema diff": _WRITES,
    "schema show": _WRITES,
    "snapshot": _WRITES,
    "tag": _WRITES,
    "graphs list": Rule(
        Capability.SERVED,
        frozenset({"server", "profile"}),
        "give `--server <name|url>` or `--profile <name>`",
    ),
    "cleanup": Rule(Capability.DIRECT, _UPKEEP, _A_URI_OR_CLUSTER),
    "check": Rule(Capability.DIRECT, _UPKEEP, _A_URI_OR_CLUSTER),
    "optimize": Rule(Capability.DIRECT, _UPKEEP, _A_URI_OR_CLUSTER),
    "repair": Rule(Capability.DIRECT, _UPKEEP, _A_URI_OR_CLUSTER),
    "sql": Rule(Capability.DIRECT, _STORE, _A_URI),
    "lint": Rule(Capability.DIRECT, _UPKEEP, _A_URI),
    "init": Rule(Capability.DIRECT, _NONE, _A_URI),
    "recovery": Rule(Capability.DIRECT, _STORE, _A_URI),
    "schema plan": Rule(Capability.DIRECT, _STORE, _A_URI),
    "pipeline": Rule(Capability.DIRECT, _STORE | {"as", "cluster"}, _A_URI_OR_CLUSTER),
    "cluster": Rule(Capability.CONTROL, _NONE, _A_CONFIG),
    "cluster apply": Rule(Capability.CONTROL, frozenset({"as"}), _A_CONFIG),
    "cluster approve": Rule(Capability.CONTROL, frozenset({"as"}), _A_CONFIG),
    "policy": Rule(Capability.CONTROL, _CONTROL, "give `--cluster <dir|uri>`"),
    "queries list": Rule(
        Capability.CONTROL,
        _CONTROL | {"server"},
        "give `--server <name|url>` or `--profile <name>`",
    ),
    "queries": Rule(Capability.CONTROL, _CONTROL, "give `--cluster <dir|uri>`"),
    "alias": _LOCAL,
    "demo": _LOCAL,
    "doctor": Rule(Capability.LOCAL, _STORE, _A_URI),
    "embed": Rule(Capability.LOCAL, _STORE | {"as"}, _NO_GRAPH),
    "login": _LOCAL,
    "logout": _LOCAL,
    "mcp": Rule(Capability.LOCAL, _READ, _NO_GRAPH),
    "profile": _LOCAL,
    "serve": Rule(
        Capability.LOCAL,
        frozenset({"cluster", "store"}),
        "give `--cluster <dir|uri>` or `--store <uri>`",
    ),
    "shell": Rule(Capability.LOCAL, _ANY, _NO_GRAPH),
    "test": _LOCAL,
    "version": _LOCAL,
}
"""By the longest prefix of the command's words."""

_TWO_WORDS: Final = frozenset({"schema", "queries", "blob", "changes", "graphs"})


class FlagDoesNotApplyError(InvalidInputError):
    """A command was given an address of a kind that it cannot use."""

    code = "OG-FLAG"
    hint = "leave out --{flag}"
    command: str
    capability: str
    flag: str
    remedy: str

    def _message(self) -> str:
        what = f"`{self.command}` is a {self.capability} command and --{self.flag} does not apply"
        return f"{what}: {self.remedy}" if self.remedy else what


class AliasOwnsAddressError(InvalidInputError):
    """An alias was given an address, which its binding has already."""

    code = "OG-FLAG"
    flags: tuple[str, ...]

    def _message(self) -> str:
        return (
            f"`alias` is a {Capability.LOCAL} command and {self._shown} does not apply:"
            " its binding owns the address"
        )

    def _hint(self) -> str:
        return f"leave out {self._shown}"

    @property
    def _shown(self) -> str:
        return ", ".join(f"--{flag}" for flag in self.flags)


def rule_of(words: tuple[str, ...]) -> Rule | None:
    """Return the rule of a command, given by its words.

    >>> rule_of(("schema", "plan")).capability
    <Capability.DIRECT: 'direct (storage-native)'>
    """
    for length in range(len(words), 0, -1):
        found = RULES.get(" ".join(words[:length]))
        if found is not None:
            return found
    return None


def require_applicable(words: tuple[str, ...], given: frozenset[str]) -> None:
    """Refuse the first flag that a command does not accept."""
    rule = rule_of(words)
    if rule is None:
        return
    for flag in SCOPE_FLAGS:
        if flag in given and flag not in rule.flags:
            shown = " ".join(words[:2] if words[0] in _TWO_WORDS else words[:1])
            raise FlagDoesNotApplyError(shown, str(rule.capability), flag, rule.remedy)
