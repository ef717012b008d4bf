from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.sources.remote_write.request import split_request
from lens_plugins.sources.remote_write.version2 import Translator, as_version1

from lens_core.base.errors import PayloadTooLarge
from lens_core.plugin_api.protobuf import WireError
from tests.plugins.sources.remote_write.wire import Request2, TimeSeries, labels_of

LIMIT = 1 << 25
NOW = 1_795_000_000_000
labels = st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=12)
samples = st.lists(st.tuples(st.floats(allow_nan=False), st.integers(0, 2**50)), max_size=3)


@given(st.lists(st.tuples(labels, samples, st.integers(0, 7), st.booleans()), min_size=1, max_size=4))
def test_series_hold_the_same_in_both_versions(
    given_series: list[tuple[dict[str, str], list[tuple[float, int]], int, bool]],
) -> None:
    body = Request2()
    for names, values, kind, exemplar in given_series:
        one = body.add(names, *values)
        one.metadata.type, one.metadata.help_ref = kind, body.symbol("help")
        if exemplar:
            one.exemplars.add(labels_refs=body.refs([("trace", "1")]), value=1.0, timestamp=NOW)
    message = split_request(body.message.SerializeToString(), "2.0")
    translator = Translator(message.symbols, LIMIT)
    for raw, (names, values, _, exemplar) in zip(message.series, given_series, strict=True):
        found = TimeSeries.FromString(translator.series(raw))
        assert labels_of(found) == names
        assert [(sample.value, sample.timestamp) for sample in found.samples] == values
        assert len(found.exemplars) == exemplar


@given(st.binary(max_size=80))
def test_garbage_raises_nothing_else(raw: bytes) -> None:
    with contextlib.suppress(WireError):  # the refusal is tested where it is answered
        Translator([b"", b"__name__", b"up"], LIMIT).series(raw)


@pytest.mark.parametrize("what", ["series", "one series", "exemplars", "help"])
def test_references_do_not_multiply_a_body(what: str) -> None:
    """Each of these bodies of some 100 KB would become more than ten gigabytes."""
    body = Request2()
    large = body.symbol("x" * 100_000)
    for number in range(1 if what == "one series" else 1000):
        one = body.add({"__name__": f"m{number}"}, (1.0, NOW))
        refs = [body.symbol("a"), large] * (100_000 if what == "one series" else 100)
        if what in ("series", "one series"):
            one.labels_refs.extend(refs)
        elif what == "exemplars":
            one.exemplars.add(labels_refs=refs, value=1.0, timestamp=NOW)
        else:
            one.metadata.type, one.metadata.help_ref = 1, large
    message = split_request(body.message.SerializeToString(), "2.0")
    with pytest.raises(PayloadTooLarge, match="send smaller batches"):
        as_version1(message.series, Translator(message.symbols, LIMIT))
