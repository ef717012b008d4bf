"""Output of the hook is valid for the daemon: rows, evidence and events through lens_core's own decoder."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from lens_hook import echo, evidence, legacy, wire
from lens_hook.buffer import Summary
from lens_hook.session import Session
from lens_hook.settings import read_origin
from lens_hook.tracking import KeyCounter
from lens_hook.values import snapshot

from lens_core.model.records import Event, Evidence, StepMetrics, decode_json_envelope

VALUES = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-(2**80), 2**80) | st.booleans()
STEPS = st.integers(-(2**62), 2**62)


def decoded(*lines: wire.Line) -> list[Any]:
    """The records as the daemon sees them."""
    origin = wire.encode_origin(read_origin({"POD_NAME": "p", "RANK": "3", "WORLD_SIZE": "8", "WORKLOAD_UID": "ü"}))
    envelope = decode_json_envelope(wire.envelope(origin, (line.text for line in lines)))
    assert envelope.rejected == []
    assert envelope.producer == "lens-hook/0.1.0"
    assert (envelope.origin.workload_uid, envelope.origin.rank, envelope.origin.world_size) == ("ü", 3, 8)
    return list(envelope.records)


@given(st.dictionaries(st.text(max_size=8), VALUES, min_size=1, max_size=6), STEPS, st.floats(0, 4e9), st.booleans())
def test_rows(data: dict[str, Any], step: int, now: float, dropped: bool) -> None:
    session = Session("wandb", "r")
    counter = step + 1 if dropped else None
    (row,) = wire.merge([(session, snapshot(data), step, False, counter, counter, now)])
    (record,) = decoded(wire.Encoder().row(row))
    assert isinstance(record, StepMetrics)
    assert (record.run_id, record.session, record.row_step, record.iteration) == ("r", session.id, step, step)
    assert record.event_time is not None
    assert abs(record.event_time - now) < 1e-5
    assert set(record.tags) == (set(data) if dropped else set())
    for name, value in data.items():
        stored = record.values[name]
        assert (math.isnan(stored) and math.isnan(value)) or stored == float(value)


def test_events_and_evidence() -> None:
    session, encoder = Session("wandb", "r"), wire.Encoder()
    session.facts = {"wandb": {"project": "p", "config": {"lr": 0.1}}}
    lines = [
        encoder.event(session, "training_started", 5.5, {"source": "wandb"}),
        encoder.evidence(session, "wandb", 6.5, evidence.collect_facts(session)),
    ]
    event, facts = decoded(*lines)
    assert isinstance(event, Event)
    assert (event.type, event.run_id, event.session, event.event_time) == ("training_started", "r", session.id, 5.5)
    assert event.data_source == "wandb"
    assert isinstance(facts, Evidence)
    assert facts.source == "wandb"
    assert facts.facts["wandb"]["config"] == {"lr": 0.1}
    assert facts.facts["modules"]["hypothesis"]


MARKS = st.sampled_from(["", "transformers", "keras"])
LOGGED = st.lists(st.tuples(MARKS, st.dictionaries(st.sampled_from("abc"), VALUES, min_size=1), st.integers(0, 3)))


@given(LOGGED)
def test_echoes_are_never_merged_with_other_rows(logged: list[tuple[str, dict[str, Any], int]]) -> None:
    session = Session("mlflow", "r")
    rows: list[Any] = []
    for of, data, step in logged:
        values = snapshot(data)
        rows.append((session, echo.Echo(values, of) if of else values, step, False, None, None, 1.0))
    encoder = wire.Encoder()
    records = decoded(*(encoder.row(row) for row in wire.merge(rows)))
    seen = [(record.echo_of, record.row_step, name) for record in records for name in record.values]
    assert sorted(seen) == sorted((of, step, name) for of, data, step in logged for name in data)


def test_a_summary_keeps_its_mark_and_names_its_tracker() -> None:
    session = Session("clearml", "r")
    rows: list[Any] = [(session, Summary({"best": 1.0}, "keras"), None, False, None, None, 1.0)]
    (record,) = decoded(*(wire.Encoder().row(row) for row in wire.merge(rows)))
    assert (record.echo_of, record.tags) == ("keras", {"best": {"clearml": "summary"}})


def test_a_thread_is_marked_by_the_outermost_framework_alone() -> None:
    mark = echo.enter("transformers")
    assert mark is not None
    assert echo.enter("accelerate") is None
    assert not mark.heard
    assert echo.hear_echo() == "transformers"
    assert mark.heard
    echo.inside[1] = echo.Mark("of another thread")
    echo.forget_other_threads()
    assert len(echo.inside) == 1
    echo.leave()
    assert echo.inside == {}
    assert type(echo.as_echo({"loss": 1.0})) is dict


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, unique=True)))
def test_counted_steps_never_give_one_key_a_step_twice(rows: list[list[str]]) -> None:
    counter = KeyCounter()
    seen = [(counter.next_step(*keys), key) for keys in rows for key in keys[:1]]
    assert len(seen) == len(set(seen))


def test_upstream_gets_no_source_that_it_fails_on() -> None:
    origin = wire.encode_origin({"workload_uid": "w"})
    for source, expected in (("mlflow", "wandb"), ("tensorflow", "tensorflow"), ("wandb", "wandb")):
        rows: list[Any] = [(Session(source, "r"), {"loss": 1.0}, 1, False, None, None, 1.0)]
        _, body, _ = legacy.next_request(origin, [wire.Encoder().row(row) for row in wire.merge(rows)])
        assert body is not None
        assert msgspec.json.decode(body)["source"] == expected
