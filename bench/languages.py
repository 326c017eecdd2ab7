"""How fast the two languages compile: a 300-line schema, and a typical query.

The peer is `tomllib`, the standard library's pure-Python parser, reading a text of the same size in
the same run: it says how fast this machine runs Python today.
"""

from __future__ import annotations

import statistics
import time
import tomllib
from collections.abc import Callable
from itertools import count

from omnigraph.query import compile_text, parse_queries
from omnigraph.query.compile import compile_queries
from omnigraph.schema import compile_schema

ROUNDS = 30
DOMAIN = "01J" + "0" * 23

QUERY_SCHEMA = """
node Crew { tag: String @key   rank: I32?   skills: [String]? }
node Ship { hull: String @key }
edge Mentors: Crew -> Crew { since: Date? }
edge ServesOn: Crew -> Ship
"""
QUERY = """query crew_of($hull: String, $min: I32?) {
  match {
    $s: Ship { hull: $hull }
    $c servesOn $s
    $c.rank >= $min
    not { $c mentors $_ }
  }
  return { $c.tag, $c.rank as rank, count($s) as n }
  order { n desc, rank }
  limit 20 offset 40
}
"""


def schema_text(lines: int = 300) -> str:
    """Return a schema of about `lines` lines: a few interfaces, half nodes, half edges, comments.

    The text never has fewer lines than asked for, and at most one declaration more.
    """
    parts = [_INTERFACES]
    height = _INTERFACES.count("\n")
    for number in count():
        if height >= lines:
            return "".join(parts)
        previous = max(number - 1, 0)
        part = _PAIR.replace("<n>", str(number)).replace("<m>", str(previous))
        parts.append(part)
        height += part.count("\n")
    raise AssertionError("unreachable")


_INTERFACES = """\
// A network of measuring stations.
interface Named {
    title: String @index @description("Shown to people")
    summary: String?
}
interface Located {
    place: String @index
    lat: F64?
    lon: F64?
}

"""

_PAIR = r"""/* Station type <n> */
node Station<n> @description("Fixed measuring site, series <n>") implements Named, Located {
    code: String @key
    state: enum(active, mothballed, planned, retired)
    depth_m: F32?
    height_m: F64? @default(0.0)
    channel_count: I32
    opened: Date?
    checked_at: DateTime?
    tags: [String]?
    profile: String? @description("What the site measures, in words")
    profile_vec: Vector(384)? @embed(profile, model="acme/small") @index
    photo: Blob?
    @range(depth_m, -50.0..4000)
    @range(channel_count, 1..)
    @check(code, "^[A-Z]{3}-\\d+$")
    @unique(title, place)
}

edge Feeds<n>: Station<n> -> Station<m> @card(0..3) @instruction("upstream to downstream") {
    since: DateTime
    weight: F64? // share of the flow
    @unique(src, dst)
    @index(since)
}

"""


def toml_text(size: int) -> str:
    """Return a TOML text of about `size` characters."""
    parts = ["[table]\n"]
    height = 0
    for number in count():
        line = f'key_{number} = ["a", "b", {number}] # comment {number}\n'
        parts.append(line)
        height += len(line)
        if height >= size:
            return "".join(parts)
    raise AssertionError("unreachable")


def medians_ms(*acts: Callable[[], object]) -> list[float]:
    """Return the median time of each, taken in locks."""
    taken: list[list[float]] = [[] for _ in acts]
    for _ in range(ROUNDS):
        for times, act in zip(taken, acts, strict=True):
            start = time.perf_counter()
            act()
            times.append((time.perf_counter() - start) * 1e3)
    return [statistics.median(times) for times in taken]


def main() -> None:
    """Print the table."""
    schema = schema_text(300)
    catalog = compile_schema(QUERY_SCHEMA, domain=DOMAIN).catalog
    schema_toml, query_toml = toml_text(len(schema)), toml_text(len(QUERY))
    compile_text(QUERY, catalog)

    def uncached() -> object:
        return compile_queries(parse_queries(QUERY), catalog)

    rows = [
        (
            f"compile a {schema.count(chr(10))}-line schema",
            50.0,
            schema_toml,
            lambda: compile_schema(schema, domain=DOMAIN),
        ),
        ("parse and type-check a typical query", 3.0, query_toml, uncached),
        ("the same query again (cached)", 0.1, query_toml, lambda: compile_text(QUERY, catalog)),
    ]
    print("| work | ms | bar, ms | tomllib on a text of the same size, ms | ratio |")
    print("|---|---|---|---|---|")
    for name, bar, toml, act in rows:
        ours, peer = medians_ms(act, lambda toml=toml: tomllib.loads(toml))
        print(f"| {name} | {ours:.3f} | {bar} | {peer:.3f} | {ours / peer:.2f} |")


if __name__ == "__main__":
    main()
