"""The number of inputs that tests generate: LENS_HYPOTHESIS_PROFILE is `quick`, `ci` (if it is not set) or `night`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

T = TypeVar("T")

PROFILE = "LENS_HYPOTHESIS_PROFILE"
_FACTORS = {"quick": 0.1, "ci": 0.25, "night": 10.0}
_USUAL = 100


def examples(number: int) -> int:
    """The examples of a test that has this many at full size."""
    return max(5, round(number * _FACTORS[os.environ.get(PROFILE, "ci")]))


def part(cases: Sequence[T]) -> Sequence[T]:
    """All cases of a long list by night, by day every third."""
    return cases if os.environ.get(PROFILE) == "night" else cases[::3]


def load_profile() -> None:
    """Set what holds for tests without settings of their own; on a busy machine no example has a deadline."""
    for name, factor in _FACTORS.items():
        # By day the same inputs each time, so that a change is to blame for a failure; new ones by night, and how to
        # repeat what failed is printed.
        settings.register_profile(
            name,
            max_examples=max(5, round(_USUAL * factor)),
            derandomize=name != "night",
            deadline=None,
            print_blob=True,
        )
    settings.load_profile(os.environ.get(PROFILE, "ci"))
