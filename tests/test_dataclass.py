"""Our `dataclass` does for frozen classes what that of the standard library does."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from functools import cached_property
from typing import Any, ClassVar

import pytest

from omnigraph import dataclass as ours

Decorator = Callable[..., Any]


def classes(dataclass: Decorator) -> dict[str, Any]:
    """Return one class of each form that the project uses, made by a decorator."""

    @dataclass(frozen=True)
    class Empty:
        """Nothing."""

    @dataclass(frozen=True)
    class Single:
        """One field."""

        value: float

    @dataclass(frozen=True)
    class Plain:
        """Defaults of all kinds, and what is no field."""

        count: ClassVar[int] = 0
        a: int
        b: str = "x"
        c: list[int] = field(default_factory=list)
        hidden: int = field(default=7, repr=False, compare=False)
        fixed: str = field(default="fixed", init=False)
        made: list[int] = field(default_factory=lambda: [1], init=False)

        @cached_property
        def double(self) -> int:
            return self.a * 2

    @dataclass(frozen=True, kw_only=True)
    class Keywords:
        """All by name."""

        a: int
        b: int = 2

    @dataclass(frozen=True, slots=True)
    class Slotted:
        """With slots."""

        a: int
        b: tuple[int, ...] = ()
        fixed: str = field(default="fixed", init=False)

    @dataclass(frozen=True, eq=False)
    class Alone:
        """Equal to itself only."""

        a: int = 1

    @dataclass(frozen=True)
    class Checked:
        """Checked when it is made, shown and hashed in its own way."""

        a: int

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError(self.a)

        def __repr__(self) -> str:
            return f"<{self.a}>"

        def __hash__(self) -> int:
            return 5

    @dataclass(frozen=True)
    class Base:
        """To inherit from."""

        a: int
        b: int = 1

    @dataclass(frozen=True)
    class Derived(Base):
        """Inherits its first fields."""

        b: int = 2
        c: int = 3

    found = (Empty, Single, Plain, Keywords, Slotted, Alone, Checked, Base, Derived)
    return {each.__name__: each for each in found}


THEIRS, OURS = classes(dataclasses.dataclass), classes(ours.dataclass)
SAMPLES: dict[str, list[dict[str, Any]]] = {
    "Empty": [{}],
    "Single": [{"value": 1.0}, {"value": float("inf")}],
    "Plain": [{"a": 1}, {"a": 1, "hidden": 8}, {"a": 2, "b": "y", "c": [1]}],
    "Keywords": [{"a": 1}, {"a": 1, "b": 3}],
    "Slotted": [{"a": 1}, {"a": 1, "b": (2,)}],
    "Alone": [{}, {"a": 2}],
    "Checked": [{"a": 0}, {"a": 1}],
    "Base": [{"a": 1}],
    "Derived": [{"a": 1}, {"a": 1, "b": 5, "c": 6}],
}


def local(text: str) -> str:
    return text.replace("classes.<locals>.", "")


@pytest.mark.parametrize("name", SAMPLES)
def test_records_look_and_compare_alike(name: str) -> None:
    theirs = [THEIRS[name](**each) for each in SAMPLES[name]]
    made = [OURS[name](**each) for each in SAMPLES[name]]
    assert [local(repr(each)) for each in made] == [local(repr(each)) for each in theirs]
    again = [OURS[name](**each) for each in SAMPLES[name]]
    assert [[a == b for a in made] for b in again] == [
        [a == b for a in theirs] for b in [THEIRS[name](**each) for each in SAMPLES[name]]
    ]
    assert made[0] != theirs[0]
    assert [dataclasses.asdict(each) for each in made] == [
        dataclasses.asdict(each) for each in theirs
    ]
    assert dataclasses.replace(made[-1]) == dataclasses.replace(made[-1]) or name == "Alone"
    assert OURS[name].__match_args__ == THEIRS[name].__match_args__
    assert [f.name for f in dataclasses.fields(OURS[name])] == [
        f.name for f in dataclasses.fields(THEIRS[name])
    ]


@pytest.mark.parametrize("name", ["Empty", "Single", "Keywords", "Slotted", "Checked", "Derived"])
def test_equal_records_have_equal_hashes(name: str) -> None:
    for each in SAMPLES[name]:
        assert hash(OURS[name](**each)) == hash(OURS[name](**each))
    assert {hash(OURS["Checked"](a=1))} == {5}
    with pytest.raises(TypeError, match="unhashable"):
        hash(OURS["Plain"](a=1))


@pytest.mark.parametrize("name", SAMPLES)
def test_parameters_are_the_same(name: str) -> None:
    def parameters(made: Any) -> list[tuple[str, Any, Any]]:
        return [
            (one.name, one.kind, one.annotation)
            for one in inspect.signature(made).parameters.values()
        ]

    assert parameters(OURS[name]) == parameters(THEIRS[name])


@pytest.mark.parametrize("name", ["Single", "Plain", "Slotted", "Derived"])
def test_a_record_cannot_be_changed(name: str) -> None:
    made = OURS[name](**SAMPLES[name][0])
    first = dataclasses.fields(made)[0].name
    with pytest.raises(FrozenInstanceError, match=f"cannot assign to field '{first}'"):
        setattr(made, first, 1)
    with pytest.raises(FrozenInstanceError, match=f"cannot delete field '{first}'"):
        delattr(made, first)


def test_each_record_has_its_own_value_of_a_factory() -> None:
    one, other = OURS["Plain"](a=1), OURS["Plain"](a=1)
    one.c.append(4)
    assert (other.c, one.made is other.made, one.double) == ([], False, 2)


def test_checks_run_when_a_record_is_made() -> None:
    with pytest.raises(ValueError, match="-1"):
        OURS["Checked"](a=-1)


def test_wrong_arguments_are_refused() -> None:
    for call in (OURS["Base"], lambda: OURS["Keywords"](1), lambda: OURS["Base"](1, x=1)):
        with pytest.raises(TypeError, match=r"__init__\(\)"):
            call()


@ours.dataclass(frozen=True)
class Pickled:
    a: int
    b: Pickled | None = None


@ours.dataclass(frozen=True, slots=True)
class PickledSlots:
    a: int
    b: str = "b"


def test_records_are_pickled_and_copied() -> None:
    for made in (Pickled(1, Pickled(2)), PickledSlots(3)):
        assert pickle.loads(pickle.dumps(made)) == made
        assert copy.deepcopy(made) == made
    assert not hasattr(PickledSlots(1), "__dict__")


def test_a_record_that_contains_itself_can_be_shown() -> None:
    made = Pickled(1)
    object.__setattr__(made, "b", made)
    assert repr(made) == "Pickled(a=1, b=...)"


def test_other_forms_are_those_of_the_library() -> None:
    @ours.dataclass
    class Open:
        a: int

    @ours.dataclass(frozen=True, order=True)
    class Ordered:
        a: int

    changed = Open(1)
    changed.a = 2
    assert (changed, Ordered(1) < Ordered(2)) == (Open(2), True)
