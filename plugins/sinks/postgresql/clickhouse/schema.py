"""The table of points, and what a version is.

A version is one metric of one row as one write had it. Rows of the table with one key are the same version: delivered
again, or with times that are known better by now. They are merged by functions whose order does not matter (the
greater value, the earlier time, the later update), in the background and once more by whoever reads, so that neither
a redelivery nor the order of arrival changes an answer. The version with the highest (priority, sequence) is current.

Time and iteration are those of the whole row: a write that changes them repeats the current versions with them. The
time is `sequence + lag` where that cannot leave 64 bits, which it never does for sequences that are times: the
difference of two times takes hardly any room.

`spool` and `position` name the batch that brought a version. PostgreSQL's cursor of that spool says whether the
figures count it: ClickHouse is written first, so that a version may be there whose transaction never was.
"""

from __future__ import annotations

TABLE = "lens_point"
# Of a row without values: a name that no metric can have, since texts are cleaned of NUL.
NO_METRIC = "\x00"
NO_TIME = 2**63 - 1
NO_NUMBER = -(2**63)
# Sequences within these bounds have their time as a lag.
MOST_SEQUENCE = 2**62
# The streams of one partition, in the order of their first sight: all of them gone, it is dropped as a whole.
PARTITION_STREAMS = 65_536

COLUMNS = {
    "stream": "UInt64",
    "metric": "LowCardinality(String)",
    "step": "Int64",
    "priority": "Int32",
    "sequence": "Int64",
    "spool": "UInt64",
    "position": "UInt64",
    "bits": "UInt64",
    "tags": "String",
    "has_iteration": "UInt8",
    "iteration": "Int64",
    "lag": "Int64",
    "event_us": "Int64",
    "updated_us": "Int64",
    "received_us": "Int64",
}
_MERGED = {
    "position": "min",
    "bits": "max",
    "tags": "max",
    "has_iteration": "max",
    "iteration": "max",
    "lag": "min",
    "event_us": "min",
    "updated_us": "max",
    "received_us": "min",
}
_CODECS = {
    "step": "DoubleDelta, ZSTD(1)",
    "sequence": "DoubleDelta, ZSTD(1)",
    "iteration": "DoubleDelta, ZSTD(1)",
    "lag": "Delta, ZSTD(1)",
    "received_us": "Delta, ZSTD(1)",
}
TIME = f"multiIf(lag < {NO_TIME}, sequence + lag, event_us < {NO_TIME}, event_us, received_us)"
_VALUE = "reinterpretAsFloat64(if(bits >= 9223372036854775808, bitXor(bits, 9223372036854775808), bitNot(bits)))"


def create_statements(database: str) -> list[str]:
    """Make the table where it is not there."""
    columns = [
        f"{name} {f'SimpleAggregateFunction({_MERGED[name]}, {kind})' if name in _MERGED else kind}"
        f" codec({_CODECS.get(name, 'ZSTD(1)')})"
        for name, kind in COLUMNS.items()
    ]
    # For those who ask ClickHouse itself; of a metric that was overwritten all versions are there.
    columns += [f"time_us Int64 alias {TIME}", f"value Float64 alias {_VALUE}"]
    return [
        f"create table if not exists {TABLE} ({', '.join(columns)}) engine = AggregatingMergeTree"
        f" partition by intDiv(stream, {PARTITION_STREAMS})"
        " order by (stream, metric, step, priority, sequence, spool)"
        " settings non_replicated_deduplication_window = 1000"
    ]
