from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lens_plugins.sources.remote_write.request import split_request

from lens_core import Pod
from lens_core.plugin_api.protobuf import delimited
from tests.generated import examples, part
from tests.plugins.sources.remote_write.conftest import PODS
from tests.plugins.sources.remote_write.forms import Forwarder, SideBySide, as_body, compiled, interpreted
from tests.plugins.sources.remote_write.streams import NOW, One, body_of, edit, target
from tests.plugins.sources.remote_write.wire import WriteRequest, labels_of, request, series

BODIES = Path(__file__).parents[3] / "data" / "remote_write_bodies"
COPIES = ["none", "also", "only"]
NEW_POD = Pod(uid="u-new", name="llama-1", namespace="ml")


@pytest.fixture(scope="session")
def both() -> list[Any]:
    return [interpreted, compiled()]


@settings(max_examples=examples(60), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 6), st.integers(20, 300), st.sampled_from(COPIES))
def test_edited_streams_become_what_the_generic_parser_makes_of_them(
    both: list[Any], chance: random.Random, edits: int, at_a_time: int, copies: str
) -> None:
    forms = SideBySide(*both, looks=chance.choice([0, 8, 100]), copies=copies)
    targets = [target(chance.randrange(20, 100), first) for first in (0, 100, 200)]
    stream: list[bytes] = []
    for step in range(8):
        for number, some in enumerate(targets):
            for _ in range(edits if step > 2 else 0):
                edit(chance, some)
            stream += [one.at(step, number) for one in some]
    # Cut where the sender's requests are full, whatever stands there.
    for start in range(0, len(stream), at_a_time):
        forms.forward(b"".join(stream[start : start + at_a_time]), chance.choice([1, 7, 2000]))


@settings(max_examples=examples(40), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 7), st.sampled_from(COPIES))
def test_pods_that_change_and_generations_that_pass_make_no_difference(
    both: list[Any], chance: random.Random, changed: int, copies: str
) -> None:
    forms, some = SideBySide(*both, looks=chance.choice([0, 8, 100]), cached_series=1000, copies=copies), target(150)
    for step in range(9):
        if step == changed:
            forms.replace_pods([*PODS[1:], NEW_POD])
        forms.pass_time(chance.choice([15.0, 700.0]))
        forms.forward(body_of(some, step))
        forms.forward(body_of(target(400, 400 * step), step, 1))
        chance.shuffle(some)


# Names and values that look like the structure around them, so that nothing may be guessed from a few bytes.
names = st.sampled_from(["a", "b", "d", "namespace", "pod", "pod_template", "pod_uid", "q", "x", "workload_kind", "é"])
texts = st.sampled_from(
    ["a", "b", "\n", "\x12", "aa", "ml", "llama-0", "lonely", "u-a", "u-é", "\n\x01", "x" * 126, "x" * 130, ""]
)
values = st.sampled_from([0.0, 1.0, -1.0, -0.0, float("nan"), 5e-324])
label_sets = st.tuples(
    st.dictionaries(names, texts, max_size=5), values, st.sampled_from(["up", "gp", "gpu_x", "gpu_é", ""])
)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(label_sets, min_size=1, max_size=12), st.booleans(), st.data())
def test_new_label_sets_become_what_the_generic_parser_makes_of_them(
    both: list[Any], given_sets: list[tuple[dict[str, str], float, str]], unsorted: bool, data: st.DataObject
) -> None:
    forms = SideBySide(*both, looks=data.draw(st.sampled_from([0, 8])))
    for _ in range(4):
        chosen = data.draw(st.lists(st.sampled_from(given_sets), min_size=1, max_size=12))
        body = []
        for labels, value, name in chosen:
            pairs = [("__name__", name), *labels.items(), ("v", data.draw(st.sampled_from(["1", "2", "3"])))]
            body.append(series(dict(pairs if unsorted else sorted(pairs)), (value, NOW)))
        forms.forward(request(*body))


def damaged_bodies() -> list[bytes]:
    """A small request with a byte changed in every place, and cut off in every place."""
    long = replace(target(1)[0], number=9, run="r" * 150)
    body = body_of([*target(2), long, One("up", 3, samples=2), One("up", 4, 0.0)], 5)
    found = [body[:size] for size in range(len(body))]
    for place in range(len(body)):
        changes = {0x00, 0x01, 0x7F, 0x80, 0xFF, 0x0A, 0x12, body[place] ^ 1, body[place] ^ 8, body[place] ^ 0x80}
        found += [body[:place] + bytes([change]) + body[place + 1 :] for change in sorted(changes)]
    return found


@pytest.mark.slow("forwards a large body many times")
@pytest.mark.parametrize(("warm", "looks"), [(0, 8), (3, 8), (3, 0)])
def test_damage_in_every_byte_is_what_the_generic_parser_makes_of_it(both: list[Any], warm: int, looks: int) -> None:
    long = replace(target(1)[0], number=9, run="r" * 150)
    usual = [*target(2), long, One("up", 3, samples=2), One("up", 4, 0.0)]
    for body in part(damaged_bodies()):
        forms = SideBySide(*both, looks=looks)
        for step in range(warm):
            # Without looks in the table these have the layouts of the others, and the others stay new.
            some = usual if looks else [replace(one, run=f"w{step}") for one in usual]
            forms.forward(body_of(some, step))
        forms.forward(body)


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=200))
def test_garbage_is_what_the_generic_parser_makes_of_it(both: list[Any], body: bytes) -> None:
    SideBySide(*both).forward(body)
    SideBySide(*both).forward(delimited(1, body))


@pytest.mark.parametrize("copies", COPIES)
@pytest.mark.parametrize("name", sorted(path.stem for path in BODIES.glob("*.snappy")))
def test_recorded_requests_become_what_the_generic_parser_makes_of_them(form: Any, name: str, copies: str) -> None:
    body = bytes(cramjam.snappy.decompress_raw((BODIES / f"{name}.snappy").read_bytes()))
    message = WriteRequest.FromString(body)
    for number, one in enumerate(message.timeseries):
        if number % 3:
            one.labels.add(name="pod_uid", value="u-a")
    forms = SideBySide(form, copies=copies)
    order = random.Random(1)
    for text in (body, message.SerializeToString()):
        raw = split_request(text, "1.0").series
        for _ in range(3):
            forms.forward(text, 2000)
        forms.forward(as_body(raw[::2]))
        order.shuffle(raw)
        forms.forward(as_body(raw))
        # Another host, whose label sets are new.
        forms.forward(text.replace(b"127.0.0.1", b"127.0.0.2"))


def test_sizes_written_in_an_unusual_way_are_no_damage(form: Any) -> None:
    one = One("late", 1).at(5)
    assert one[1] < 0x80
    label = one[2:4]
    assert label[0] == 0x0A
    bodies = [b"\x0a" + size + one[2:] for size in (bytes([one[1] | 0x80, 0]), bytes([one[1] | 0x80, 0x80, 0]))]
    longer = b"\x0a" + bytes([one[1] + 1, 0x0A, label[1] | 0x80, 0]) + one[4:]
    for body in (*bodies, longer):
        forwarder = Forwarder(form)
        for _ in range(4):
            batch = forwarder.forward(body_of(target(5), 5) + body + body_of(target(5), 5))
            message = WriteRequest.FromString(bytes(batch.view()))
            assert batch.series == len(message.timeseries) == 11
            assert labels_of(message.timeseries[5]).items() >= {"__name__": "late", "workload_uid": "w-job"}.items()


def test_metadata_between_series_is_no_series(form: Any) -> None:
    forms, some = SideBySide(form), target(40)
    metadata = request(metadata=[{"type": 1, "metric_family_name": "up"}])
    for step in range(4):
        forms.forward(body_of(some[:20], step) + metadata + body_of(some[20:], step))


def test_series_known_and_new_by_turns_keep_their_order(form: Any) -> None:
    forwarder = Forwarder(form)
    for step in range(5):
        new = [One("up", number, number, run=f"s{step}") for number in range(50)]
        mixed = [one for pair in zip(target(50), new, strict=True) for one in pair]
        message = WriteRequest.FromString(bytes(forwarder.forward(body_of(mixed, step)).view()))
        assert [labels_of(one)["run"] for one in message.timeseries] == ["r1", f"s{step}"] * 50
        assert [labels_of(one)["a"] for one in message.timeseries[::2]] == [f"{n:03}" for n in range(50)]


def test_label_sets_are_remembered_when_they_come_again(form: Any) -> None:
    forwarder, some = Forwarder(form), target(200)
    known = []
    for step in range(5):
        known.append(forwarder.forward(body_of(some, step)).known)
    assert known[0] < 20
    assert known[3:] == [200, 200]
    for step in range(20):
        forwarder.forward(body_of([replace(one, run=f"n{step}") for one in some], step))
    # A few are taken for others that came before.
    assert 200 <= len(forwarder.table) < 600


def test_what_is_remembered_is_limited_in_number_and_in_bytes(form: Any) -> None:
    forwarder = Forwarder(form, cached_series=1000)
    for generation in range(12):
        some = [One("up", n, run=f"g{generation}" + "x" * (2500 if generation % 2 else 1)) for n in range(999)]
        for step in range(3):
            forwarder.forward(body_of(some, step))
        assert len(forwarder.table) <= 1000
    # A megabyte of entries of some 5 KiB.
    assert len(forwarder.table) < 1000
    huge = [One("up", n, run="x" * 100_000) for n in range(30)]
    before = len(forwarder.table)
    for step in range(3):
        assert forwarder.forward(body_of(huge, step)).known == 0
    assert len(forwarder.table) <= before


def test_what_is_not_used_is_forgotten(form: Any) -> None:
    forwarder, some = Forwarder(form), target(300)
    for step in range(3):
        forwarder.forward(body_of(some, step))
    first = bytes(forwarder.forward(body_of(some[:100], 9)).view())
    for _ in range(3):
        forwarder.clock += 601.0
        assert bytes(forwarder.forward(body_of(some[:100], 9)).view()) == first
    assert len(forwarder.table) <= 100


def test_a_pod_that_changes_changes_what_is_attached_to_new_and_known_series(form: Any) -> None:
    forwarder, some = Forwarder(form), target(100)
    for step in range(3):
        forwarder.forward(body_of(some, step))
    forwarder.directory.replace([*PODS[1:], NEW_POD], "test")
    for run in ("r1", "r9"):
        body = bytes(forwarder.forward(body_of([replace(one, run=run) for one in some], 4)).view())
        uids = {
            labels_of(one).get("pod_uid") for one in WriteRequest.FromString(body).timeseries
            if labels_of(one)["pod"] == "llama-1"
        }  # fmt: skip
        assert uids == {"u-new"}


def test_many_labels_and_long_ones_take_no_longer_than_their_bytes(form: Any) -> None:
    """Anything quadratic would take minutes here."""
    many = {"__name__": "up", **{f"l{n:06}": "v" for n in range(100_000)}}
    long = {"__name__": "up", "long": "x" * 4_000_000}
    forwarder = Forwarder(form)
    for labels in (many, long):
        for _ in range(3):
            assert forwarder.forward(request(series(labels, (1.0, NOW)))).series == 1
    tiny = delimited(1, series({"__name__": "up"}, (1.0, NOW)).SerializeToString()) * 50_000
    assert forwarder.forward(tiny, 2000).samples == 50_000
    samples = request(series({"__name__": "up"}, *((1.0, NOW + n) for n in range(100_000))))
    assert forwarder.forward(samples).samples == 100_000
