"""The same hint for two readers: on the command line in its words, in Python in Python's.

Hints are written once, in the words of the command line. What a traceback shows has the calls of
Python in their place.
"""

from __future__ import annotations

import re
from typing import Final

CALLS: Final[dict[str, str]] = {
    "blob": "graph.blob(...)",
    "branch conflicts": "graph.branches.conflicts(source, target)",
    "branch list": "graph.branches.list()",
    "branch merge": "graph.branches.merge(source, target)",
    "changes baseline": "graph.changes.baseline(...)",
    "cleanup": "graph.maintenance.cleanup(keep_versions=10)",
    "commit list": "graph.commits.list()",
    "diff": "graph.changes.between(before, after)",
    "doctor": "graph.maintenance.examine()",
    "doctor --scrub": "graph.maintenance.scrub()",
    "doctor --scrub --adopt": "graph.maintenance.scrub(adopt=True)",
    "embed": "graph.embed()",
    "export": "graph.export(...)",
    "init": "Graph.init(uri, schema)",
    "load": "graph.load(data, mode='merge')",
    "load --help": "help(Graph.load)",
    "log": "graph.commits.list()",
    "mutate": "graph.mutate(text)",
    "query": "graph.query(text)",
    "recovery list": "graph.recovery.list()",
    "recovery quarantine": "graph.recovery.quarantine(operation_id)",
    "recovery status": "graph.recovery.status()",
    "repair": "graph.maintenance.repair()",
    "repair --force --confirm": "graph.maintenance.repair(force=True, confirm=True)",
    "schema apply": "graph.schema.apply(text)",
    "schema plan": "graph.schema.plan(text)",
    "schema show": "graph.schema.source()",
    "snapshot": "graph.snapshot()",
    "tag delete": "graph.tags.delete(name)",
    "tag list": "graph.tags.list()",
}
"""What does in Python what a command does; of several that fit, the longest."""

COMMAND_ONLY: Final = ("cluster", "pipeline", "login", "serve")
"""First words of commands that have no call in Python: a hint names them as they are."""

MERGE_CHOICES: Final[dict[str, str]] = {
    "--allow-data-loss": "allow_data_loss=True",
    "--prefer": "prefer=",
    "--schema": "schema=",
}
"""What an option of `branch merge` is called in Python: without it the same merge fails again."""

ARGUMENTS: Final[dict[str, str]] = {
    "--allow-data-loss": "allow_data_loss=True",
    "--as": "actor_id=",
    "--data": "data=sys.stdin.buffer",
    "--edge": "data={'EDGE': rows}",
    "--engine": "engine=",
    "--external-blob-base": "external_blob_bases=[...]",
    "--force": "force=True",
    "--format": "format=",
    "--map": "map",
    "--node": "data={'TYPE': rows}",
    "--on-duplicate": "on_duplicate=",
    "--on-error": "on_error=",
    "--schema-changes": "schema_changes=",
    "--spark-master": "spark=get_spark()",
    "--start": "start=",
    "--to": "to=",
}
"""What an option of a command is called in Python."""

_QUOTED: Final = re.compile(r"`(?P<text>[^`]+)`")


def in_python(hint: str) -> str:
    """Return a hint with Python's calls in place of commands and options.

    >>> in_python("try again; `omnigraph recovery status` shows who is writing")
    'try again; `graph.recovery.status()` shows who is writing'
    >>> in_python("`--engine local` runs in this process")
    "`engine='local'` runs in this process"
    >>> in_python("`omnigraph branch merge draft --into main --prefer source` settles them")
    "`graph.branches.merge('draft', 'main', prefer='source')` settles them"
    """
    return _QUOTED.sub(lambda found: f"`{_call(found['text'])}`", hint)


def _call(text: str) -> str:
    program, _, rest = text.partition(" ")
    if program == "omnigraph":
        return _of_command(rest.split()) or text
    name = ARGUMENTS.get(program)
    if name is None:
        return text
    return f"{name}{rest.lower()!r}" if rest and name.endswith("=") else name


def _of_command(words: list[str]) -> str | None:
    for count in range(len(words), 0, -1):
        if call := CALLS.get(" ".join(words[:count])):
            return _of_merge(call, words[count:]) if "--into" in words else call
    return None


def _of_merge(call: str, words: list[str]) -> str:
    """Put the two branches of a merge, and the choice that settles it, into a call."""
    source, _, target, *options = words
    if source == "SOURCE":
        return call
    arguments = [repr(source), repr(target)]
    for place, option in enumerate(options):
        if name := MERGE_CHOICES.get(option):
            arguments.append(f"{name}{options[place + 1]!r}" if name.endswith("=") else name)
    return f"{call.partition('(')[0]}({', '.join(arguments)})"
