from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lens_plugins.sources.remote_write.request import cut
from lens_plugins.sources.remote_write.seen import Seen

from lens_core import Pod
from tests.generated import examples
from tests.plugins.sources.remote_write.road import Road, outcome
from tests.plugins.sources.remote_write.wire import WriteRequest, labels_of, request, series

NOW = 1_795_000_000_000
ATTACHED = {"pod_name": "llama-0", "pod_uid": "u-a", "workload_name": "llama", "workload_uid": "w-job"}


def generation(number: int, count: int = 40) -> list[bytes]:
    """Series that no other generation has, in the labels and lengths that all generations have."""
    labels = {"__name__": "up", "a": "x", "namespace": "ml", "pod": "llama-0", "rack": f"r{number:05}", "z": ""}
    body = request(*(series({**labels, "a": f"{n:03}", "z": "end"}, (float(n), NOW)) for n in range(count)))
    return list(cut(body, "1.0").series)


def test_new_label_sets_of_a_known_kind_are_attached_and_not_remembered() -> None:
    road = Road()
    for number in range(3):
        road.take(generation(number))
    remembered = road.enricher.remembered
    for number in range(3, 60):
        passed = road.take(generation(number))
        message = WriteRequest.FromString(b"".join(passed.pieces))
        assert (passed.series, passed.samples, passed.unattached) == (40, 40, 0)
        for count, one in enumerate(message.timeseries):
            assert labels_of(one).items() >= {**ATTACHED, "rack": f"r{number:05}", "a": f"{count:03}"}.items()
            assert [label.name for label in one.labels] == sorted(labels_of(one))
            assert one.samples[0].value == count
    # One in sixteen marks is taken for another's at most, and its neighbours go with it.
    assert road.enricher.remembered - remembered < 57 * 40 / 4


def test_what_comes_again_is_remembered() -> None:
    road = Road()
    for _ in range(3):
        passed = road.take(generation(1))
    assert road.enricher.remembered == 40
    assert b"".join(road.take(generation(1)).pieces) == b"".join(passed.pieces)


def test_neighbours_that_come_in_another_order_are_remembered_too() -> None:
    road = Road()
    raw = [one for number in range(20) for one in generation(number)]
    for first in range(12):
        road.take(raw[first:] + raw[:first])
    assert road.enricher.remembered > len(raw) * 0.9


def test_directory_that_changes_changes_what_templates_attach() -> None:
    road = Road()
    for number in range(4):
        road.take(generation(number))
    road.directory.learn([Pod(uid="u-a", name="llama-0", namespace="ml", labels={"x": "y"})], "test")
    message = WriteRequest.FromString(b"".join(road.take(generation(4)).pieces))
    assert all("workload_uid" not in labels_of(one) for one in message.timeseries)


def test_a_series_known_and_new_by_turns_keeps_its_order() -> None:
    road = Road()
    for number in range(3):
        road.take(generation(number, 5))
    (one,) = generation(9, 1)
    later = one.replace(one[-7:], cut(request(series({"__name__": "up"}, (1.0, NOW + 1))), "1.0").series[0][-7:])
    mixed = [one, *generation(1, 5), later, *generation(8, 5), one]
    for _ in range(4):
        message = WriteRequest.FromString(b"".join(road.take(mixed).pieces))
        stamps = [item.samples[0].timestamp for item in message.timeseries if labels_of(item)["rack"] == "r00009"]
        assert stamps == [NOW, NOW + 1, NOW]


@pytest.mark.parametrize("name", ["gpu_power", "up"])
def test_negative_values_are_dropped_or_kept_at_first_sight(name: str) -> None:
    road = Road()
    for number in range(6):
        labels = {"__name__": name, "namespace": "ml", "pod": "llama-0", "run": f"r{number}"}
        raw = cut(request(series(labels, (1.0, NOW)), series({**labels, "run": f"s{number}"}, (-1.0, NOW))), "1.0")
        passed = road.take(raw.series)
        assert (passed.series, passed.dropped) == ((1, 1) if name == "gpu_power" else (2, 0))


# Few names and lengths, so that many blocks have a template, and values that look like the structure around them.
texts = st.sampled_from(
    ["a", "b", "\n", "\x12", "aa", "ml", "llama-0", "lonely0", "u-a", "u-\xe9", "\n\x01", "x" * 130]
)
names = st.sampled_from(["a", "b", "d", "namespace", "pod", "pod_template", "pod_uid", "q", "x", "workload_kind"])
kinds = st.dictionaries(names, texts, min_size=1, max_size=5)
numbers = st.sampled_from([0.0, 1.0, -1.0, float("nan"), 5e-324])


@settings(max_examples=examples(150))
@given(st.lists(st.tuples(kinds, numbers, st.sampled_from(["up", "gp", "gpu_x"])), min_size=1, max_size=12), st.data())
def test_templates_and_reading_agree_to_the_byte(
    given_series: list[tuple[dict[str, str], float, str]], data: st.DataObject
) -> None:
    quick, slow = Road(), Road(templates=False)
    for _ in range(4):
        chosen = data.draw(st.lists(st.sampled_from(given_series), min_size=1, max_size=12))
        changed = [
            series(
                dict(sorted({"__name__": name, **labels, "v": data.draw(st.sampled_from(["1", "2", "3"]))}.items())),
                (value, NOW),
            )
            for labels, value, name in chosen
        ]
        raw = cut(request(*changed), "1.0").series
        first, second = quick.take(raw), slow.take(raw)
        assert b"".join(first.pieces) == b"".join(second.pieces)
        counts = [(one.series, one.samples, one.unattached, one.dropped, one.refused) for one in (first, second)]
        assert counts[0] == counts[1]


@example(2.0, -1, 0x80, b"")  # a timestamp that does not end
@example(2.0, -3, 0x00, b"")  # one that ends too early
@example(2.0, 0, 0x0A, cut(request(series({}, (2.0, NOW))), "1.0").series[0][-7:])  # a second timestamp
@settings(max_examples=examples(200))
@given(st.sampled_from([0.0, 2.0]), st.integers(-20, 80), st.integers(0, 255), st.sampled_from([b"", b"x"]))
def test_a_damaged_series_is_what_it_would_be_without_templates(
    value: float, place: int, byte: int, more: bytes
) -> None:
    quick, slow = Road(), Road(templates=False)
    for number in range(6):  # The last ones make the next one expected, so that it is not looked up by its skeleton.
        assert outcome(quick, [one_of(number, value)]) == outcome(slow, [one_of(number, value)])
    whole = bytearray(one_of(7, value))
    whole[place % len(whole)] = byte
    # Behind another new one, because the first of a group gets a closer look.
    together = one_of(8, value), one_of(9, value), bytes(whole + more)
    assert outcome(quick, together) == outcome(slow, together)


def one_of(number: int, value: float) -> bytes:
    labels = {"__name__": "up", "namespace": "ml", "pod": "llama-0", "rack": f"r{number:05}", "z": "end"}
    return bytes(cut(request(series(labels, (value, NOW))), "1.0").series[0])


def test_a_label_between_two_of_ours_is_put_in_its_place() -> None:
    quick, slow = Road(), Road(templates=False)
    for number in range(5):
        labels = {"__name__": "up", "pod": "llama-0", "pod_template": "x", "run": str(number), "workload_state": "y"}
        (raw,) = cut(request(series(labels, (1.0, NOW))), "1.0").series
        assert outcome(quick, [raw]) == outcome(slow, [raw])


def test_seen_forgets_when_it_is_full() -> None:
    seen = Seen(1000)
    keys = [str(number).encode() for number in range(20_000)]
    early = keys[:500]
    assert sum(map(seen.again, early)) < 50
    assert all(map(seen.again, early))
    assert sum(map(seen.again, keys[500:])) < 19_500 / 8
    assert sum(map(seen.again, early)) < 400
