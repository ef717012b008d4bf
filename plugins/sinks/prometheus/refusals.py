"""Dead letters for refusals of the store: whole records, or just the series that it refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lens_core import Batch, Record, Rejected, SeriesBatch

from .delivering import Outcome
from .messages import Outgoing, Packed, counts, pack_message

# All training rows of a batch are one request of Lens' own; it has no record's index.
OWN = -1


def rejected(
    batch: Batch, settled: Mapping[tuple[int, int], Outcome], broken: Mapping[int, str], filtered: int
) -> Rejected:
    """The answer for a batch: `settled` by record and shard, `broken` records and why they could not be sent at all.

    A record of which nothing was stored is a dead letter as it is; of one that was stored in part the refused series
    are. Those of training rows stand in for the first row.
    """
    items = dict(broken)
    parts: dict[int, Record] = {}
    for index, outcomes in _by_record(settled).items():
        lost = [packed for outcome in outcomes for packed in outcome.lost]
        if not lost:
            continue
        rows = [number for number, record in enumerate(batch.records) if not isinstance(record, SeriesBatch)]
        reason = next(outcome.example for outcome in outcomes if outcome.example)
        if not any(outcome.stored for outcome in outcomes):
            items |= dict.fromkeys(rows if index == OWN else [index], reason)
            continue
        place = rows[0] if index == OWN else index
        refused = sum(max(1, packed.series) for packed in lost)
        total = refused + sum(outcome.stored for outcome in outcomes)
        items[place] = f"{refused} of {total} series: {reason}"
        parts[place] = _record_of(lost)
    return Rejected(items, filtered=filtered, parts=parts)


def _by_record(settled: Mapping[tuple[int, int], Outcome]) -> dict[int, list[Outcome]]:
    found: dict[int, list[Outcome]] = {}
    for (index, _), outcome in settled.items():
        found.setdefault(index, []).append(outcome)
    return found


def _record_of(lost: Sequence[Packed]) -> SeriesBatch:
    """One request of all that was refused."""
    messages = [packed.message() for packed in lost]
    series = [one for message in messages for one in message.series]
    metadata = [one for message in messages for one in message.metadata]
    samples, exemplars, histograms = counts(series)
    return SeriesBatch(
        body=pack_message(Outgoing(series, metadata)).block,
        compression="snappy",
        series=len(series),
        samples=samples,
        exemplars=exemplars,
        histograms=histograms,
    )
