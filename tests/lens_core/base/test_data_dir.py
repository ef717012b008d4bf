from __future__ import annotations

import os
from pathlib import Path

import pytest

from lens_core.base.data_dir import DataDirLock, default_data_dir, other_owner, read_address, running_address
from lens_core.base.errors import LensError


def test_a_second_daemon_is_told_who_has_the_directory(tmp_path: Path) -> None:
    first = DataDirLock(tmp_path)
    first.acquire()
    first.publish("http://127.0.0.1:1234")
    with pytest.raises(LensError, match=rf"pid {os.getpid()}, listening on http://127.0.0.1:1234.*--data-dir"):
        DataDirLock(tmp_path).acquire()
    assert running_address(tmp_path) == read_address(tmp_path)
    first.release()
    assert read_address(tmp_path) is None
    second = DataDirLock(tmp_path)
    second.acquire()
    second.release()


def test_the_address_that_a_killed_daemon_left_is_not_believed(tmp_path: Path) -> None:
    lock = DataDirLock(tmp_path)
    lock.acquire()
    lock.publish("http://127.0.0.1:1234")
    left = (tmp_path / "daemon.json").read_bytes()
    lock.release()
    (tmp_path / "daemon.json").write_bytes(left)
    assert read_address(tmp_path) is not None
    assert running_address(tmp_path) is None


def test_a_directory_that_cannot_be_made_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LensError, match="cannot be used"):
        DataDirLock(tmp_path / "file" / "dir").acquire()


def test_the_default_directory_can_be_set(tmp_path: Path) -> None:
    assert default_data_dir({"LENS_DATA_DIR": str(tmp_path)}) == tmp_path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_the_directory_of_another_user_is_named_to_root(tmp_path: Path) -> None:
    assert other_owner(tmp_path) == other_owner(tmp_path / "none") == ""
    os.chown(tmp_path, 12345, 23456)
    assert "12345" in other_owner(tmp_path)
