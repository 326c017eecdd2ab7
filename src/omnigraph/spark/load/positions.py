"""Where rows came from, once all of the input has been read.

Tasks number the lines of their own piece of a file, because how many lines come before it is not
known yet. When all pieces have been read, positions are converted to those of the whole file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from omnigraph.write.rules.violations import (
    JSON_RULES,
    InputName,
    Violation,
    ViolationLog,
    input_of,
    number_of,
    position_in,
)
from omnigraph.write.stage.columns import Integers

_NUMBER_BITS = 40


@dataclass(frozen=True)
class InputPositions:
    """Maps the source of a task to its input, and to the number of lines before it there."""

    inputs: tuple[InputName, ...]
    sources: Mapping[int, tuple[int, int]]

    def of(self, positions: Integers) -> Integers:
        """Return positions in whole inputs."""
        moved = positions.copy()
        sources = positions >> _NUMBER_BITS
        for source in np.unique(sources).tolist():
            number, before = self.sources[source]
            moved[sources == source] += position_in(number, before) - position_in(source, 0)
        return moved

    def of_violation(self, violation: Violation) -> Violation:
        """Return a violation with its position in the whole input, in its message too."""
        if violation.position is None:
            return violation
        number, before = self.sources[input_of(violation.position)]
        line = number_of(violation.position)
        message = violation.message
        if violation.rule in JSON_RULES:
            message = message.replace(f" {line}:", f" {line + before}:", 1)
        return replace(violation, position=position_in(number, line + before), message=message)

    def of_log(self, log: ViolationLog) -> ViolationLog:
        """Return a log with positions in whole inputs."""
        moved = ViolationLog()
        moved.kept = [self.of_violation(found) for found in log.kept]
        moved.counts = log.counts
        return moved


def positions_in_files(
    inputs: Sequence[InputName], lines: Mapping[int, int]
) -> dict[int, tuple[int, int]]:
    """Give files numbers, and count the lines before each piece; pieces come in order."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(inputs))}
    before = dict.fromkeys(numbers, 0)
    found = {}
    for source, name in enumerate(inputs):
        found[source] = (numbers[name], before[name])
        before[name] += lines.get(source, 0)
    return found
