"""The options of the PostgreSQL sink."""

from __future__ import annotations

from typing import Annotated

import msgspec

from lens_core import Secret


class PostgreSQLSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the rows go, and within which limits.

    `dsn` is a libpq connection string or URL; without one Lens starts a PostgreSQL of its own under its data
    directory, for which alone the `embedded_` options are. `history_limit` is how many overwritten versions of a row
    are kept. `blocks` says whether compact copies of finished ranges are made, which large charts are drawn from.
    `query_connections` bounds the queries that run at one time, `statement_timeout_seconds` how long each
    statement of one may take.

    What is removed, hourly: attempts of runs that were not written for `retention_days` (`retention_workload_days`:
    other numbers for workloads whose uid or name matches a pattern, null keeps them), and the oldest beyond
    `retention_max_bytes` in all or `retention_max_workload_bytes` of one workload. Without these nothing is.
    """

    dsn: Secret | None = None
    history_limit: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 16
    blocks: bool = True
    query_connections: Annotated[int, msgspec.Meta(ge=1, le=32)] = 4
    connect_timeout_seconds: Annotated[int, msgspec.Meta(ge=2)] = 5
    statement_timeout_seconds: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    write_timeout_seconds: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    embedded_shared_buffers_bytes: Annotated[int, msgspec.Meta(ge=1024 * 1024)] = 128 * 1024 * 1024
    embedded_max_wal_bytes: Annotated[int, msgspec.Meta(ge=64 * 1024 * 1024)] = 2 * 1024 * 1024 * 1024
    retention_days: Annotated[float, msgspec.Meta(gt=0)] | None = None
    retention_workload_days: dict[str, Annotated[float, msgspec.Meta(gt=0)] | None] = {}
    retention_max_bytes: Annotated[int, msgspec.Meta(ge=1024 * 1024)] | None = None
    retention_max_workload_bytes: Annotated[int, msgspec.Meta(ge=1024 * 1024)] | None = None
