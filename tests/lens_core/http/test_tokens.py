from __future__ import annotations

import os
from pathlib import Path

import pytest

from lens_core.base.errors import LensError, Unavailable
from lens_core.http.tokens import TokenStore


def test_a_token_is_known_by_its_text_and_kept_as_a_hash(tmp_path: Path) -> None:
    text = TokenStore(tmp_path).create_token("cluster", "ingest")
    kept = (tmp_path / "tokens.json").read_text()
    assert text not in kept
    assert (tmp_path / "tokens.json").stat().st_mode & 0o777 == 0o600
    assert TokenStore(tmp_path).role_of(text) == "ingest"
    assert TokenStore(tmp_path).role_of(text + "x") is None


def test_a_running_daemon_sees_what_the_command_line_changed(tmp_path: Path) -> None:
    daemon = TokenStore(tmp_path)
    assert daemon.all() == []
    text = TokenStore(tmp_path).create_token("a", "read")
    assert daemon.role_of(text) == "read"
    TokenStore(tmp_path).revoke("a")
    assert daemon.role_of(text) is None


def test_wrong_names_and_roles_are_said(tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    store.create_token("a", "admin")
    with pytest.raises(LensError, match="already"):
        store.create_token("a", "read")
    with pytest.raises(LensError, match="not one of ingest, read, admin"):
        store.create_token("b", "root")
    with pytest.raises(LensError, match="no token 'c'"):
        store.revoke("c")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_token_that_root_creates_belongs_to_the_user_of_the_daemon(tmp_path: Path) -> None:
    """The unit of systemd runs the daemon as `lens`, and people run `lens token create` as root."""
    os.chown(tmp_path, 12345, 23456)
    store = TokenStore(tmp_path)
    store.create_token("a", "read")
    store.create_token("b", "read")
    store.revoke("a")
    status = (tmp_path / "tokens.json").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (12345, 23456, 0o600)


@pytest.mark.parametrize("content", [b"", b"[{]", b"{}", b'[{"name": "a"}]', b"\xff"])
def test_a_damaged_file_is_said_and_lets_nobody_in(content: bytes, tmp_path: Path) -> None:
    daemon = TokenStore(tmp_path)
    text = daemon.create_token("a", "read")
    (tmp_path / "tokens.json").write_bytes(content)
    for _ in range(2):
        with pytest.raises(Unavailable, match="is damaged; restore it"):
            daemon.role_of(text)
    (tmp_path / "tokens.json").unlink()
    assert daemon.role_of(text) is None


def test_a_file_that_cannot_be_read_or_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "tokens.json").mkdir()
    with pytest.raises(Unavailable, match=r"cannot be read \(Is a directory\); it must belong to the daemon's user"):
        TokenStore(tmp_path).all()
    (tmp_path / "file").touch()
    with pytest.raises(LensError, match="cannot be read"):
        TokenStore(tmp_path / "file").create_token("a", "read")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "tokens.new").mkdir()
    with pytest.raises(LensError, match=r"tokens.json cannot be written: Is a directory"):
        TokenStore(tmp_path / "folder").create_token("a", "read")
