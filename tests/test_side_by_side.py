"""Resources that are made once and shared by processes of tests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from tests.side_by_side import file_of, folder_in_memory, made_once


def in_threads(*works: Callable[[], None]) -> None:
    """Run them at once, to their end; a lock of a file keeps threads apart as it does processes."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


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


def test_the_file_of_a_test_is_what_stays_together() -> None:
    assert file_of("tests/x/test_a.py::test_x[a::b]") == "tests/x/test_a.py"


def test_temporary_files_are_in_memory_where_there_is_room(tmp_path: Path) -> None:
    left = tmp_path / f"lens-tests-{2**22 + 1}"  # no process has so high a number
    (left / "data").mkdir(parents=True)
    folder = folder_in_memory(tmp_path, room=1)
    assert not left.exists()
    assert folder is not None
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o777 == 0o711, "PostgreSQL may run as another user"
    assert folder_in_memory(tmp_path, room=1 << 60) is None
    assert folder_in_memory(tmp_path / "missing", room=1) is None


def test_memory_in_which_nothing_can_be_executed_is_not_used() -> None:
    assert folder_in_memory(Path("/proc"), room=0) is None
