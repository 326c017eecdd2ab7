"""Runs the cases of `tests/cases/http`: requests in order, and their answers.

A request is a line `METHOD PATH`, then headers, then a body; a blank line ends it. `~` at the start
of a path is the path of the graph. A body without a `Content-Type` is JSON; `Content-Type: -` sends
none. A line `! ACTION` does something behind the server's back (`ACTIONS`).

What differs from run to run has a name, the same wherever the value appears in a case: `ID1` (a
commit), `TAG1`, `TOKEN1` (a cursor or a page token), `TYPE1`; also `TIME`, `URI`, `VERSION`. A
request uses the names of the answers before it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx2

from omnigraph.graph import Graph
from support.cases import Case
from support.http_graph import GRAPH_ID, Rule, Setup, TestServer
from support.lineage import without_lineage
from support.openapi import check_answer

JSON: Final = "application/json"
WIDTH: Final = 100
_HEADER: Final = re.compile(r"([A-Za-z][A-Za-z-]*): ?(.*)\Z")
_QUIET: Final = frozenset(
    {
        "x-content-type-options",
        "referrer-policy",
        "cross-origin-opener-policy",
        "cross-origin-resource-policy",
        "x-request-id",
    }
)
"""Headers of every answer; that they are there is checked, and not shown."""
_VOLATILE: Final = (
    (re.compile(r"\b[A-Za-z0-9_-]{80,}"), "TOKEN"),
    (re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b"), "ID"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "TAG"),
    (re.compile(r"(?<=/)[0-9a-f]{16}\b|^[A-Za-z0-9_-]{43}\Z"), "TYPE"),
)
_TIMES: Final = frozenset({"created_at", "authored_at", "seconds", "bytes_written"})
_NAME: Final = re.compile(r"\b(?:ID|TAG|TOKEN|TYPE)\d+\b")


@dataclass(frozen=True)
class Request:
    """One request of a case."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: str | None


class Names:
    """The names of what differs from run to run."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._by_value: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def hide(self, text: str) -> str:
        """Replace values by names."""
        text = text.replace(self._uri, "URI")
        for pattern, kind in _VOLATILE:
            text = pattern.sub(lambda found, kind=kind: self._name(found[0], kind), text)
        return text

    def hide_in(self, value: Any, key: str = "") -> Any:
        """Replace the values inside of JSON."""
        if key in _TIMES:
            return "TIME"
        if isinstance(value, dict):
            return {
                name: self.hide_in(each, name)
                for name, each in _plain(value).items()
                if (name, each) != ("properties", {})
            }
        if isinstance(value, list):
            return [self.hide_in(each) for each in value]
        if key == "version" and value == version("omnigraph"):
            return "VERSION"
        return self.hide(value) if isinstance(value, str) else value

    def _name(self, value: str, kind: str) -> str:
        if value not in self._by_value:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._by_value[value] = f"{kind}{self._counts[kind]}"
        return self._by_value[value]

    def fill_in(self, text: str) -> str:
        """Replace names by values."""
        values = {name: value for value, name in self._by_value.items()}
        return _NAME.sub(lambda found: values[found[0]], text)


def _plain(shape: dict[str, Any]) -> dict[str, Any]:
    """Return a value without the lineage of commits, which has tests of its own."""
    found = shape.get("properties")
    if not isinstance(found, dict) or "omnigraph_version" not in found:
        return shape
    return {**shape, "properties": without_lineage(found)}


def requests_of(text: str) -> list[Request | str]:
    """Return the requests and actions of a section."""
    found: list[Request | str] = []
    for block in re.split(r"\n\s*\n", text.strip()):
        first, *rest = block.split("\n")
        if first.startswith("! "):
            found.append(first[2:])
            continue
        method, path = first.split(" ", 1)
        headers = []
        while rest and (header := _HEADER.match(rest[0])):
            headers.append((header[1], header[2]))
            rest.pop(0)
        found.append(Request(method, path, tuple(headers), "\n".join(rest) if rest else None))
    return found


def setup_of(case: Case, folder: Path) -> Setup:
    """Return the server that a case asks for."""
    facts: dict[str, Any] = {}
    rules: list[Rule] = []
    for line in case.sections.get("server", "").splitlines():
        word, *rest = line.split()
        if word == "tokens":
            facts["tokens"] = dict(pair.split("=") for pair in rest)
        elif word == "allow":
            rules.append(Rule(rest[0], rest[1], **dict(pair.split("=") for pair in rest[2:])))
        elif word == "limits":
            facts |= {name: int(value) for name, value in (pair.split("=") for pair in rest)}
        elif word == "cluster":
            facts["is_in_cluster"] = True
        elif word == "cors":
            facts["cors"] = frozenset(rest)
        else:
            raise ValueError(f"no such setting: {line}")
    if "queries" in case.sections:
        path = folder / "stored.gq"
        path.write_text(case.sections["queries"], encoding="utf-8")
        facts["queries"] = path
    return Setup(rules=tuple(rules), **facts)


# -- running --------------------------------------------------------------------------------------


def run_case(case: Case, graph: Graph, folder: Path) -> str:
    """Return the requests of a case with their answers."""
    server = TestServer(graph, setup_of(case, folder))
    try:
        return asyncio.run(_run(case, server))
    finally:
        server.close()


async def _run(case: Case, server: TestServer) -> str:
    names = Names(server.graph.uri)
    lines: list[str] = []
    async with server.client() as client:
        for step in requests_of(case.sections["requests"]):
            if isinstance(step, str):
                await asyncio.to_thread(ACTIONS[step], server)
                lines += [f"! {step}", ""]
                continue
            answer = await _send(client, step, names)
            lines += [f"> {step.method} {step.path}", *_shown(answer, names), ""]
    return "\n".join(lines)


async def _send(client: httpx2.AsyncClient, step: Request, names: Names) -> httpx2.Response:
    path = step.path.replace("~", f"/graphs/{GRAPH_ID}", 1) if step.path[0] == "~" else step.path
    path = _enlarged(path)
    path = _NAME.sub(lambda found: quote(names.fill_in(found[0]), safe=""), path)
    headers = [(name, names.fill_in(value)) for name, value in step.headers if value != "-"]
    body = None if step.body is None else _bytes(names.fill_in(step.body))
    if body is not None and not any(name.lower() == "content-type" for name, _ in step.headers):
        headers.append(("Content-Type", JSON))
    answer = await client.request(step.method, path, headers=headers, content=body)
    _check(step.method, answer)
    return answer


def _bytes(text: str) -> bytes:
    """Return a body; `\\xNN` stands for a byte, `LARGE(n)` for so many letters."""
    parts = re.split(r"\\x([0-9a-f]{2})", _enlarged(text))
    return b"".join(
        bytes([int(part, 16)]) if at % 2 else part.encode() for at, part in enumerate(parts)
    )


def _enlarged(text: str) -> str:
    return re.sub(r"LARGE\((\d+)\)", lambda found: "x" * int(found[1]), text)


def _check(method: str, answer: httpx2.Response) -> None:
    assert set(answer.headers) >= _QUIET
    kind = answer.headers.get("content-type", "")
    if method == "HEAD":
        assert answer.content == b""
    body = answer.json() if kind == JSON and answer.content else None
    raw_path = answer.request.url.raw_path.partition(b"?")[0]
    check_answer(method, raw_path, answer.status_code, kind, body)


def _shown(answer: httpx2.Response, names: Names) -> list[str]:
    kind = answer.headers.get("content-type")
    hidden = set(_QUIET)
    if kind == JSON:
        # The length depends on where the graph lies.
        hidden |= {"content-type", "content-length"}
    lines = [str(answer.status_code)]
    lines += [
        names.hide(f"{name.title()}: {value}")
        for name, value in answer.headers.multi_items()
        if name not in hidden
    ]
    if not answer.content:
        return lines
    if kind == JSON:
        return [*lines, *laid_out(names.hide_in(answer.json())).split("\n")]
    text = answer.content.decode("utf-8", "replace")
    is_text = all(letter.isprintable() or letter == "\n" for letter in text)
    shown = names.hide(text.rstrip("\n")) if is_text else f"bytes {answer.content.hex()}"
    return [*lines, *shown.split("\n")]


def laid_out(value: Any, indent: int = 0) -> str:
    """Return JSON on one line where it fits, else one member per line."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) + indent <= WIDTH or not isinstance(value, (dict, list)) or not value:
        return flat
    space = " " * (indent + 2)
    if isinstance(value, dict):
        members = [
            f"{space}{json.dumps(key, ensure_ascii=False)}: {laid_out(each, indent + 2)}"
            for key, each in value.items()
        ]
        return "{\n" + ",\n".join(members) + "\n" + " " * indent + "}"
    members = [f"{space}{laid_out(each, indent + 2)}" for each in value]
    return "[\n" + ",\n".join(members) + "\n" + " " * indent + "]"


# -- behind the server's back ---------------------------------------------------------------------


def _open_export(server: TestServer) -> None:
    assert server.served.export_slot.acquire()


def _close_export(server: TestServer) -> None:
    server.served.export_slot.release()


def _reclaim(server: TestServer) -> None:
    server.graph.maintenance.cleanup(keep_versions=1, orphan_age_s=0, confirm=True)


ACTIONS: Final[dict[str, Callable[[TestServer], None]]] = {
    "an export is open": _open_export,
    "the export is closed": _close_export,
    "history is reclaimed": _reclaim,
}


def ids(cases: Sequence[Case]) -> list[str]:
    return [f"{case.path.stem}: {case.name}" for case in cases]
