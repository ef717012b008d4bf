from __future__ import annotations

import random
import struct
from collections.abc import Sequence

from hypothesis import example, given, settings
from hypothesis import strategies as st

from lens_core import Pod
from tests.generated import examples
from tests.plugins.sources.remote_write.conftest import PODS
from tests.plugins.sources.remote_write.road import Road, outcome
from tests.plugins.sources.remote_write.wire import WriteRequest, labels_of, request, series

NOW = 1_795_000_000_000
STALE = struct.unpack("<d", bytes.fromhex("020000000000f07f"))[0]
Row = tuple[str, str, str, float, int]


def cut_out(*all_series: object) -> list[bytes]:
    """The series of a request, each by itself."""
    return [one.SerializeToString() for one in WriteRequest.FromString(request(*all_series)).timeseries]


def rows_of(rows: Sequence[Row], rack: int) -> list[bytes]:
    """Series whose labels no other rack has."""
    return cut_out(
        *(
            series(
                {"__name__": name, "a": f"{n:03}", "namespace": "ml", "pod": pod, "q": text, "rack": f"r{rack}"},
                (value, NOW + later),
            )
            for n, (name, pod, text, value, later) in enumerate(rows)
        )
    )


# Names and texts of the same lengths, so that what is of another kind does not show before it is looked at closely.
kinds = st.tuples(
    st.sampled_from(["up", "us", "gpu_x"]),
    st.sampled_from(["llama-0", "llama-1", "lonely"]),
    st.sampled_from(["aa", "ab", "\xe9", "\x0a\x00", "a\x00", "aaa", "a" * 1100]),
    st.sampled_from([1.0, 2.0, 0.0, -1.0, -0.0, float("nan"), STALE]),
    st.sampled_from([0, 1, 2**32, 2**42]),
)


@settings(max_examples=examples(60), deadline=None)
@given(kinds, st.lists(kinds, max_size=12), st.integers(0, 50), st.booleans(), st.data())
def test_what_is_stacked_is_what_reading_gives_to_the_byte(
    usual: Row, others: list[Row], place: int, sort: bool, data: st.DataObject
) -> None:
    quick, slow = Road(), Road(templates=False)
    for rack in range(4):
        rows = [usual] * 50
        rows[place:place] = data.draw(st.permutations(others))
        raw = rows_of(rows, rack)
        if sort:
            raw.sort(key=len)
        assert outcome(quick, raw) == outcome(slow, raw)


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(kinds, min_size=1, max_size=8), st.randoms(use_true_random=False), st.integers(0, 4))
def test_kinds_in_any_order_and_pods_that_change_are_what_reading_gives_to_the_byte(
    some: list[Row], order: random.Random, changed: int
) -> None:
    quick, slow = Road(), Road(templates=False)
    for rack in range(5):
        raw = rows_of(order.choices(some, k=80), rack)
        if rack == changed:
            for road in (quick, slow):
                road.directory.replace([*PODS[1:], Pod(uid="u-new", name="llama-1", namespace="ml")], "test")
        assert outcome(quick, raw) == outcome(slow, raw)


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 59), st.integers(1, 30), st.integers(0, 90), st.integers(0, 255), st.integers(1, 3))
@example(20, 1, 2, 0, 3)  # alone with its pod
@example(20, 20, 2, 0, 3)  # with others of the same kind, all of them damaged
@example(20, 20, 85, 0xFF, 3)  # a negative value
@example(20, 20, 88, 0x7F, 3)  # a timestamp that ends too early
def test_damaged_rows_among_others_are_what_they_would_be_alone(
    row: int, count: int, place: int, byte: int, known: int
) -> None:
    quick, slow = Road(), Road(templates=False)
    for rack in range(known + 1):
        # Another pod, which gives other labels: so these rows are on a sheet of their own.
        pods = ["llama-1" if row <= n < row + count else "llama-0" for n in range(60)]
        raw = rows_of([("up", pod, "aa", 1.0, 0) for pod in pods], rack)
        for number in range(row, min(row + count, 60)) if rack == known else ():
            damaged = bytearray(raw[number])
            damaged[place % len(damaged)] = byte
            raw[number] = bytes(damaged)
        assert outcome(quick, raw) == outcome(slow, raw)


def test_rows_of_sheets_keep_the_order_of_the_request() -> None:
    road = Road()
    pods = ["llama-0", "lonely0"]
    for rack in range(4):
        rows = [("up" if n % 3 else "gpu_x", pods[n % 2], "aa", float(n), 0) for n in range(80)]
        message = WriteRequest.FromString(b"".join(road.take(rows_of(rows, rack)).pieces))
        assert [one.samples[0].value for one in message.timeseries] == list(range(80))
        assert [labels_of(one).get("workload_uid") for one in message.timeseries] == ["w-job", None] * 40


def test_series_without_labels_that_tell_a_pod_are_stacked() -> None:
    quick, slow = Road(), Road(templates=False)
    for rack in range(5):
        raw = cut_out(*(series({"__name__": "up", "a": f"{rack}-{n:02}"}, (1.0, NOW)) for n in range(60)))
        assert outcome(quick, raw) == outcome(slow, raw)


def test_stacked_rows_that_come_again_are_remembered_all() -> None:
    road = Road()
    rows: list[Row] = [("up", "llama-0", "aa", float(n), 0) for n in range(200)]
    for rack in (0, 1, 1):
        first = b"".join(road.take(rows_of(rows, rack)).pieces)
    assert road.enricher.remembered == 200
    assert b"".join(road.take(rows_of(rows, 1)).pieces) == first
    assert b"".join(Road(templates=False).take(rows_of(rows, 1)).pieces) == first


def test_who_is_asked_does_not_depend_on_how_long_others_are() -> None:
    road = Road()
    rows: list[Row] = [("up", "llama-0", "aa", float(n), 0) for n in range(200)]
    for rack in (0, 1):
        road.take(rows_of(rows, rack))
    # The first one is another, so that it speaks for nobody.
    longer = rows_of([("up", "llama-0", "a" * 200, 1.0, 0)], 9)
    road.take([*longer, *rows_of(rows, 1)])
    assert road.enricher.remembered > 100
