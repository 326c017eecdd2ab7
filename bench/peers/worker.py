"""One engine in one process: `python -m bench.peers.worker MODULE ROOT SIZE ACTION`.

`build` makes the database, `cold` opens it and answers one question, `serve` reads names of works
from its input and answers each with one line of JSON: the times in milliseconds and the check.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from types import ModuleType

from bench.peers.dataset import Data, load
from bench.peers.engine import Engine

SENTINEL = "@@"
"""Begins the lines that are answers: libraries may print what they like."""
COLD_INPUT = 7


def say(**facts: object) -> None:
    print(SENTINEL, json.dumps(facts), flush=True)


def main() -> None:
    module_name, root, size, action = sys.argv[1:]
    data = load(Path(root), size)
    began = time.perf_counter()
    module = importlib.import_module(f"bench.peers.{module_name}")
    for library in module.NEEDS:
        importlib.import_module(library)
    imported_s = time.perf_counter() - began
    place = Path(root) / "databases" / f"{module.NAME}-{size}"
    {"build": build, "cold": cold, "serve": serve}[action](module, data, place, imported_s)


def build(module: ModuleType, data: Data, place: Path, imported_s: float) -> None:
    place.mkdir(parents=True)
    began = time.perf_counter()
    module.build(data, place)
    (place / "done").touch()
    say(seconds=time.perf_counter() - began, imported_s=imported_s)


def cold(module: ModuleType, data: Data, place: Path, imported_s: float) -> None:
    began = time.perf_counter()
    engine: Engine = module.opened(data, place)
    work = engine.works["two_hop"]
    answer = work.ask(COLD_INPUT)
    say(
        seconds=time.perf_counter() - began,
        imported_s=imported_s,
        check=work.check(answer),
    )


def serve(module: ModuleType, data: Data, place: Path, imported_s: float) -> None:
    engine: Engine = module.opened(data, place)
    say(works=list(engine.works), imported_s=imported_s)
    for line in sys.stdin:
        name = line.strip()
        if name == "facts":
            say(**engine.facts())
        else:
            say(**measured(engine, name))


def measured(engine: Engine, name: str) -> dict[str, object]:
    work = engine.works[name]
    times: list[float] = []
    check = 0
    for number in range(work.inputs):
        began = time.perf_counter()
        answer = work.ask(number)
        times.append((time.perf_counter() - began) * 1e3)
        check += work.check(answer)
    return {"times": times, "check": check}


if __name__ == "__main__":
    main()
