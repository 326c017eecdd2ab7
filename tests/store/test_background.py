"""Work beside the caller: started, waited for, and still done when threads are no longer given."""

from __future__ import annotations

import os
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


def test_threads_end_when_they_have_nothing_left_to_do_and_others_are_started() -> None:
    background = InThreads()
    let_go, threads = threading.Event(), list[threading.Thread]()

    def wait() -> bool:
        threads.append(threading.current_thread())
        return let_go.wait(60)

    started = [background.start(wait) for _ in range(2)]
    background.end_threads()
    let_go.set()
    assert all(call.result() for call in started)
    assert background.start(threading.get_ident).result() != threading.get_ident()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:lance is not fork-safe")
def test_a_forked_child_has_no_threads_and_does_not_wait_for_them() -> None:
    background = InThreads()
    background.start(threading.get_ident).result()
    child = os.fork()
    if child == 0:
        try:
            is_here = background.start(threading.get_ident).result(10) == threading.get_ident()
        except TimeoutError:
            os._exit(2)
        os._exit(0 if is_here else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
