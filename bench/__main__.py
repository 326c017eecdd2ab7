"""Run the benchmarks: `python -m bench` lists them, `python -m bench NAME …` runs some, `all` all.

Options after the names go to each of them: `python -m bench queries --size M`.

Each prints a Markdown table for bench/RESULTS.md. Numbers are ratios against a peer measured in the
same run, in turns, so that a busy machine hurts both sides.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).parent


def names() -> list[str]:
    """Return the benchmarks: modules of this package with a `main`."""
    found = sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))
    return [name for name in found if hasattr(import_module(f"bench.{name}"), "main")]


def main() -> None:
    """Run what was asked for."""
    words = sys.argv[1:]
    first_option = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    wanted = words[:first_option]
    sys.argv = [sys.argv[0], *words[first_option:]]
    if not wanted:
        print("benchmarks:", ", ".join(names()), "(or: all)")
        return
    for name in names() if wanted == ["all"] else wanted:
        print(f"\n## {name}\n")
        import_module(f"bench.{name}").main()


if __name__ == "__main__":
    main()
