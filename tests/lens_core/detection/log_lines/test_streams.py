"""However lines are cut into requests, whatever is not stored and sent again, whenever the daemon restarts: what is
stored at the end is the same."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lens_core import Event, LogLine, Measurement, Origin, Record, StepMetrics
from lens_core.base.self_metrics import SelfMetrics
from lens_core.detection.log_lines.processor import DetectorProcessor
from lens_core.plugin_api.components import Detector

ORIGIN = Origin(workload_uid="w", pod_name="p", namespace="ns")
BEGIN = 1_760_000_000.0

megatron = st.builds(
    lambda rank, step, loss: f"[rank{rank}]:  iteration {step}/ 100 | lm loss: {loss:.3f} | grad norm: 1.0 |",
    st.integers(0, 3),
    st.integers(1, 30),
    st.floats(0, 9),
)
other_lines = st.sampled_from(
    [
        "[before the start of training step] datetime: 2025-01-01 00:00:00",
        "saving checkpoint at iteration 10 to /ckpt",
        "  successfully saved checkpoint from iteration 10 to /ckpt",
        " 56%|█████▌    | 10/18 [04:14<03:22, 25.27s/it]",
        "{'loss': 1.5, 'learning_rate': 0.0001, 'epoch': 0.5}",
        "Step Time : 0.79s GPU utilization: 62.4MODEL_TFLOP/s/GPU",
        "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "epoch,step,train_loss",
        "0,49,2.5",
        "nothing at all",
    ]
)
lines = st.lists(st.one_of(megatron, other_lines), max_size=25)


class Stored:
    """What a store keeps of rows and events: of one metric of one step the lowest rank's word, then the latest."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int | None, int], dict[str, tuple[int, int, float]]] = {}
        self.events: set[tuple[str, int | None, int | None, float | None]] = set()
        self.state: dict[str, bytes] = {}

    def take(self, records: Sequence[Record], changes: dict[str, bytes | None]) -> None:
        for record in records:
            if isinstance(record, StepMetrics):
                row = self.rows.setdefault((record.attempt, record.row_step), {})
                rank = -1 if record.origin.rank is None else record.origin.rank
                for name, value in record.values.items():
                    said = (rank, -record.sequence, value)
                    row[name] = min(row.get(name, said), said)
            elif isinstance(record, Event):
                self.events.add((record.type, record.attempt, record.iteration, record.event_time))
        for key, change in changes.items():
            if change is None:
                self.state.pop(key, None)
            else:
                self.state[key] = change

    def result(self) -> object:
        return {key: {name: said[2] for name, said in row.items()} for key, row in self.rows.items()}, self.events


def records_of(texts: Sequence[str]) -> list[LogLine]:
    return [LogLine(origin=ORIGIN, text=text, event_time=BEGIN + index) for index, text in enumerate(texts)]


@given(lines, st.data())
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_failures_and_restarts_change_nothing(detectors: list[Detector], texts: list[str], data: st.DataObject) -> None:
    everything = records_of(texts)

    def processor() -> DetectorProcessor:
        return DetectorProcessor(detectors, SelfMetrics(), clock=lambda: BEGIN)

    straight, rough = Stored(), Stored()
    plain = processor()
    for record in everything:
        done = plain.process([record])
        straight.take(done.records, dict(done.state_changes))

    current = processor()
    left = everything
    while left:
        size = data.draw(st.integers(1, len(left)))
        for _ in range(data.draw(st.integers(0, 2))):
            current.process(left[: data.draw(st.integers(1, len(left)))])
            current.rollback()
        done = current.process(left[:size])
        rough.take(done.records, dict(done.state_changes))
        left = left[size:]
        if data.draw(st.booleans()):
            current = processor()
            current.load(dict(rough.state))
    assert rough.result() == straight.result()


@given(lines)
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_everything_sent_again_opens_no_attempt_and_changes_no_numbered_step(
    detectors: list[Detector], texts: list[str]
) -> None:
    numbered = [text for text in texts if "iteration" in text or "before the start" in text or "memory" in text]
    processor = DetectorProcessor(detectors, SelfMetrics(), clock=lambda: BEGIN)
    stored = Stored()
    for record in records_of(numbered):
        done = processor.process([record])
        stored.take(done.records, {})
    before = stored.result()
    again = processor.process(records_of(numbered))
    attempts = {attempt for attempt, _ in stored.rows}
    stored.take([record for record in again.records if not isinstance(record, Event)], {})
    assert {attempt for attempt, _ in stored.rows} == attempts
    assert stored.result() == before


@given(lines)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_body_of_one_place_is_read_as_one_that_holds_other_things(
    detectors: list[Detector], texts: list[str]
) -> None:
    quick, slow = (DetectorProcessor(detectors, SelfMetrics(), clock=lambda: BEGIN) for _ in range(2))
    one = quick.process(records_of(texts))
    other = slow.process([Measurement(name="m", value=1.0), *records_of(texts)])
    assert list(other.records[1:]) == list(one.records)
    assert (other.derived, other.merged, other.state_changes) == (one.derived, one.merged, one.state_changes)
