from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lens_plugins.sources.remote_write.drops import Drops
from lens_plugins.sources.remote_write.enriching import Enricher
from lens_plugins.sources.remote_write.passed import Passed
from lens_plugins.sources.remote_write.passing import Passage
from lens_plugins.sources.remote_write.plates.press import Press
from lens_plugins.sources.remote_write.plates.printing import Printing
from lens_plugins.sources.remote_write.request import cut, series_at
from lens_plugins.sources.remote_write.settings import RemoteWriteSettings

from lens_core import Pod
from lens_core.base.errors import RequestError
from lens_core.base.protobuf import delimited
from lens_core.base.self_metrics import SelfMetrics
from lens_core.directory.directory import Directory
from tests.plugins.sources.remote_write.conftest import PODS
from tests.plugins.sources.remote_write.wire import WriteRequest, request, series

NOW = 1_795_000_000_000
STALE = struct.unpack("<d", bytes.fromhex("020000000000f07f"))[0]


class Printer:
    """Takes whole requests by plates, and by reading every series; both must give the same."""

    def __init__(self, copies: str = "none", cached_series: int = 150_000) -> None:
        self.directory = Directory()
        self.directory.replace(PODS, "test")
        chosen = RemoteWriteSettings(cached_series=cached_series, copies=copies)
        self.clock = 0.0
        self.enricher = Enricher(chosen, self.directory, lambda: self.clock)
        self.passage = Passage(self.enricher, Drops(10, SelfMetrics()))
        self.press = Press(
            self.enricher, self.passage, cached_series, of_new=copies == "none", clock=lambda: self.clock
        )
        self._reader = Enricher(chosen, self.directory)
        self._reader.templates.learn = lambda *_: None
        self._reading = Passage(self._reader, Drops(10, SelfMetrics()))
        # Series that were printed, of the last request.
        self.printed = 0

    def take(self, body: bytes) -> bytes:
        """What goes on of a request, which is what reading gives."""
        outcome = _outcome(self._print, body)
        # By itself: to explain where so many bytes differ would take minutes.
        same = outcome == _outcome(self._read, body)
        assert same
        goes: bytes = outcome[0]
        return goes

    def _print(self, body: bytes, passed: Passed) -> int:
        place = count = 0
        while (step := self.press.print(body, place, passed, 100))[1]:
            place, count = step[0], count + step[1]
        self.printed = passed.printed
        rest = cut(body[place:], "1.0").series
        self.press.take(rest, passed)
        series: int = count + len(rest)
        return series

    def _read(self, body: bytes, passed: Passed) -> int:
        every = cut(body, "1.0").series
        self._reader.begin()
        self._reading.take(every, passed)
        return len(every)


def _outcome(take: Callable[[bytes, Passed], int], body: bytes) -> tuple[Any, ...]:
    """What goes on, and what is counted; or why the request is refused."""
    passed = Passed()
    try:
        count = take(body, passed)
    except (ValueError, RequestError) as error:
        return (type(error), str(error))
    counts = (passed.series, passed.samples, passed.histograms, passed.exemplars, passed.unattached, passed.dropped)
    return b"".join(passed.pieces), count, *counts, passed.refused, sorted(passed.messages)


@dataclass(frozen=True)
class One:
    """A series of a target."""

    name: str
    number: int
    value: float = 1.0
    pod: str = "llama-0"
    run: str = "r1"
    histogram: bool = False

    def at(self, step: int, target: int = 0) -> bytes:
        """Its bytes, tag and size included."""
        labels = {"__name__": self.name, "a": f"{self.number:03}", "namespace": "ml", "pod": self.pod}
        labels |= {"q": f"t{target}", "run": self.run}
        stamp = NOW + 1000 * step + target
        samples = () if self.histogram else ((self.value, stamp),)
        more = {"histograms": [{"count_int": 0, "timestamp": stamp}]} if self.histogram else {}
        return delimited(1, series(labels, *samples, **more).SerializeToString())


def target(count: int, first: int = 0) -> list[One]:
    """Series of one target: of several names, and of pods that are known or not."""
    names = ["up", "gpu_temperature", "node_load1", "requests_total"]
    pods = ["llama-0", "llama-1", "lonely"]
    return [One(names[n % 4], n, float(n + 1), pods[n // 7 % 3]) for n in range(first, first + count)]


def body_of(some: Sequence[One], step: int, number: int = 0) -> bytes:
    """A request with these series."""
    return b"".join(one.at(step, number) for one in some)


def test_what_comes_the_third_time_is_printed_whole() -> None:
    printer, some = Printer(), target(300)
    for step in range(5):
        printer.take(body_of(some, step))
    assert printer.printed == 300


def test_new_label_sets_of_the_same_structure_are_printed() -> None:
    printer, some = Printer(), target(300)
    for step in range(5):
        printer.take(body_of([replace(one, run=f"r{step}") for one in some], step))
    assert printer.printed == 300
    # Not one of them is remembered: they come once.
    assert printer.enricher.remembered == 0


def test_a_label_that_tells_the_pod_or_the_name_may_not_differ() -> None:
    printer, some = Printer(), target(300)
    for step in range(4):
        printer.take(body_of(some, step))
    for other in (replace(some[140], pod="llama-1"), replace(some[140], name="node_loae1")):
        printer.take(body_of([*some[:140], other, *some[141:]], 5))
    printer.take(body_of([replace(one, pod="llama-1") for one in some], 6))
    assert printer.printed < 300


def test_a_name_whose_negative_samples_are_dropped_is_not_taken_for_another() -> None:
    printer, some = Printer(), [replace(one, name="cpu_load") for one in target(100)]
    for step in range(4):
        printer.take(body_of([replace(one, run=f"r{step}") for one in some], step))
    some[50] = replace(some[50], name="gpu_load", value=-1.0)
    printer.take(body_of([replace(one, run="r5") for one in some], 5))


edits: list[Callable[[random.Random, list[One]], None]] = [
    lambda chance, some: some.remove(chance.choice(some)),
    lambda chance, some: some.insert(chance.randrange(len(some)), One("brand_new", 777, -1.0)),
    lambda chance, some: some.insert(chance.randrange(len(some)), One("up", 778, 1.0, histogram=True)),
    lambda chance, some: _change(chance, some, value=0.0),
    lambda chance, some: _change(chance, some, value=2.5),
    lambda chance, some: _change(chance, some, value=-2.5),
    lambda chance, some: _change(chance, some, value=-0.0),
    lambda chance, some: _change(chance, some, value=STALE),
    lambda chance, some: _change(chance, some, run="r2"),
    lambda chance, some: _change(chance, some, run="é"),
    lambda chance, some: _change(chance, some, run="r" * 1200),
    lambda chance, some: _change(chance, some, pod="llama-1"),
    lambda chance, some: some.reverse() if chance.random() < 0.1 else None,
]


def _change(chance: random.Random, some: list[One], **what: object) -> None:
    place = chance.randrange(len(some))
    some[place] = replace(some[place], **what)  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 6), st.integers(60, 700), st.sampled_from(["none", "also"]))
def test_whatever_changes_what_goes_on_is_what_reading_gives_to_the_byte(
    chance: random.Random, changes: int, at_a_time: int, copies: str
) -> None:
    printer = Printer(copies)
    targets = [target(chance.randrange(70, 300), first) for first in (0, 300, 600)]
    stream: list[bytes] = []
    for step in range(12):
        for number, some in enumerate(targets):
            for _ in range(changes if step > 3 else 0):
                chance.choice(edits)(chance, some)
            stream += [one.at(step, number) for one in some]
    # Cut where the sender's requests are full, whatever stands there.
    for start in range(0, len(stream), at_a_time):
        printer.take(b"".join(stream[start : start + at_a_time]))


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(3, 7))
def test_pods_that_change_and_generations_that_pass_make_no_difference(chance: random.Random, changed: int) -> None:
    printer, some = Printer(cached_series=1000), target(400)
    for step in range(10):
        if step == changed:
            printer.directory.replace([*PODS[1:], Pod(uid="u-new", name="llama-1", namespace="ml")], "test")
        printer.clock += chance.choice([15.0, 700.0])
        printer.take(body_of(some, step))
        printer.take(body_of(target(400, 400), step, 1))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.integers(0, 255))
def test_damage_within_a_plate_is_what_it_would_be_without_one(place: int, byte: int) -> None:
    printer, some = Printer(), target(100)
    for step in range(4):
        printer.take(body_of(some, step))
    damaged = bytearray(body_of(some, 5))
    damaged[place % len(damaged)] = byte
    printer.take(bytes(damaged))


@pytest.mark.parametrize("place", range(1, 17))
@pytest.mark.parametrize("byte", [0x00, 0x7F, 0x80, 0xFF])
def test_damage_within_a_sample_is_seen(place: int, byte: int) -> None:
    printer, some = Printer(), target(100)
    for step in range(4):
        printer.take(body_of(some, step))
    rows = [one.at(5) for one in some]
    rows[50] = rows[50][:-place] + bytes([byte]) + rows[50][len(rows[50]) - place + 1 :]
    printer.take(b"".join(rows))


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("change", [1, 2, 8, 0x80])
def test_damage_between_series_whose_labels_may_differ_is_seen(place: int, change: int) -> None:
    printer, some = Printer(), target(100)
    for step in range(5):
        printer.take(body_of([replace(one, run=f"r{step}") for one in some], step))
    assert printer.printed == 100
    rows = [replace(one, run="r9").at(9) for one in some]
    rows[50] = rows[50][:place] + bytes([rows[50][place] ^ change]) + rows[50][place + 1 :]
    printer.take(b"".join(rows))


def test_series_between_plates_and_behind_them_keep_their_order() -> None:
    printer, some = Printer(), target(200)
    for step in range(6):
        body = body_of(some, step)
        extra = One("late", step, float(step)).at(step)
        printer.take(body + extra + body_of(target(150, 300), step))
    assert printer.printed == 350


def at_once(printer: Printer, body: bytes) -> int:
    """How many series are printed off one plate."""
    part = printer.press.rack.print(printer.press.clues(series_at(body, 0)[0]), body, 0)
    return 0 if part is None else part.series


def test_series_that_are_zero_at_times_leave_holes() -> None:
    printer, some = Printer(), target(300)
    for step in range(12):
        for place, often in ((100, 2), (101, 3), (250, 1)):
            some[place] = replace(some[place], value=float(step // often % 2))
        printer.take(body_of(some, step))
    assert at_once(printer, body_of(some, 12)) == 300


def test_nothing_is_printed_of_what_begins_with_a_longer_series() -> None:
    printer, some = Printer(), target(100)
    for step in range(4):
        printer.take(body_of([replace(one, run=f"r{step}") for one in some], step))
    clues = printer.press.clues(series_at(body_of(some, 4), 0)[0])
    (plate,) = (plate for plate, _ in printer.press.rack.candidates(clues))
    assert Printing(plate, 0, body_of([replace(one, run="longer") for one in some], 4), 0).part().printed == 0
    assert Printing(plate, 0, body_of([replace(one, run="r9") for one in some], 4), 0).part().printed == 100


def test_series_that_have_no_plate_leave_holes() -> None:
    printer, some = Printer(), target(300)
    for place in (0, 40, 41, 200, 299):
        some[place] = replace(some[place], histogram=True)
    for step in range(6):
        printer.take(body_of(some, step))
    assert at_once(printer, body_of(some[1:], 7)) == 298


@pytest.mark.parametrize("apart", [0, 1, 3])
def test_plates_that_always_come_one_after_the_other_become_one(apart: int) -> None:
    # The pod that changes in the end is in the second one only.
    some = [replace(one, pod="lonely" if n < 200 else "llama-0") for n, one in enumerate(target(400))]
    printer = Printer()
    # By its first requests, a sender has cut the run into two.
    for step in range(4):
        printer.take(body_of(some[:150], step))
    for step in range(4, 13):
        stamp = NOW + 1000 * step
        two = delimited(1, series({"__name__": "two_samples"}, (1.0, stamp - 1), (2.0, stamp)).SerializeToString())
        body = body_of(some[:150], step) + two * apart + body_of(some[150:], step)
        printer.take(body)
    assert at_once(printer, body) == 400 + apart
    # The pods of both are still asked for.
    printer.directory.replace([*PODS[1:], Pod(uid="u-new", name="llama-0", namespace="ml")], "test")
    assert b"u-new" in printer.take(body)


def test_requests_that_begin_and_end_within_runs_are_printed() -> None:
    printer, some = Printer(), target(530)
    printed = 0
    rows = [one.at(step) for step in range(40) for one in some]
    for start in range(0, len(rows), 500):
        printer.take(b"".join(rows[start : start + 500]))
        printed += printer.printed
    # Not those of the first scrapes, and a few between two plates.
    assert printed > len(rows) * 0.85


def test_metadata_between_series_is_no_series() -> None:
    printer, some = Printer(), target(200)
    metadata = request(metadata=[{"type": 1, "metric_family_name": "up"}])
    for step in range(5):
        printer.take(body_of(some[:100], step) + metadata + body_of(some[100:], step))


def test_copies_are_printed_too() -> None:
    printer, some = Printer("also"), target(300)
    for step in range(5):
        goes = printer.take(body_of(some, step))
    assert printer.printed == 300
    assert len(WriteRequest.FromString(goes).timeseries) > 300


def test_series_in_another_order_each_time_end_the_making_of_plates() -> None:
    printer, some, chance = Printer(), target(400), random.Random(7)
    for step in range(400):
        printer.take(body_of([some[0], *chance.sample(some[1:], 399)], step))
    assert printer.press.remembered < 10_000


def test_a_size_written_in_an_unusual_way_is_left_to_the_parser() -> None:
    printer, some = Printer(), target(200)
    for step in range(4):
        printer.take(body_of(some, step))
    one = One("late", 1).at(5)
    assert one[1] < 0x80
    for size in (bytes([one[1] | 0x80, 0]), bytes([one[1] | 0x80, 0x80, 0])):
        printer.take(body_of(some[:100], 5) + b"\x0a" + size + one[2:] + body_of(some[100:], 5))
