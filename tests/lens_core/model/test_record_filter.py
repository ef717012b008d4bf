"""Filters of records: kinds, data sources, labels and globs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lens_core import Event, LogLine, Measurement, Origin, Record, StepMetrics
from lens_core.model.record_filter import EVERYTHING, Matcher, RecordFilter


def row(source: str = "wandb", **labels: str) -> StepMetrics:
    origin = Origin(namespace="team-a", labels=labels)
    return StepMetrics(origin=origin, data_source=source, row_step=1, values={})


def test_without_settings_everything_passes() -> None:
    matcher = Matcher(EVERYTHING)
    assert matcher.takes_all([row(), LogLine(text="x"), Event(type="resumed")])


def test_kinds() -> None:
    matcher = Matcher(RecordFilter(kinds=["event", "log_line"]))
    assert [matcher(record) for record in (row(), LogLine(text="x"), Event(type="resumed"))] == [False, True, True]


def test_a_filter_narrows_what_a_sink_accepts() -> None:
    matcher = Matcher(RecordFilter(kinds=["event"]), (StepMetrics, Event))
    assert matcher.kinds == {Event}
    assert Matcher(RecordFilter(kinds=["event"]), (StepMetrics,)).kinds == frozenset()


def test_data_sources_may_be_globs() -> None:
    matcher = Matcher(RecordFilter(data_sources=["wandb", "log*"]))
    assert [matcher(row(source)) for source in ("wandb", "log", "logs", "wandb2")] == [True, True, True, False]


def test_data_sources_hold_for_records_that_have_one() -> None:
    matcher = Matcher(RecordFilter(data_sources=["log"]))
    records: list[Record] = [
        row("log"),
        row("wandb"),
        Event(type="resumed", data_source="wandb"),
        Measurement(name="m", value=1),
    ]
    assert [matcher(record) for record in records] == [True, False, False, True]


@pytest.mark.parametrize(
    ("labels", "passes"),
    [
        ({"team": "a"}, True),
        ({"team": "b"}, False),
        ({"team": "?"}, True),
        ({"team": "[xyz]"}, False),
        ({"missing": "*"}, False),
        ({"namespace": "team-*"}, True),
        ({"namespace": "team-b"}, False),
        ({"team": "a", "namespace": "other"}, False),
        ({"node": "*"}, False),
    ],
)
def test_labels_and_fields_of_the_origin(labels: dict[str, str], passes: bool) -> None:
    matcher = Matcher(RecordFilter(labels=labels))
    assert matcher(row(team="a")) is passes
    assert matcher.takes_all([row(team="a")]) is False


def test_settings_come_from_plain_data_and_are_checked() -> None:
    found = msgspec.convert({"kinds": ["event"], "labels": {"a": "b*"}}, RecordFilter)
    assert found == RecordFilter(kinds=["event"], labels={"a": "b*"})
    with pytest.raises(msgspec.ValidationError, match="unknown kind of record 'events'"):
        msgspec.convert({"kinds": ["events"]}, RecordFilter)
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.convert({"kind": ["event"]}, RecordFilter)


@pytest.mark.parametrize("settings", [{}, {"kinds": ["event"]}, {"data_sources": ["log"]}, {"labels": {"team": "a"}}])
def test_selecting_many_is_as_asking_for_each(settings: dict[str, Any]) -> None:
    matcher = Matcher(RecordFilter(**settings))
    records: list[Record] = [row("log", team="a"), row(), LogLine(text="x"), Event(type="resumed")]
    assert matcher.select(records) == [record for record in records if matcher(record)]
    assert matcher.select([]) == []
