"""Sessions of the page: a random session id in a cookie, bound to the token that was used to log in.

Only hashes are kept, in a file (mode 0600) so that a restart logs nobody out. Revoking the token ends its sessions.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import msgspec
from starlette.requests import HTTPConnection

from ..base.errors import TooManyRequests
from .tokens import TokenStore

logger = logging.getLogger("lens.sessions")

COOKIE = "lens_session"
# Browsers take a cookie of such a name only over TLS, for this host alone.
SECURE_COOKIE = "__Host-lens_session"
CSRF_HEADER = "x-lens-csrf"
LIFETIME_SECONDS = 12 * 3600
MAX_SESSIONS = 1000


class Session(msgspec.Struct, frozen=True):
    """One login; `expires_at` in seconds. `csrf` must come with everything that changes something."""

    token_sha256: str
    csrf: str
    expires_at: float


class Sessions:
    """The sessions of a data directory; without a file they last as long as the process."""

    def __init__(self, tokens: TokenStore, file: Path | None, clock: Callable[[], float] = time.time) -> None:
        self._tokens = tokens
        self._file = file
        self._clock = clock
        self._seen: tuple[int, int] | None = None
        self._sessions: dict[str, Session] = {}
        self._refresh()

    def open_session(self, token: str) -> str | None:
        """A new session's id for a token; None when nobody issued it."""
        if self._tokens.role_of(token) is None:
            return None
        self._refresh()
        self._forget_old()
        name = secrets.token_urlsafe(32)
        session = Session(_hash(token), secrets.token_urlsafe(32), self._clock() + LIFETIME_SECONDS)
        self._sessions[_hash(name)] = session
        self._save_sessions()
        return name

    def end_session(self, connection: HTTPConnection) -> None:
        """Forget the session of a connection."""
        self._refresh()
        if self._sessions.pop(_hash(_cookie(connection)), None) is not None:
            self._save_sessions()

    def find_session(self, connection: HTTPConnection) -> tuple[Session, str] | None:
        """The session of a connection and its token's role; None without a valid one."""
        name = _cookie(connection)
        if name:
            self._refresh()
        session = self._sessions.get(_hash(name)) if name else None
        if session is None or session.expires_at < self._clock():
            return None
        for token in self._tokens.all():
            if hmac.compare_digest(token.sha256, session.token_sha256):
                return session, token.role
        return None

    def _forget_old(self) -> None:
        now = self._clock()
        for name in [name for name, session in self._sessions.items() if session.expires_at < now]:
            del self._sessions[name]
        while len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]

    def _refresh(self) -> None:
        """Read the file if another daemon's logins were written into it."""
        seen = self._stat_file()
        if seen != self._seen:
            self._seen = seen
            self._sessions = self._load_sessions()

    def _stat_file(self) -> tuple[int, int] | None:
        try:
            status = self._file.stat() if self._file is not None else None
        except OSError:
            return None
        return (status.st_mtime_ns, status.st_ino) if status is not None else None

    def _load_sessions(self) -> dict[str, Session]:
        if self._file is None:
            return {}
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=dict[str, Session])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            logger.warning("Session file is unreadable; all users are logged out. error=%s", error)
            return {}

    def _save_sessions(self) -> None:
        if self._file is None:
            return
        fresh = self._file.with_suffix(".new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(self._sessions))
        fresh.replace(self._file)
        self._seen = self._stat_file()


class FailureLimit:
    """Limits the failures per minute, for each address and in all. Raises TooManyRequests."""

    def __init__(
        self,
        per_address: int = 5,
        in_all: int = 60,
        window_seconds: float = 60.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._per_address = per_address
        self._in_all = in_all
        self._window_seconds = window_seconds
        self._clock = clock
        self._failures: OrderedDict[str, list[float]] = OrderedDict()

    def check_address(self, address: str) -> None:
        """Refuse an address that has failed too often."""
        now = self._clock()
        since = now - self._window_seconds
        recent = {name: [at for at in times if at > since] for name, times in self._failures.items()}
        self._failures = OrderedDict((name, times) for name, times in recent.items() if times)
        mine = self._failures.get(address, [])
        everybody = sum(len(times) for times in self._failures.values())
        if len(mine) >= self._per_address or everybody >= self._in_all:
            oldest = min(mine) if mine else min(min(times) for times in self._failures.values())
            wait = max(1.0, oldest + self._window_seconds - now)
            raise TooManyRequests("too many wrong tokens; wait a minute", retry_after_seconds=wait)

    def record_failure(self, address: str) -> None:
        """Note a failure."""
        self._failures.setdefault(address, []).append(self._clock())


def _cookie(connection: HTTPConnection) -> str:
    if "cookie" not in connection.headers:
        return ""
    secure = connection.scope["scheme"] == "https"
    return connection.cookies.get(SECURE_COOKIE if secure else COOKIE, "")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
