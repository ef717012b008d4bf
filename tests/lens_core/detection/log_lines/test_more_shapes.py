"""Steps of logs that are cut, prefixed or laid out over lines, in the shapes of copied loops."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lens_core import Origin, StepMetrics
from lens_core.detection.log_lines import Context, LineEngine
from lens_core.plugin_api.components import Detector
from tests.generated import examples
from tests.lens_core.detection.log_lines.stand import Stand

STEP = st.integers(1, 10**6)
LOSS = st.integers(-(10**6), 10**6).map(lambda number: f"{number / 1000:.3f}")
LOSSES = st.lists(LOSS, min_size=2, max_size=4)
SERVICE = st.sampled_from(["waveglow_1  | ", "trainer-1  | ", "my-job_12 | ", "web_app-3        | "])
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def shared(detectors: list[Detector]) -> Stand:
    """One processor for all examples; each has a job of its own."""
    return Stand(detectors)


def rows_of(shared: Stand, lines: Sequence[str]) -> dict[int, dict[str, float]]:
    """The values of all rows by their steps; all of one attempt."""
    origin = Origin(workload_uid=f"w{next(_NUMBERS)}", pod_name="p", namespace="n")
    records = [record for line in lines for record in shared.feed(line, origin=origin).records]
    rows = [record for record in records if isinstance(record, StepMetrics)]
    assert len({row.attempt for row in rows}) <= 1
    found: dict[int, dict[str, float]] = {}
    for row in rows:
        found.setdefault(row.row_step, {}).update(row.values)
    return found


def losses_of(shared: Stand, lines: Sequence[str]) -> dict[int, float]:
    return {step: values["lm_loss"] for step, values in rows_of(shared, lines).items()}


PREFIXES = (
    "{service}{line}",
    "2021-03-01 10:00:02,123 INFO {line}",
    "2021-03-01 10:00:02,123 - INFO - {line}",
    "INFO:root:{line}",
)


@pytest.mark.parametrize("prefix", PREFIXES)
@settings(max_examples=examples(15), deadline=None)
@given(first=STEP, losses=LOSSES, service=SERVICE)
def test_two_numbers_are_read_behind_a_prefix(
    shared: Stand, prefix: str, first: int, losses: list[str], service: str
) -> None:
    texts = ["Epoch: 0", *(f"{first + index}:\t{loss}" for index, loss in enumerate(losses))]
    lines = [prefix.format(service=service, line=text) for text in texts]
    assert losses_of(shared, lines) == {first + index: float(loss) for index, loss in enumerate(losses)}


@settings(max_examples=examples(15), deadline=None)
@given(
    pod=st.sampled_from(["trainer-worker-1", "gpt2-0", "job-a1b2c-3"]),
    container=st.sampled_from(["pytorch", "main", "a-b"]),
    step=STEP,
    loss=LOSS,
    counter=st.sampled_from(["iteration {s}/{t}", "step: {s}", "Iter {s}"]),
)
def test_a_pod_and_its_container_before_a_step(
    engine: LineEngine, pod: str, container: str, step: int, loss: str, counter: str
) -> None:
    line = f"{pod} {container} {counter.format(s=step, t=10**7)} loss={loss}"
    (reading,) = engine.read_line(line, Context())
    assert (reading.iteration, reading.values["lm_loss"]) == (step, float(loss))


FROM_ZERO = (
    "Epoch: [{e}][ {s}/{t}]\tTime  0.505 ( 0.612)\tData  0.100 ( 0.2)\tLoss {l} (7.0e+00)",
    "Epoch: [{e}]  [ {s}/{t}]  eta: 0:01:02  lr: 0.000005  loss: {l} (0.8558)  time: 4.3713  max mem: 51710",
    "Epoch: [{e}/900]  [ {s}/{t}]  eta: 0:01:02  loss: {l} (0.8558)  time: 4.3713  data: 0.1",
)


@pytest.mark.parametrize("shape", FROM_ZERO)
@settings(max_examples=examples(15), deadline=None)
@given(first=st.integers(2, 800), total=st.integers(20, 1000), steps=st.lists(st.integers(1, 20), min_size=1))
def test_epochs_that_count_from_zero_are_numbered_right_in_a_log_without_its_beginning(
    shared: Stand, shape: str, first: int, total: int, steps: list[int]
) -> None:
    places = sorted({(first + index // 3, step) for index, step in enumerate(sorted(steps))})
    lines = [shape.format(e=epoch, s=step, t=total, l=0.5) for epoch, step in places]
    assert set(rows_of(shared, lines)) == {epoch * total + step for epoch, step in places}


@settings(max_examples=examples(25), deadline=None)
@given(
    epoch=st.integers(1, 9),
    total=st.integers(100, 10**5),
    steps=st.sets(st.integers(1, 100), min_size=1, max_size=4),
    loss=LOSS,
    shape=st.sampled_from(
        [
            "Epoch:[{e}/9]({s}/{t}) loss:{l} lr:0.0005 epoch_Time:412.0min:",
            "| Epoch: {e}/9 ({s}/{t}) | Loss: {l} | 1.8 steps/s | Step: {k}k | ",
            "Epoch {e}/9 ({s}/{t}), loss: {l}",
        ]
    ),
)
def test_a_share_in_brackets_behind_an_epoch_is_the_step_in_it(
    shared: Stand, epoch: int, total: int, steps: set[int], loss: str, shape: str
) -> None:
    lines = [shape.format(e=epoch, s=step, t=total, l=loss, k=step // 1000) for step in sorted(steps)]
    assert losses_of(shared, lines) == {(epoch - 1) * total + step: float(loss) for step in steps}


@settings(max_examples=examples(15), deadline=None)
@given(steps=st.lists(STEP, min_size=2, max_size=5, unique=True), losses=LOSSES)
def test_a_loss_below_a_step_overwrites_no_earlier_row(shared: Stand, steps: list[int], losses: list[str]) -> None:
    rows = dict(zip(sorted(steps), losses, strict=False))
    lines = []
    for step, loss in rows.items():
        lines += [
            f"I0714 13:12:01.123456  2312 solver.cpp:237] Iteration {step}, loss = {loss}",
            f"I0714 13:12:01.123466  2312 solver.cpp:253]     Train net output #0: loss = {loss} (* 1 = {loss} loss)",
            f"I0714 13:12:01.123566  2312 sgd_solver.cpp:106] Iteration {step}, lr = 0.001",
        ]
    assert losses_of(shared, lines) == {step: float(loss) for step, loss in rows.items()}


@settings(max_examples=examples(15), deadline=None)
@given(
    steps=st.lists(STEP, min_size=1, max_size=4, unique=True),
    loss=LOSS,
    head=st.sampled_from(
        ["train | step: {s:6d} | steps/sec: 12.3 | output: ", "INFO:tensorflow:Step {s} per-step time 0.512s"]
    ),
)
def test_a_dictionary_over_several_lines_belongs_to_the_step_above_it(
    shared: Stand, steps: list[int], loss: str, head: str
) -> None:
    entries = ["    {'accuracy': 0.6123,", "     'learning_rate': 0.0012,", f"     'training_loss': {loss}}}"]
    lines = [line for step in sorted(steps) for line in (head.format(s=step), *entries)]
    found = rows_of(shared, lines)
    assert {step: values["lm_loss"] for step, values in found.items()} == dict.fromkeys(steps, float(loss))
    assert all((values["accuracy"], values["learning_rate"]) == (0.6123, 0.0012) for values in found.values())


@settings(max_examples=examples(25), deadline=None)
@given(
    step=STEP,
    loss=LOSS,
    name=st.sampled_from(["losses/total_loss", "policy_loss", "kl_loss"]),
    label=st.sampled_from(["", "Evaluating ", "Loading ", "Quantizing layers "]),
)
def test_losses_before_a_bar_are_of_its_step(shared: Stand, step: int, loss: str, name: str, label: str) -> None:
    line = f"{label}[{name}: {loss} | other_loss: 0.5]:   1%|          | {step}/10000000 [01:12<2:12:01,  1.21it/s]"
    assert losses_of(shared, [line]) == ({} if label else {step: float(loss)})


@settings(max_examples=examples(15), deadline=None)
@given(
    epochs=st.integers(1, 5),
    name=st.sampled_from(["Epoch:{e}/9", "Epoch: {e}/9", "epoch {e}/9", "EPOCH {e}/9"]),
    loss=LOSS,
)
def test_a_loss_below_the_name_of_an_epoch_is_that_of_the_epoch(
    shared: Stand, epochs: int, name: str, loss: str
) -> None:
    lines = []
    for epoch in range(1, epochs + 1):
        lines += [name.format(e=epoch), f"Total Loss: {loss} || Val Loss: 11.123 ", "loss: 99.5"]
    found = rows_of(shared, lines)
    assert {step: (values["lm_loss"], values["val/loss"]) for step, values in found.items()} == {
        epoch: (float(loss), 11.123) for epoch in range(1, epochs + 1)
    }


@settings(max_examples=examples(15), deadline=None)
@given(
    name=st.sampled_from(["imgsize (640, 640)", "batchsize: 8", "insize 512"]),
    step=STEP,
    loss=LOSS,
    epoch=st.integers(1, 1),
)
def test_a_size_behind_a_step_is_no_stage(shared: Stand, name: str, step: int, loss: str, epoch: int) -> None:
    line = f"Epoch {epoch}/300, Step {step}/{10**7}, {name}, loss: {loss}, lr: 0.1"
    assert losses_of(shared, [line]) == {step: float(loss)}


@settings(max_examples=examples(15), deadline=None)
@given(epoch=st.integers(1, 9), steps=st.sets(st.integers(1, 2000), min_size=1, max_size=4), loss=LOSS)
def test_a_batch_before_its_name_is_the_step_in_an_epoch(shared: Stand, epoch: int, steps: set[int], loss: str) -> None:
    shape = "| epoch {e:3d} | {s:5d}/ 2983 batches | lr 20.00 | ms/batch 12.34 | loss {l} | ppl   167.34"
    lines = [shape.format(e=epoch, s=step, l=loss) for step in sorted(steps)]
    assert losses_of(shared, lines) == {(epoch - 1) * 2983 + step: float(loss) for step in steps}


@settings(max_examples=examples(25), deadline=None)
@given(
    episodes=st.lists(STEP, min_size=1, max_size=4, unique=True),
    reward=LOSS,
    shape=st.sampled_from(
        [
            ("Episode: {e}, Total reward: {r}, Epsilon: 0.81", ""),
            ("Episode {e}\tLast reward: {r}\tAverage reward: 21.34", ""),
            ("Episode {e}/9999999 | return: {r} | steps/s: 12.1", ""),
            ("Evaluation episode {e}, reward: {r}", "none"),
            ("Test Episode: {e}, reward: {r}", "none"),
            ("Episode {e} of season 3 was loaded", "none"),
        ]
    ),
)
def test_episodes_count_where_a_line_has_no_other_counter(
    shared: Stand, episodes: list[int], reward: str, shape: tuple[str, str]
) -> None:
    found = rows_of(shared, [shape[0].format(e=episode, r=reward) for episode in sorted(episodes)])
    assert sorted(found) == ([] if shape[1] else sorted(episodes))


@settings(max_examples=examples(15), deadline=None)
@given(
    step=st.integers(1, 9999),
    loss=st.integers(1, 10**5),
    label=st.sampled_from(["my_lora", "Evaluating", "Quantizing"]),
)
def test_a_bar_whose_values_stand_behind_colons(shared: Stand, step: int, loss: int, label: str) -> None:
    line = f"{label}:   5%|5   | {step}/10000 [05:12<1:38:51,  3.12s/it, lr: 1.0e-04 loss: {loss / 1e6:.3e}]"
    expected = {} if label != "my_lora" else {step: pytest.approx(loss / 1e6, rel=1e-3)}
    assert losses_of(shared, [line]) == expected


@settings(max_examples=examples(15), deadline=None)
@given(first=st.integers(0, 10**6), score=st.integers(0, 9999))
def test_tabs_that_syslog_has_written_as_numbers(shared: Stand, first: int, score: int) -> None:
    lines = [f"[{first + index}]#011train-auc:0.{score:04d}#011validation-auc:0.5123" for index in range(2)]
    found = rows_of(shared, lines)
    assert {step: values["train-auc"] for step, values in found.items()} == dict.fromkeys(
        (first, first + 1), score / 1e4
    )


@settings(max_examples=examples(15), deadline=None)
@given(
    epoch=st.integers(1, 9),
    step=STEP,
    loss=LOSS,
    shape=st.sampled_from(
        [
            "('epoch', {e}, 'iter', {s}, 'loss', {l})",
            "('Epoch: ', {e}, 'Step: ', {s}, 'Loss: ', {l})",
            "\N{ROCKET} Epoch {e}/9 | \N{GEAR} Step {s}/9999999 | \N{BAR CHART} Loss: {l} | \N{BELL} Val loss: 0.5123",
        ]
    ),
)
def test_labels_in_quotes_or_behind_a_picture(engine: LineEngine, epoch: int, step: int, loss: str, shape: str) -> None:
    (reading,) = engine.read_line(shape.format(e=epoch, s=step, l=loss), Context())
    values = reading.values
    assert (values["epoch"], values["step_in_epoch"], values["lm_loss"]) == (epoch, step, float(loss))
    assert values.get("val/loss", 0.5123) == 0.5123
