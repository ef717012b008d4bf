"""The options of the PostgreSQL sink."""

from __future__ import annotations

from typing import Annotated

import msgspec
import psycopg
from msgspec import Meta
from psycopg.conninfo import conninfo_to_dict

from lens_core import Secret

_Days = Annotated[float, Meta(gt=0)]


class PostgreSQLSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the rows go, within which limits, and what is removed each hour: nothing without a `retention_` option."""

    dsn: Annotated[
        Secret | None,
        Meta(description="a libpq connection string or URL; without one Lens runs a PostgreSQL of its own"),
    ] = None
    read_dsn: Annotated[
        Secret | None,
        Meta(description="the address of a replica for queries, which `dsn` answers while the replica is away"),
    ] = None
    history_limit: Annotated[
        int, Meta(ge=0, le=1000, description="how many overwritten versions of a row are kept")
    ] = 16
    blocks: Annotated[
        bool, Meta(description="make compact copies of finished ranges, which large charts are drawn from")
    ] = True
    query_connections: Annotated[int, Meta(ge=1, le=32, description="how many queries run at one time")] = 4
    connect_timeout_seconds: Annotated[int, Meta(ge=2, description="for one attempt to connect")] = 5
    statement_timeout_seconds: Annotated[float, Meta(gt=0, description="for each statement of a query")] = 60.0
    write_timeout_seconds: Annotated[float, Meta(gt=0, description="for each statement that writes")] = 60.0
    embedded_shared_buffers_bytes: Annotated[
        int, Meta(ge=1024 * 1024, description="shared_buffers of the PostgreSQL of its own")
    ] = 128 * 1024 * 1024
    embedded_max_wal_bytes: Annotated[
        int, Meta(ge=64 * 1024 * 1024, description="max_wal_size of the PostgreSQL of its own")
    ] = 2 * 1024 * 1024 * 1024
    retention_days: Annotated[
        _Days | None, Meta(description="attempts of runs that were not written for so long are removed")
    ] = None
    retention_workload_days: Annotated[
        dict[str, _Days | None],
        Meta(description="other numbers for workloads whose uid or name matches a pattern; null keeps them"),
    ] = {}
    retention_max_bytes: Annotated[
        Annotated[int, Meta(ge=1024 * 1024)] | None, Meta(description="beyond so much in all, the oldest attempts go")
    ] = None
    retention_max_workload_bytes: Annotated[
        Annotated[int, Meta(ge=1024 * 1024)] | None, Meta(description="the same of one workload")
    ] = None

    def __post_init__(self) -> None:
        for name in ("dsn", "read_dsn"):
            secret = getattr(self, name)
            if secret is not None:
                _check_dsn(name, secret)
        if self.read_dsn is not None and self.dsn is None:
            raise ValueError("read_dsn: a replica needs a dsn beside it, of the server that is written to")


def _check_dsn(name: str, secret: Secret) -> None:
    """Raise ValueError for what libpq would not take; its own words may quote a password, so they are not repeated."""
    example = "postgresql://USER:PASSWORD@HOST/NAME, or host=HOST dbname=NAME"
    try:
        parts = conninfo_to_dict(secret.reveal())
    except (psycopg.ProgrammingError, ValueError):
        raise ValueError(f"{name}: no connection string of PostgreSQL; give {example}") from None
    ports = [port for port in str(parts.get("port") or "").split(",") if port]
    if not all(port.isdecimal() and 0 < int(port) <= 65535 for port in ports):
        raise ValueError(f"{name}: the port must be a number from 1 to 65535; give {example}") from None
