"""In which order views are made, and which tables each of them reads.

Names of tables are found in the text of a view: those after FROM and JOIN, after a comma of a FROM
clause, and after a TABLE that begins a query, that are no names of a WITH clause. FROM counts only
where rows are selected, so the FROM of `extract(year FROM day)` and of `IS DISTINCT FROM` does not.
Whether the text is SQL at all is for Spark to say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Final

from omnigraph.pipelines.diagnostics import Findings

_WORD: Final = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|`(?:[^`]|``)*`"
    r"|[A-Za-z_][A-Za-z0-9_]*|\d+|[(),.;]|\S",
    re.DOTALL,
)
QUERY_WORDS: Final = ("select", "with", "values", "from", "table", "(")
"""How a text begins that only reads."""
_ENDS_FROM: Final = frozenset(
    {"where", "group", "having", "order", "limit", "union", "except", "intersect", "select"}
    | {"window", "lateral", "qualify", "sort", "cluster", "distribute", "minus", "offset"}
)
_BEFORE_QUERY: Final = frozenset({"union", "all", "distinct", "except", "intersect", "minus", ")"})


@dataclass
class _Level:
    """What is known between two parentheses."""

    selects: bool = False
    in_from: bool = False
    is_first: bool = True


@dataclass
class _Scan:
    """One pass over the words of a text."""

    words: list[str]
    read: set[str] = field(default_factory=set)
    local: set[str] = field(default_factory=set)
    """Names of a WITH clause."""
    levels: list[_Level] = field(default_factory=lambda: [_Level()])
    expects: bool = False
    """Whether the next name is that of a table."""

    def run(self) -> frozenset[str]:
        for index, word in enumerate(self.words):
            level = self.levels[-1]
            if word in ("(", ")"):
                self._parenthesis(word)
            elif self.expects and word not in ("lateral", "table"):
                self._table(index, word)
            else:
                self._word(index, word, level)
            level.is_first = False
        return frozenset(self.read - self.local)

    def _parenthesis(self, mark: str) -> None:
        self.expects = False
        if mark == "(":
            self.levels.append(_Level())
        elif len(self.levels) > 1:
            self.levels.pop()

    def _table(self, index: int, word: str) -> None:
        """Take the name of a table; before a dot it is that of a catalog, before `(` a function."""
        if self._after(index) not in (".", "("):
            self.read.add(word[1:-1].replace("``", "`") if word.startswith("`") else word)
        self.expects = False

    def _word(self, index: int, word: str, level: _Level) -> None:
        if word == "from":
            before = self.words[index - 1] if index else ""
            self.expects = (level.selects or level.is_first) and before != "distinct"
            level.in_from = level.in_from or self.expects
        elif self._precedes_table(index, word, level):
            self.expects = True
        elif word in _ENDS_FROM:
            level.in_from = False
            level.selects = level.selects or word == "select"
        elif self._after(index) == "as" and self._after(index + 1) == "(":
            self.local.add(word)

    def _precedes_table(self, index: int, word: str, level: _Level) -> bool:
        if word == "table":
            # At the beginning of a query, `TABLE x` is short for `SELECT * FROM x`.
            return level.is_first or self.words[index - 1] in _BEFORE_QUERY
        return word == "join" or (word == "," and level.in_from)

    def _after(self, index: int) -> str:
        return self.words[index + 1] if index + 1 < len(self.words) else ""


def first_word(sql: str) -> str:
    r"""Return the first word of a text that is no comment, in lower case.

    >>> first_word("-- all\nSELECT 1")
    'select'
    """
    return next(iter(_words(sql)), "")


def _words(sql: str) -> list[str]:
    words = [word.lower() for word in _WORD.findall(sql)]
    return [word for word in words if not word.startswith(("--", "/*"))]


def tables_read(sql: str) -> frozenset[str]:
    """Return the names of tables that a text reads, in lower case.

    >>> sorted(tables_read("WITH a AS (SELECT * FROM x) SELECT * FROM a, y JOIN `z` ON 1 = 1"))
    ['x', 'y', 'z']
    >>> sorted(tables_read("SELECT extract(year FROM day), 'FROM b' FROM c"))
    ['c']
    >>> sorted(tables_read("TABLE a UNION ALL (TABLE b)"))
    ['a', 'b']
    """
    return _Scan(_words(sql)).run()


def check_views(views: Mapping[str, str], findings: Findings) -> dict[str, str]:
    """Return the views in an order in which each reads only earlier ones; report a cycle.

    The order of the file is kept as far as that allows.
    """
    by_lower = {name.lower(): name for name in views}
    needs = {
        name: sorted(by_lower[read] for read in tables_read(text) & by_lower.keys())
        for name, text in views.items()
    }
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        cycle = list(reversed(error.args[1]))
        start = cycle.index(min(cycle))
        circle = [*cycle[start:-1], *cycle[:start], cycle[start]]
        message = f"views read each other in a circle: {' → '.join(circle)}"
        findings.error("cycle", f"views.{circle[0]}", message, at_key=True)
        return dict(views)
    done: dict[str, str] = {}

    def add(name: str) -> None:
        for needed in needs[name]:
            if needed not in done:
                add(needed)
        done[name] = views[name]

    for name in views:
        if name not in done:
            add(name)
    return done


def sources_of(name: str, sources: Mapping[str, object], views: Mapping[str, str]) -> set[str]:
    """Return the sources that a table reads, itself or through views without a cycle.

    >>> sorted(sources_of("v", {"a": 1, "b": 2}, {"v": "FROM w, B", "w": "FROM a"}))
    ['a', 'b']
    """
    if name in sources:
        return {name}
    by_lower = {each.lower(): each for each in (*sources, *views)}
    read = [by_lower[table] for table in tables_read(views.get(name, "")) if table in by_lower]
    return {found for table in read for found in sources_of(table, sources, views)}
