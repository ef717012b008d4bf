"""The options of the PostgreSQL sink."""

from __future__ import annotations

from typing import Annotated

import msgspec
from lens_plugins.connection_strings import check_connection_string, with_password
from msgspec import Meta

from lens_core import Secret

from .clickhouse.address import parse_points_address

_Days = Annotated[float, Meta(gt=0)]


class PostgreSQLSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Connection, limits, and the hourly retention: nothing is removed without a `retention_` option."""

    dsn: Annotated[
        Secret | None,
        Meta(description="a libpq connection string or URL; without one Lens runs a PostgreSQL of its own"),
    ] = None
    read_dsn: Annotated[
        Secret | None,
        Meta(description="the address of a replica for queries, which `dsn` answers while the replica is away"),
    ] = None
    password: Annotated[
        Secret | None,
        Meta(description="the password for `dsn` and `read_dsn`, as it is: nothing in it has to be encoded"),
    ] = None
    points: Annotated[
        Secret | None,
        Meta(
            description="clickhouse://USER:PASSWORD@HOST:PORT/DATABASE keeps points in ClickHouse, all else stays here"
        ),
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
        if self.read_dsn is not None and self.dsn is None:
            raise ValueError("read_dsn: a replica needs a dsn beside it, of the server that is written to")
        if self.password is not None and self.dsn is None:
            raise ValueError("password: it needs a dsn beside it; Lens' own PostgreSQL has no password")
        for option, dsn in (("dsn", self.dsn), ("read_dsn", self.read_dsn)):
            if dsn is not None:
                check_connection_string(option, dsn, self.password)

        if self.points is not None:
            parse_points_address(self.points)

    def address(self) -> str | None:
        """The connection string of the server that is written to, with its password; None for Lens' own."""
        return None if self.dsn is None else with_password(self.dsn, self.password)

    def read_address(self) -> str | None:
        """The connection string of the replica, with its password."""
        return None if self.read_dsn is None else with_password(self.read_dsn, self.password)
