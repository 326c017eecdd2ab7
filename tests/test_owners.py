"""Who looks after what: one file says it, the forge and the documentation agree with it."""

from __future__ import annotations

import fnmatch

import write_owners
import yaml
from rooms import ROOMS

from support.pages import ROOT

PACKAGE = "/src/omnigraph/"


def is_there(pattern: str) -> bool:
    path = ROOT / pattern.strip("/")
    return pattern == "*" or (path.is_dir() if pattern.endswith("/") else path.is_file())


def owner_of(path: str) -> str:
    """Return the role that decides about a path: the last pattern that matches it."""
    matching = [
        role.name
        for role in write_owners.roles()
        for pattern in role.paths
        if fnmatch.fnmatch(path, f"{pattern}*" if pattern.endswith("/") else pattern)
    ]
    return matching[-1]


def test_the_code_owners_are_what_the_file_of_roles_says() -> None:
    written = write_owners.OWNERS.read_text(encoding="utf-8")
    assert written == write_owners.code_owners(), "run `make docs`"


def test_the_table_of_roles_is_up_to_date() -> None:
    assert write_owners.PAGE.read_text(encoding="utf-8") == write_owners.page(), "run `make docs`"


def test_every_pattern_matches_something_and_is_given_once() -> None:
    patterns = [pattern for role in write_owners.roles() for pattern in role.paths]
    assert [pattern for pattern in patterns if not is_there(pattern)] == []
    assert len(patterns) == len(set(patterns))
    assert patterns[0] == "*", "of several patterns the last one decides"


def test_every_room_that_is_built_has_a_role_of_its_own_but_the_ground() -> None:
    ground = {
        *("cache", "errors", "clock", "failpoints", "names", "records"),
        *("strict_yaml", "texts", "values", "hints", "display", "progress", "late", "dataclass"),
    }
    folder = ROOT / PACKAGE.strip("/")
    built = {
        room.name: PACKAGE + (f"{room.name}/x.py" if (folder / room.name).is_dir() else path)
        for room in ROOMS
        if (path := f"{room.name}.py")
        and ((folder / room.name).is_dir() or (folder / path).exists())
    }
    assert {name for name, path in built.items() if owner_of(path) == "maintainers"} == ground


def test_no_person_is_named() -> None:
    owners = write_owners.code_owners().split()
    handles = {word for word in owners if word.startswith("@")}
    assert handles
    assert {handle for handle in handles if "/" not in handle} == set()


def test_the_templates_of_issues_can_be_read_by_the_forge() -> None:
    folder = ROOT / ".github" / "ISSUE_TEMPLATE"
    names = set()
    for template in sorted(folder.glob("*.md")):
        _, head, body = template.read_text(encoding="utf-8").split("---\n", 2)
        names.add(yaml.safe_load(head)["name"])
        assert {"name", "about", "labels"} == set(yaml.safe_load(head))
        assert body.strip()
    assert len(names) == 2
    assert yaml.safe_load((folder / "config.yml").read_text(encoding="utf-8"))
