"""The range of every number of every record, and how many parts each may have: one place, the same for every source.

The types are those of the records' fields, so that whatever decodes a record checks it; `refusals.py` has what types
cannot say. The bounds keep every number inside the store's types, and what others compute from one record small.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

from ..base.json_items import MAX_NAME_LENGTH

MAX_METRICS = 20_000
MAX_LABELS = 512
MAX_WORKLOADS = 256
MAX_ANCESTORS = 32
MAX_DEVICES = 4096
MAX_FACT_DEPTH = 64
MAX_FACTS = 200_000
_LARGEST = 2**63 - 1
_LARGEST_INTEGER = 2**31 - 1

Step: TypeAlias = Annotated[int, Meta(ge=-_LARGEST - 1, le=_LARGEST)]
SequenceNumber: TypeAlias = Annotated[int, Meta(ge=-_LARGEST - 1, le=_LARGEST)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=_LARGEST)]
Attempt: TypeAlias = Annotated[int, Meta(ge=0, le=_LARGEST_INTEGER)]
# Launchers say -1 where there is none.
Rank: TypeAlias = Annotated[int, Meta(ge=-1, le=_LARGEST_INTEGER)]
WorldSize: TypeAlias = Annotated[int, Meta(ge=0, le=_LARGEST_INTEGER)]
NodeId: TypeAlias = Annotated[int, Meta(ge=-_LARGEST_INTEGER - 1, le=_LARGEST_INTEGER)]
Confidence: TypeAlias = Annotated[float, Meta(ge=0.0, le=1.0)]
# Seconds since 1970, from year 1 to year 9999.
EventTime: TypeAlias = Annotated[float, Meta(ge=-62_135_596_800.0, le=253_402_300_799.0)]

MetricName: TypeAlias = Annotated[str, Meta(max_length=MAX_NAME_LENGTH)]
Values: TypeAlias = Annotated[dict[MetricName, float], Meta(max_length=MAX_METRICS)]
Labels: TypeAlias = Annotated[dict[str, str], Meta(max_length=MAX_LABELS)]
MetricTags: TypeAlias = Annotated[dict[str, Labels], Meta(max_length=MAX_METRICS)]
