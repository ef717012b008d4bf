from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.sources.remote_write.request import cut
from lens_plugins.sources.remote_write.version2 import Translator

from lens_core.base.protobuf import WireError
from tests.plugins.sources.remote_write.wire import Request2, TimeSeries, labels_of

NOW = 1_795_000_000_000
labels = st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=40)
samples = st.lists(st.tuples(st.floats(allow_nan=False), st.integers(0, 2**50)), max_size=3)


@given(st.lists(st.tuples(labels, samples, st.integers(0, 7), st.booleans()), min_size=1, max_size=4))
def test_series_hold_the_same_whichever_road_they_take(
    given_series: list[tuple[dict[str, str], list[tuple[float, int]], int, bool]],
) -> None:
    body = Request2()
    for names, values, kind, exemplar in given_series:
        one = body.add(names, *values)
        one.metadata.type, one.metadata.help_ref = kind, body.symbol("help")
        if exemplar:
            one.exemplars.add(labels_refs=body.refs([("trace", "1")]), value=1.0, timestamp=NOW)
    message = cut(body.message.SerializeToString(), "2.0")
    quick, slow = Translator(message.symbols), Translator(message.symbols)
    for raw, (names, values, _, exemplar) in zip(message.series, given_series, strict=True):
        assert quick.series(raw) == slow._any(raw)
        found = TimeSeries.FromString(quick.series(raw))
        assert labels_of(found) == names
        assert [(sample.value, sample.timestamp) for sample in found.samples] == values
        assert len(found.exemplars) == exemplar
    assert quick.metadata == slow.metadata


@given(st.binary(max_size=80))
def test_garbage_raises_nothing_else(raw: bytes) -> None:
    with contextlib.suppress(WireError):  # the refusal is tested where it is answered
        Translator([b"", b"__name__", b"up"]).series(raw)
