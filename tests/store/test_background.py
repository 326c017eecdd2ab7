"""Work beside the caller: started, waited for, and still done when threads are no longer given."""

from __future__ import annotations

import threading

import pytest

from omnigraph.store.background import Background, Inline, InThreads


@pytest.mark.parametrize("background", [InThreads(), Inline()], ids=["threads", "lock"])
def test_an_answer_and_an_error_are_there_for_whoever_waits(background: Background) -> None:
    assert background.start(lambda: 7).result() == 7
    with pytest.raises(ZeroDivisionError):
        background.start(lambda: 1 // 0).result()


def test_threads_let_the_caller_go_on() -> None:
    let_go = threading.Event()
    started = InThreads().start(lambda: let_go.wait(60))
    assert not started.done()
    let_go.set()
    assert started.result() is True


def test_in_lock_is_over_when_it_returns_and_death_is_not_put_off() -> None:
    class DeathError(BaseException):
        pass

    def die() -> None:
        raise DeathError

    assert Inline().start(threading.get_ident).result() == threading.get_ident()
    with pytest.raises(DeathError):
        Inline().start(die)


def test_calls_are_made_here_when_no_thread_can_be_started() -> None:
    background = InThreads()
    background._pool.shutdown()
    assert background.start(threading.get_ident).result() == threading.get_ident()
