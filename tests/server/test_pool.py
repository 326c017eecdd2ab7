"""Which calls are short, and what a request carries."""

from __future__ import annotations

import gc
import weakref

from omnigraph.server.http.incoming import IncomingRequest, IndexedHeaders, RequestIds
from omnigraph.server.pool import Habits, cost_s


def is_short_after(seconds: float, calls: int = 8) -> bool:
    habits = Habits()
    for _ in range(calls):
        assert not habits.is_short("q")
        habits.note("q", seconds)
    return habits.is_short("q")


def test_a_call_that_waits_for_others_is_short_all_the_same() -> None:
    assert is_short_after(cost_s(0.0002, 0.0002))
    assert is_short_after(cost_s(0.0002, 0.006))


def test_a_call_that_computes_or_waits_for_long_is_not_short() -> None:
    assert not is_short_after(cost_s(0.01, 0.01), calls=20)
    assert not is_short_after(cost_s(0.0002, 0.05), calls=20)


def test_a_long_call_costs_a_kind_its_good_name() -> None:
    habits = Habits()
    for _ in range(8):
        habits.note("q", 0.0001)
    habits.note("q", 0.01)
    assert not habits.is_short("q")


def test_headers_are_found_in_any_case_and_the_first_counts() -> None:
    headers = IndexedHeaders([(b"accept", b"a"), (b"accept", b"b")])
    assert headers.get("Accept") == headers["accept"] == "a"
    assert headers.get("host") is None
    assert headers.get("host", "") == ""
    assert headers.getlist("accept") == ["a", "b"]


def test_requests_have_ids_of_their_own() -> None:
    async def receive() -> dict[str, object]:
        return {"type": "http.disconnect"}

    def request(*headers: tuple[bytes, bytes]) -> IncomingRequest:
        return IncomingRequest({"type": "http", "headers": list(headers)}, receive)

    gc.disable()
    try:
        gone = weakref.ref(request((b"host", b"a")))
        assert gone() is None, "a request that holds itself stays until it is collected"
    finally:
        gc.enable()
    ids = RequestIds("start")
    assert ids.of(request((b"x-request-id", b"mine"))) == "mine"
    made = {ids.of(request()) for _ in range(3)} | {ids.of(request((b"x-request-id", b"\xff")))}
    assert len(made) == 4
