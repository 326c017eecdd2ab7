"""An asynchronous graph behind the methods of a synchronous one, so that one suite tests both."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from typing import Any


class Awaiting:
    """Runs what an object awaits to its end; what it yields asynchronously becomes a list."""

    def __init__(self, runner: asyncio.Runner, awaits: Any) -> None:
        self._runner = runner
        self._awaits = awaits

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._awaits, name)
        if callable(found):
            return lambda *args, **given: self._plain(found(*args, **given))
        return self._plain(found)

    def _plain(self, value: Any) -> Any:
        if inspect.isawaitable(value):
            return self._plain(self._runner.run(_awaited(value)))
        if isinstance(value, AsyncIterator):
            return iter(self._runner.run(_listed(value)))
        if isinstance(value, tuple) and any(isinstance(one, AsyncIterator) for one in value):
            return tuple(self._plain(one) for one in value)
        if type(value).__module__ == "omnigraph.client.asynchronous":
            return Awaiting(self._runner, value)
        return value


async def _awaited(value: Any) -> Any:
    return await value


async def _listed(values: AsyncIterator[Any]) -> list[Any]:
    return [value async for value in values]
