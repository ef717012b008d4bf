"""Measurements of machines as rows: all that was measured of one machine in one second is one row.

Rows have blocks, retention and a column store already; so a machine is stored like a workload that no list shows
(`measured_uid`), with a run for each day, so that retention finds days that are over.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone

from lens_core import Measurement, Origin, StepMetrics
from lens_core.plugin_api.store import measured_uid

DATA_SOURCE = "measured"
# They are the same in all series of a device, and only make names longer.
_LEFT_OUT_TAGS = frozenset({"vendor", "model", "node"})
_LAST_SECOND = 253402300799  # of the year 9999


def series_name(name: str, tags: Mapping[str, str]) -> str:
    """The name of a series: `gpu.used_pct{gpu=0}`."""
    told = ",".join(f"{key}={value}" for key, value in sorted(tags.items()) if key not in _LEFT_OUT_TAGS)
    return f"{name}{{{told}}}" if told else name


def rows_of_measurements(records: Iterable[tuple[int, Measurement]]) -> list[tuple[list[int], StepMetrics]]:
    """One row for each machine and second, beside the indexes of its records; those without a value are left out."""
    now = time.time()
    found: dict[tuple[str, str, int], tuple[list[int], dict[str, float], float]] = {}
    for index, record in records:
        if record.value is None:
            continue
        at = now if record.event_time is None else record.event_time
        second = max(0, min(int(at), _LAST_SECOND))
        place = (record.origin.cluster, measured_uid(record.origin), second)
        indexes, values, _ = found.setdefault(place, ([], {}, at))
        indexes.append(index)
        values[series_name(record.name, record.tags)] = record.value
    return [
        (
            indexes,
            StepMetrics(
                origin=Origin(cluster=cluster, workload_uid=uid),
                data_source=DATA_SOURCE,
                run_id=datetime.fromtimestamp(second, timezone.utc).date().isoformat(),
                row_step=second,
                values=values,
                event_time=at,
                sequence=second,
                attempt=1,
            ),
        )
        for (cluster, uid, second), (indexes, values, at) in found.items()
    ]
