"""Every example in a docstring of the package runs."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

from support.optional import importable_modules

MODULES = list(importable_modules())


def test_the_package_has_examples() -> None:
    found = [t for name in MODULES for t in doctest.DocTestFinder().find(import_module(name))]
    assert sum(bool(test.examples) for test in found) > 20


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name: str) -> None:
    result = doctest.testmod(import_module(name))
    assert result.failed == 0
