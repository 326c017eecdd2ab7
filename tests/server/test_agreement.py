"""Workers agree on the revision that they serve."""

from __future__ import annotations

from pathlib import Path

from omnigraph.server.revisions.agreement import (
    AGREE_MAX_S,
    AgreementTimer,
    LocalAgreement,
    SharedAgreement,
    forget_proposal,
)
from support.clocks import ManualClock


def test_one_process_agrees_with_itself() -> None:
    agreement = LocalAgreement()
    assert agreement.in_force() is None
    agreement.propose("a")
    assert agreement.in_force() == "a"


def test_a_revision_comes_into_force_when_all_workers_propose_it(tmp_path: Path) -> None:
    one, two = SharedAgreement(tmp_path, "1"), SharedAgreement(tmp_path, "2")
    assert one.in_force() is None
    one.propose("a")
    two.propose("a")
    assert (one.in_force(), two.in_force()) == ("a", "a")
    one.propose("b")
    assert (one.in_force(), two.in_force()) == ("a", "a")
    two.propose("b")
    assert (one.in_force(), two.in_force()) == ("b", "b")


def test_a_worker_that_comes_later_does_not_change_what_is_in_force(tmp_path: Path) -> None:
    one, late = SharedAgreement(tmp_path, "1"), SharedAgreement(tmp_path, "2")
    one.propose("a")
    late.propose("b")
    assert late.in_force() == "a"
    one.propose("b")
    assert late.in_force() == "b"


def test_a_revision_that_was_proposed_and_given_up_never_comes_into_force(tmp_path: Path) -> None:
    one, two = SharedAgreement(tmp_path, "1"), SharedAgreement(tmp_path, "2")
    one.propose("a")
    two.propose("a")
    one.propose("b")
    one.propose("c")
    two.propose("b")
    assert two.in_force() == "a"
    two.propose("c")
    assert one.in_force() == "c"


def test_the_others_agree_without_a_worker_that_is_dead(tmp_path: Path) -> None:
    one, two = SharedAgreement(tmp_path, "1"), SharedAgreement(tmp_path, "2")
    one.propose("a")
    two.propose("a")
    one.propose("b")
    forget_proposal(tmp_path, "2")
    assert one.in_force() == "b"
    forget_proposal(tmp_path, "2")
    assert one.in_force() == "b"


def test_a_revision_that_comes_back_is_seen(tmp_path: Path) -> None:
    one, two = SharedAgreement(tmp_path, "1"), SharedAgreement(tmp_path, "2")
    for key in ("a", "b", "a", "b"):
        one.propose(key)
        two.propose(key)
        assert (one.in_force(), two.in_force()) == (key, key)


def test_a_revision_that_waits_is_overdue_once() -> None:
    clock = ManualClock()
    timer = AgreementTimer(clock)
    for proposed in ("b", "c"):
        assert not timer.is_overdue(proposed=proposed, in_force="a")
        clock.advance(AGREE_MAX_S - 1)
        assert not timer.is_overdue(proposed=proposed, in_force="a")
        clock.advance(1)
        assert timer.is_overdue(proposed=proposed, in_force="a")
        clock.advance(AGREE_MAX_S)
        assert not timer.is_overdue(proposed=proposed, in_force="a")
    assert not timer.is_overdue(proposed="c", in_force="c")
    clock.advance(AGREE_MAX_S)
    assert not timer.is_overdue(proposed="c", in_force="c")
