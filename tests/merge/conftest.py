"""Every merge of these tests is done twice: by this process, and by tasks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.inline_engine import take_everything


@pytest.fixture(autouse=True, params=["local", "tasks"])
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Say who merges; tasks must have had something to do."""
    if request.param == "local":
        yield "local"
        return
    with pytest.MonkeyPatch.context() as patch:
        take_everything(patch)
        yield "spark"
