"""Texts of the two languages in realistic sizes, for measuring how fast they compile."""

from __future__ import annotations

from itertools import count


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
