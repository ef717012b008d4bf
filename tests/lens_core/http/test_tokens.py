from __future__ import annotations

from pathlib import Path

import pytest

from lens_core.base.errors import LensError
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
