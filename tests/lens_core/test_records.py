from __future__ import annotations

import json
import math

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from lens_core import Event, Origin, StepMetrics
from lens_core.records import RECORD_KINDS, AnyRecord, Record, decode_envelope, decode_json_envelope, encode_envelope

STEP_METRICS = st.builds(
    StepMetrics,
    origin=st.builds(Origin, workload_uid=st.text(), rank=st.none() | st.integers(0, 2**31)),
    data_source=st.sampled_from(["wandb", "log", "their own"]),
    row_step=st.integers(-(2**63), 2**63 - 1),
    iteration=st.none() | st.integers(-(2**63), 2**63 - 1),
    values=st.dictionaries(st.text(), st.floats(allow_nan=False)),
    sequence=st.integers(0, 2**63 - 1),
)


@given(records=st.lists(STEP_METRICS | st.builds(Event, type=st.text(), iteration=st.none()), max_size=5))
def test_an_envelope_gives_back_what_was_put_in(records: list[AnyRecord]) -> None:
    decoded = decode_envelope(encode_envelope(records))
    assert decoded.records == records
    assert decoded.rejected == []


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
