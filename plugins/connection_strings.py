"""The addresses in settings: looked at before anything connects, and put together with a password of its own.

libpq quotes what it cannot read, which may be a part of the password; nothing of its words goes on from here.
"""

from __future__ import annotations

import re

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from lens_core import Secret

_SCHEMES = ("postgresql", "postgres")
_HOW = (
    "write postgresql://USER@HOST:PORT/DATABASE and the password in the setting `password`, or in the address with"
    " special characters as %XX"
)


def check_connection_string(option: str, dsn: Secret, password: Secret | None) -> None:
    """Raise ValueError for an address that libpq cannot read, or reads otherwise than it was meant."""
    text = dsn.reveal()
    if not text.strip():
        raise ValueError(f"{option}: is empty; {_HOW}")
    scheme = re.match(r"\s*([A-Za-z][A-Za-z0-9+.-]*)://", text)
    if scheme is not None and scheme[1] not in _SCHEMES:
        raise ValueError(f"{option}: {scheme[1]}:// is no address of a PostgreSQL; {_HOW}")
    try:
        parts = {key: str(value) for key, value in conninfo_to_dict(text).items()}
    except psycopg.Error:
        raise ValueError(f"{option}: is no connection string that PostgreSQL's client can read; {_HOW}") from None
    port = parts.get("port", "")
    if "@" in parts.get("host", "") + parts.get("dbname", "") or not re.fullmatch(r"[0-9, ]*", port):
        raise ValueError(f"{option}: its parts cannot be told apart; {_HOW}")
    if password is not None and "password" in parts:
        raise ValueError(f"{option}: it has a password, and there is the setting `password` too; remove one of them")
    for name in ("sslrootcert", "sslcert", "sslkey"):
        path = parts.get(name, "")
        if path and path != "system" and not _is_file(path):
            raise ValueError(f"{option}: its {name} names no file that can be read; correct the path")


def with_password(dsn: Secret, password: Secret | None) -> str:
    """The whole connection string; whoever has it has the password."""
    return dsn.reveal() if password is None else make_conninfo(dsn.reveal(), password=password.reveal())


def _is_file(path: str) -> bool:
    try:
        with open(path, "rb"):
            return True
    except OSError:
        return False
