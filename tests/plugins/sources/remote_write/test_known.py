from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.generated import examples
from tests.plugins.sources.remote_write.road import Road, outcome
from tests.plugins.sources.remote_write.wire import WriteRequest, request, series

NOW = 1_795_000_000_000
values = st.sampled_from([0.0, 1.0, -0.0])


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.lists(values, min_size=6, max_size=6), min_size=4, max_size=6))
def test_known_series_that_are_zero_at_times_are_what_reading_gives(rounds: list[list[float]]) -> None:
    quick = Road()
    for step, given_values in enumerate(rounds):
        labels = [
            {"__name__": ["up", "gpu_x"][n % 2], "n": str(n), "namespace": "ml", "pod": "llama-0"} for n in range(6)
        ]
        body = request(*(series(one, (value, NOW + step)) for one, value in zip(labels, given_values, strict=True)))
        raw = [one.SerializeToString() for one in WriteRequest.FromString(body).timeseries]
        assert outcome(quick, raw) == outcome(Road(templates=False), raw)


def test_a_timestamp_replaced_by_a_whole_sample_without_a_value_is_damage() -> None:
    quick = Road()
    for step in range(5):
        body = request(series({"__name__": "up", "pod": "llama-0"}, (1.0, NOW + step)))
        (raw,) = (one.SerializeToString() for one in WriteRequest.FromString(body).timeseries)
        damaged = raw[:-7] + b"\x12\x07" + raw[-7:] if step == 4 else raw
        assert outcome(quick, [raw, damaged]) == outcome(Road(templates=False), [raw, damaged])
