"""One number in many spellings: within calls, brackets, other languages, phrases; and lines that are no training's."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lens_core import Event, Origin, Record, StepMetrics
from lens_core.plugin_api.components import Detector
from tests.lens_core.detection.log_lines.stand import Stand

STEP = st.integers(1, 10**6)
LOSS = st.integers(1, 10**6).map(lambda number: f"{number / 10_000:.4f}")
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def shared(detectors: list[Detector]) -> Stand:
    """One processor for all examples; each has a job of its own."""
    return Stand(detectors)


def records_of(shared: Stand, lines: Sequence[str]) -> list[Record]:
    origin = Origin(workload_uid=f"spelling{next(_NUMBERS)}", pod_name="p", namespace="n")
    return [record for line in lines for record in shared.feed(line, origin=origin).records]


def rows_of(shared: Stand, lines: Sequence[str]) -> dict[int, dict[str, float]]:
    """The values of each step, of one attempt."""
    rows = [record for record in records_of(shared, lines) if isinstance(record, StepMetrics)]
    assert len({row.attempt for row in rows}) <= 1
    found: dict[int, dict[str, float]] = {}
    for row in rows:
        found.setdefault(row.row_step, {}).update(row.values)
    return found


# {s} is the step of the whole training, {l} its loss.
WITH_STEP = (
    "step {s} loss: tensor({l}, device='cuda:0', grad_fn=<NllLossBackward0>)",
    "step {s} loss: Array({l}, dtype=float32)",
    "Step {s}: {{'loss': np.float32({l}), 'accuracy': np.float32(0.1123)}}",
    "OrderedDict([('step', {s}), ('loss', {l}), ('lr', 0.001)])",
    "('Step: ', {s}, ' Loss: ', {l})",
    "(:step, {s}, :loss, {l}, :acc, 0.91)",
    "[step]: {s}, [loss]: {l}",
    "(step) {s} (loss) {l}",
    "(iteration) {s} (loss) {l}",
    "loss = {l} @ step {s}",
    "step {s} / loss {l} / lr 0.0010 / grad 1.23",
    "Training loss (for one batch) at step {s}: {l}",
    "loss at iteration {s}: {l}",
    "Loss in iteration {s}: {l}",
    "Losses(total: {l}, policy: 2.470, value: 0.750) step: {s}",
    "epoch/iter: 20/{s}  total_loss: {l}  lr: 3.50e-04",
    "iter {s}\ttime\t0.512\ttrain loss\t{l}",
    "itr: {s}, G_loss : {l}, D_loss_real : +0.912",
    "It: {s}, Loss: {l}, Time: 1.20",
    "Last test reward: 12.00. Training step: {s}/2000000. Played games: 23. Loss: {l}",
    "{s} [D loss: {l}, acc.: 65.62%] [G loss: 1.021231]",
    "[{s}] Beta: 0.100, KL: 20.38, loss: {l}, Word: 25.12, 33.15",
    "[proc 0][Train]({s}/2000000) average loss: {l}",
    "Net |################| ({s}/2000000) Data: 0.000s | Batch: 0.031s | Loss: {l}",
    "|      {s}/ 2000000 steps| 12345.12 tokens/s| loss    {l}| acc: 0.012",
    "{s}/2000000 = 0.0%, SPS: 2.3, ELAP: 43s, ETA: 5 days, 1 hour - loss: {l}",
    "Average Loss = {l}:  10%|█         | {s}/2000000 [00:01<00:09, 998.12it/s]",
    '{{"level":"info","ts":1714550400.123,"msg":"train step","step":{s},"metrics":{{"loss":{l},"lr":0.001}}}}',
    "Iteration {s}: with minibatch training loss = {l} and accuracy of 0.11",
    "Loss (step: {s}, epoch: 0): {l}",
    "loss_avg: {l} at iter {s} of 2000000",
    '{{"trainStep": {s}, "trainLoss": {l}, "learningRate": 0.001}}',
    "Round   {s}, Average loss {l}",
    "Training ({s} / 2000000 Steps) (loss={l}):   1%|1         | {s}/2000000 [00:10<16:30,  9.98it/s]",
    "Schritt {s}, Verlust: {l}",
    "passo {s} | perda: {l}",
    "шаг {s}/2000000, потери: {l}",
    "스텝 {s}/2000000, 손실: {l}",
    "ステップ {s}/2000000 損失: {l}",
    "第{s}步，损失：{l}，准确率：0.1123",
    "adım {s}, kayıp: {l}",
)


@pytest.mark.parametrize("shape", WITH_STEP)
@settings(max_examples=8, deadline=None)
@given(step=STEP, loss=LOSS)
def test_a_step_is_read_however_it_is_spelled(shared: Stand, shape: str, step: int, loss: str) -> None:
    ((found, values),) = rows_of(shared, [shape.format(s=step, l=loss)]).items()
    assert (found, values["lm_loss"]) == (step, float(loss))


# {e} is an epoch, which the line sums up.
OF_EPOCH = (
    "Époque {e}/2000000 - perte : {l} - précision : 0.1123",
    "Época {e}/2000000 | Perda de treino: {l} | Perda de validação: 2.2123",
    "Epoch #{e} loss:{l}",
    "Epoch-{e}: loss={l}, acc=0.1123",
    "[ Train | {e}/2000000 ] loss = {l}, acc = 0.11231",
    "Epoch {e}/2000000 Train Acc: 0.112311 Loss: {l} | Val Acc: 0.122311 loss: 2.1123",
    "Train {e}, loss: {l}, train acc: 0.819102, train iou: 0.663547",
    "ep={e} tr=['train_clean'] loss={l} err=2.614 valid=dev_clean loss=2.693 err=0.612",
    "=> Epoch:  {e} Time: 2019-05-01 10:00:00 Train loss: {l} Test loss: 11.21 Saving ./model/loss=11.2100.ckpt ...",
)


@pytest.mark.parametrize("shape", OF_EPOCH)
@settings(max_examples=8, deadline=None)
@given(epoch=STEP, loss=LOSS)
def test_an_epoch_is_read_however_it_is_spelled(shared: Stand, shape: str, epoch: int, loss: str) -> None:
    ((found, values),) = rows_of(shared, [shape.format(e=epoch, l=loss)]).items()
    assert (found, values["lm_loss"]) == (epoch, float(loss))


# {b} is a batch of the first epoch.
WITHIN_EPOCH = (
    "[train: 1, {b} / 2000000] FPS: 4.0 (7.9)  ,  Loss/total: {l}  ,  Stats/acc: 0.81421",
    "scan65 [1] ({b}/2000000): loss = {l}, rgb_loss = 0.0812",
    "Train | Epoch 1 | {b}/2000000 | 2.31 it/sec | loss {l} | lr 1.0E-04",
    "[epoch]: 1, [batch]: {b}, [loss]: {l}",
    "loss in epoch 1 iteration {b}: {l}",
    "Epoch 1/10, Schritt {b}/2000000, Verlust: {l}",
    "Эпоха 1/10, шаг {b}/2000000, потери: {l}",
)


@pytest.mark.parametrize("shape", WITHIN_EPOCH)
@settings(max_examples=8, deadline=None)
@given(batch=STEP, loss=LOSS)
def test_a_batch_of_an_epoch_is_read_however_it_is_spelled(shared: Stand, shape: str, batch: int, loss: str) -> None:
    ((found, values),) = rows_of(shared, [shape.format(b=batch, l=loss)]).items()
    assert (found, values["lm_loss"]) == (batch, float(loss))


@settings(max_examples=20, deadline=None)
@given(steps=st.lists(st.integers(1, 1000), min_size=1, max_size=4, unique=True).map(sorted), epochs=st.integers(1, 3))
def test_steps_that_begin_again_with_a_later_epoch_go_on(shared: Stand, steps: list[int], epochs: int) -> None:
    lines = [f"\titers: {step}, epoch: {epoch} | loss: 0.61" for epoch in range(1, epochs + 1) for step in steps]
    expected = [epoch * steps[-1] + step for epoch in range(epochs) for step in steps]
    assert list(rows_of(shared, lines)) == expected


EPISODES = (
    ("Episode: {s}, total reward: {l}, steps: 200, noise: 0.12", "total reward"),
    ("Episode {s}\tAverage Score: {l}", "Average Score"),
    ("[INFO] Episode {s} score: {l}", "score"),
    ("frame: {s}, reward: {l}, eps 0.91, speed 512.12 f/s", "reward"),
)


@pytest.mark.parametrize(("shape", "name"), EPISODES)
@settings(max_examples=8, deadline=None)
@given(episode=STEP, reward=LOSS)
def test_episodes_and_frames_count_where_nothing_else_does(
    shared: Stand, shape: str, name: str, episode: int, reward: str
) -> None:
    ((found, values),) = rows_of(shared, [shape.format(s=episode, l=reward)]).items()
    assert (found, values[name]) == (episode, float(reward))


OTHER_WORK = (
    "iter {s} residual 1.2e-05 cost {l}",
    "iteration= {s}\t chi2= {l}\t time= 0.0123\t lambda= 80.123",
    "Newton iteration {s}: residual = {l}, step length = 1.0",
    "Step {s}/2000000 estimated cost {l} USD, runtime 1.2 h",
    "Iteration {s} of the export: cost {l} EUR",
    "Episode {s}: total reward {l}, steps 212 (evaluation)",
    "epoch: {s}, value: {l}",
    "Round {s}/2000000: 2 wins, loss: 3",
    "Round {s}/2000000 | reward: {l}",
    "Iteration {s}/2000000: latency {l} ms, throughput 81.2 img/s",
    "Verlust des Pakets {s}: {l}%",
)


@pytest.mark.parametrize("shape", OTHER_WORK)
@settings(max_examples=8, deadline=None)
@given(step=STEP, loss=LOSS)
def test_solvers_prices_and_measurements_are_no_training(shared: Stand, shape: str, step: int, loss: str) -> None:
    records = records_of(shared, [shape.format(s=step, l=loss)])
    assert [record for record in records if isinstance(record, StepMetrics | Event)] == []
