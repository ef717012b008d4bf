from __future__ import annotations

import json
import math
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from lens_core import Event, Origin, StepMetrics
from lens_core.model.records import (
    RECORD_KINDS,
    AnyRecord,
    Record,
    decode_envelope,
    decode_json_envelope,
    encode_envelope,
)

ROW: dict[str, st.SearchStrategy[Any]] = {
    "data_source": st.sampled_from(["wandb", "log", "their own"]),
    "row_step": st.integers(-(2**63), 2**63 - 1),
    "iteration": st.none() | st.integers(-(2**63), 2**63 - 1),
    "values": st.dictionaries(st.text(), st.floats(allow_nan=False)),
    "sequence": st.integers(0, 2**63 - 1),
}
STEP_METRICS = st.builds(
    StepMetrics,
    **ROW,
    origin=st.builds(Origin, workload_uid=st.text(), rank=st.none() | st.integers(0, 2**31 - 1)),
)


@given(records=st.lists(STEP_METRICS | st.builds(Event, type=st.text(), iteration=st.none()), max_size=5))
def test_an_envelope_gives_back_what_was_put_in(records: list[AnyRecord]) -> None:
    decoded = decode_envelope(encode_envelope(records))
    assert decoded.records == records
    assert decoded.rejected == []


ORIGINS = st.sampled_from([Origin(), Origin(pod_name="a"), Origin(pod_name="b", labels={"team": "x"}, rank=0)])


@given(
    records=st.lists(st.builds(StepMetrics, **ROW, origin=ORIGINS) | st.builds(Event, type=st.text(), origin=ORIGINS))
)
def test_origins_that_records_share_or_do_not_come_back(records: list[AnyRecord]) -> None:
    assert decode_envelope(encode_envelope(records)).records == records


def test_an_origin_that_all_records_have_is_written_once() -> None:
    rows = [
        StepMetrics(origin=Origin(pod_name="of-all"), data_source="w", row_step=step, values={}) for step in range(3)
    ]
    body = encode_envelope(rows)
    assert body.count(b"of-all") == 1
    decoded = decode_envelope(body).records
    assert decoded == rows
    assert decoded[0].origin is decoded[2].origin
    assert encode_envelope([*rows, Event(type="from nowhere")]).count(b"of-all") == 3
    assert decode_envelope(encode_envelope(rows[:1])).origin == Origin(), "a single record is whole"


def test_the_origin_of_an_envelope_loses_to_that_of_a_record() -> None:
    bad, plain = {"record": "from_the_future"}, {"record": "event", "type": "t"}
    own = {**plain, "origin": {"pod_name": "own"}}
    for records in ([plain, own], [plain, bad, own]):
        packed = msgspec.msgpack.encode({"version": 1, "origin": {"pod_name": "shared"}, "records": records})
        assert [record.origin.pod_name for record in decode_envelope(packed).records] == ["shared", "own"]


def test_nan_survives_both_forms() -> None:
    row = StepMetrics(data_source="wandb", row_step=1, values={"loss": math.nan, "up": math.inf})
    values = decode_envelope(encode_envelope([row])).records[0].values  # type: ignore[union-attr]
    assert math.isnan(values["loss"])
    record = b'{"record":"step_metrics","data_source":"w","row_step":1,"values":{"a":NaN,"b":"-Infinity"}}'
    values = decode_json_envelope(b'{"version":1,"records":[%b]}' % record).records[0].values  # type: ignore[union-attr]
    assert math.isnan(values["a"])
    assert values["b"] == -math.inf


def test_an_unknown_kind_and_a_bad_record_lose_no_other() -> None:
    good = {"record": "step_metrics", "data_source": "w", "row_step": 1, "values": {"a": 1}}
    records = [good, {"record": "from_the_future", "x": 1}, {**good, "row_step": "one"}, {**good, "later_field": 5}]
    decoded = decode_json_envelope(json.dumps({"version": 1, "records": records}).encode())
    assert len(decoded.records) == 2
    assert [index for index, _ in decoded.rejected] == [1, 2]
    packed = msgspec.msgpack.encode({"version": 1, "records": records})
    assert [index for index, _ in decode_envelope(packed).rejected] == [1, 2]


def test_every_kind_is_listed_under_its_tag() -> None:
    for name, kind in RECORD_KINDS.items():
        assert kind.__struct_config__.tag == name
    assert set(RECORD_KINDS.values()) == set(Record.__subclasses__())
