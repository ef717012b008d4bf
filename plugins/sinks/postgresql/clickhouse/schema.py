"""The tables of points and of their roll-up, and what a version is.

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

from collections.abc import Collection, Mapping, Sequence

TABLE = "lens_point"
RANGE_TABLE = "lens_range"
# A range of the roll-up has 2**RANGE_BITS steps.
RANGE_BITS = 9
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
# A block leaves out columns that have these in all of its rows.
DEFAULTS: dict[str, int | str] = {
    "priority": 0,
    "tags": "",
    "has_iteration": 0,
    "iteration": NO_NUMBER,
    "event_us": NO_TIME,
    "updated_us": NO_NUMBER,
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
# Nearly all but values is constant or evenly spaced: a costlier compression makes it no smaller.
_CODECS = {
    "step": "DoubleDelta, LZ4",
    "sequence": "DoubleDelta, LZ4",
    "iteration": "DoubleDelta, LZ4",
    "lag": "Delta, LZ4",
    "received_us": "Delta, LZ4",
    "bits": "ZSTD(1)",
}
# As an expression: the lowest number is none that can be written with its sign.
_DEFAULT_VALUES = {name: f"'{value}'" if value == "" else f"toInt64('{value}')" for name, value in DEFAULTS.items()}
_BY_STEP = "Tuple(Int64, Int64, UInt64)"
_BY_BITS = "Tuple(UInt64, Int64, Int64)"
RANGE_COLUMNS = {
    "stream": "UInt64",
    "metric": "LowCardinality(String)",
    "part": "Int64",
    "first": _BY_STEP,
    "last": _BY_STEP,
    "lowest": _BY_BITS,
    "highest": _BY_BITS,
    "no_number": "Tuple(Int64, Int64)",  # `nan` is a number of ClickHouse
}
TIME = f"multiIf(lag < {NO_TIME}, sequence + lag, event_us < {NO_TIME}, event_us, received_us)"
_VALUE = "reinterpretAsFloat64(if(bits >= 9223372036854775808, bitXor(bits, 9223372036854775808), bitNot(bits)))"
# Settings of a table that not every version of ClickHouse has. No statistics of columns are made, since no question
# uses them. Twenty parts of about one size are merged at once, not five, which rewrites a point twice rather than five
# times; ranges are few, and are read out of many parts in twice the time.
_SETTINGS_OF_SOME: Mapping[str, Mapping[str, str]] = {
    TABLE: {"merge_selector_base": "20", "auto_statistics_types": "''"},
    RANGE_TABLE: {"auto_statistics_types": "''"},
}
FIND_SETTINGS = (
    "select name from system.merge_tree_settings"
    f" where name in ({', '.join(repr(name) for name in _SETTINGS_OF_SOME[TABLE])})"
)


def create_statements(more: Sequence[str] = (), settings: Collection[str] = ()) -> list[str]:
    """Make the tables where they are not there, with some more columns; `settings` are those of FIND_SETTINGS."""
    chosen = {
        table: ", ".join(
            [
                "non_replicated_deduplication_window = 1000",
                *(f"{name} = {value}" for name, value in known.items() if name in settings),
            ]
        )
        for table, known in _SETTINGS_OF_SOME.items()
    }
    columns = [
        f"{name} {f'SimpleAggregateFunction({_MERGED[name]}, {kind})' if name in _MERGED else kind}"
        f"{f' default {_DEFAULT_VALUES[name]}' if name in _DEFAULT_VALUES else ''}"
        f" codec({_CODECS.get(name, 'LZ4')})"
        for name, kind in COLUMNS.items()
    ]
    # For those who ask ClickHouse itself; of a metric that was overwritten all versions are there.
    columns += [f"time_us Int64 alias {TIME}", f"value Float64 alias {_VALUE}"]
    ranges = [
        f"{name} {f'SimpleAggregateFunction(min, {kind})' if kind.startswith('Tuple') else kind} codec(ZSTD(1))"
        for name, kind in RANGE_COLUMNS.items()
    ]
    return [
        f"create table if not exists {table} ({', '.join([*found, *more])}) engine = AggregatingMergeTree"
        f" partition by intDiv(stream, {PARTITION_STREAMS}) order by ({key})"
        f" settings {chosen[table]}"
        for table, found, key in (
            (TABLE, columns, "stream, metric, step, priority, sequence, spool"),
            (RANGE_TABLE, ranges, "stream, metric, part"),
        )
    ]
