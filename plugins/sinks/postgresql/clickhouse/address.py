"""The setting `points`: the address of a ClickHouse, which may hold a password. Pure, no I/O."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from lens_core import Secret

_HOW = "write clickhouse://USER:PASSWORD@HOST:PORT/DATABASE (clickhouses:// for TLS), special characters as %XX"
_PORTS = {"clickhouse": 8123, "clickhouses": 8443}


class PointsAddress(NamedTuple):
    """The address at which a ClickHouse answers HTTP, and as whom."""

    host: str
    port: int
    user: str
    password: Secret
    database: str
    is_encrypted: bool


def parse_points_address(points: Secret) -> PointsAddress:
    """Read the setting. Raises ValueError, in whose text nothing of the address stands."""
    try:
        parts = urlsplit(points.reveal().strip())
        port = parts.port
    except ValueError:
        raise ValueError(f"points: is no address that can be read; {_HOW}") from None
    if parts.scheme not in _PORTS:
        raise ValueError(f"points: is no address of a ClickHouse; {_HOW}")
    database = unquote(parts.path.strip("/"))
    if not parts.hostname or "@" in parts.hostname:
        raise ValueError(f"points: names no host; {_HOW}")
    if not database or "/" in database:
        raise ValueError(f"points: names no database; {_HOW}")
    if parts.query or parts.fragment:
        raise ValueError(f"points: has options behind the database, which are not supported; {_HOW}")
    return PointsAddress(
        host=parts.hostname,
        port=port or _PORTS[parts.scheme],
        user=unquote(parts.username or "default"),
        password=Secret(unquote(parts.password or "")),
        database=database,
        is_encrypted=parts.scheme == "clickhouses",
    )
