"""Bearer tokens: who may send, who may read, who may administer. Only their hashes are kept."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from pathlib import Path

import msgspec

from ..base.data_dir import give_to_owner_of
from ..base.errors import LensError, Unavailable
from ..base.redaction import Secret

ROLES = ("ingest", "read", "admin")
_RETRY_SECONDS = 10.0


class Token(msgspec.Struct, frozen=True):
    """A token as it is kept: the SHA-256 of 32 random bytes needs no salt. `created_at` in seconds."""

    name: str
    role: str
    sha256: str
    created_at: float


class TokenStore:
    """The tokens of a data directory, in `tokens.json` (mode 0600); re-read when the file changes.

    `ingest_token` is one more that may send: that of the configuration.
    """

    def __init__(self, data_dir: Path, ingest_token: Secret | None = None) -> None:
        self.ingest_token = ingest_token
        self._path = data_dir / "tokens.json"
        self._seen: tuple[int, int] | None = None
        self._tokens: list[Token] = []

    def all(self) -> list[Token]:
        """All tokens, oldest first. Raises Unavailable where the file cannot be read."""
        try:
            status = self._path.stat()
            seen = (status.st_mtime_ns, status.st_size)
            if seen != self._seen:
                self._tokens = msgspec.json.decode(self._path.read_bytes(), type=list[Token])
                self._seen = seen
        except FileNotFoundError:
            self._seen, self._tokens = None, []
        except OSError as error:
            text = f"tokens.json of the data directory cannot be read ({error.strerror})"
            text += "; it must belong to the daemon's user"
            raise Unavailable(text, retry_after_seconds=_RETRY_SECONDS) from None
        except msgspec.DecodeError:
            text = "tokens.json of the data directory is damaged; restore it, or remove it and create the tokens again"
            raise Unavailable(text, retry_after_seconds=_RETRY_SECONDS) from None
        return self._tokens

    def create_token(self, name: str, role: str) -> str:
        """Make a token and return its text, which is not kept. Raises LensError for a name that exists."""
        if role not in ROLES:
            raise LensError(f"role {role!r} is not one of {', '.join(ROLES)}")
        tokens = self.all()
        if any(token.name == name for token in tokens):
            raise LensError(f"there is a token {name!r} already; revoke it first, or choose another name")
        text = f"lens_{role}_{secrets.token_urlsafe(32)}"
        self._save_tokens([*tokens, Token(name, role, _hash(text), time.time())])
        return text

    def revoke(self, name: str) -> None:
        """Forget a token. Raises LensError when there is none of that name."""
        tokens = self.all()
        left = [token for token in tokens if token.name != name]
        if len(left) == len(tokens):
            raise LensError(f"there is no token {name!r}; `lens token list` shows them")
        self._save_tokens(left)

    def role_of(self, text: str) -> str | None:
        """The role of a token's text, None for one that nobody issued."""
        wanted = _hash(text)
        role = None
        if self.ingest_token is not None and hmac.compare_digest(_hash(self.ingest_token.reveal()), wanted):
            role = "ingest"
        for token in self.all():
            if hmac.compare_digest(token.sha256, wanted):
                role = token.role
        return role

    def _save_tokens(self, tokens: list[Token]) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self._path.with_suffix(".new")
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                give_to_owner_of(self._path.parent, descriptor)
                file.write(msgspec.json.format(msgspec.json.encode(tokens)))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except OSError as error:
            text = f"{self._path} cannot be written: {error.strerror}; run this as root or as the daemon's user"
            raise LensError(text) from None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
