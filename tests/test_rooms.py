"""A room imports only what the table of rooms allows."""

from __future__ import annotations

import ast
from pathlib import Path

from rooms import LIBRARY_HOMES, ROOMS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "omnigraph"

ALLOWED = {room.name: {room.name, *room.may_import} for room in ROOMS}


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def offences() -> list[str]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        room = room_of(path)
        if room in ("__init__", "__main__"):
            continue
        where = path.relative_to(ROOT)
        if room not in ALLOWED:
            found.append(f"{where}: '{room}' is not in the table of rooms")
            continue
        for name in sorted(imports_of(path)):
            top, _, rest = name.partition(".")
            target = rest.partition(".")[0]
            if top == "omnigraph" and target not in ALLOWED[room]:
                found.append(f"{where}: {room} -> {target}")
            elif LIBRARY_HOMES.get(top, room) != room:
                found.append(f"{where}: {room} -> library {top}")
    return found


def test_a_room_imports_only_rooms_that_the_table_allows() -> None:
    assert offences() == []


def test_the_table_has_no_cycle() -> None:
    order = {room.name: index for index, room in enumerate(ROOMS)}
    late = [
        f"{room.name} -> {other}"
        for room in ROOMS
        for other in room.may_import
        if order[other] > order[room.name]
    ]
    assert late == []
