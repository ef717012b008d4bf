"""What processes of tests share: turns, and what is made once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from tests.side_by_side import Turns, kept_together, made_once


def in_threads(*works: Callable[[], None]) -> None:
    """Run them at once, to their end; a lock of a file keeps threads apart as it does processes."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_who_is_alone_has_nobody_beside_it_and_is_not_overtaken_for_ever(tmp_path: Path) -> None:
    inside: Counter[bool] = Counter()
    most: Counter[bool] = Counter()
    over = threading.Event()

    def take_turns(alone: bool) -> None:
        with Turns(tmp_path).turn(alone=alone):
            inside[alone] += 1
            most[alone] = max(most[alone], inside[alone])
            assert not (inside[True] and inside[False])
            inside[alone] -= 1

    def others() -> None:
        while not over.is_set():
            take_turns(False)

    def lonely() -> None:
        for _ in range(20):
            take_turns(True)
        over.set()

    in_threads(others, others, others, lonely)
    assert most[True] == 1


def test_tests_that_are_not_alone_run_beside_each_other(tmp_path: Path) -> None:
    both = threading.Barrier(2, timeout=30)

    def meet() -> None:
        with Turns(tmp_path).turn(alone=False):
            both.wait()

    in_threads(meet, meet)
    assert not both.broken


def test_what_all_need_is_made_once_and_again_after_a_failure() -> None:
    name = f"test-{uuid4()}"
    made: list[Path] = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "half").touch(exist_ok=False)
        if len(made) == 1:
            raise ValueError("the disk is full")

    with pytest.raises(ValueError, match="full"):
        made_once(name, make)
    in_threads(*[lambda: made.append(made_once(name, make))] * 4)
    assert made[0] == made[-1]
    assert len(made) == 2 + 4, "made by one of the four"


def test_pages_stay_together_and_other_tests_by_file() -> None:
    assert kept_together("tests/docs/test_a.py::test_x") == kept_together("tests/docs/test_b.py::test_y[1::2]")
    assert kept_together("tests/x/test_a.py::test_x[a::b]") == "tests/x/test_a.py"
