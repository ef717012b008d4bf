"""Lines that mark evaluations, once each, and lines that are about something else."""

from __future__ import annotations

import pytest

from lens_core import Event, LogLine
from lens_core.logs import read_log

MARKS = [
    " validation loss at iteration 100 | lm loss value: 8.017406E+00 | lm loss PPL: 3.033300E+03 |",
    "3:  validation loss at iteration 1000 | lm loss value: 4.328599E+00 | sop loss value: 1.302275E-01 |",
    " validation results at iteration 1000 | lm_loss value: 3.1E+00 | lm_loss_ppl value: 2.2E+01 |",
    "[2026-01-01 10:00:00] Evaluating iter 1/100",
    "Evaluating on 3200 samples",
    "***** Running Evaluation *****",
    "[INFO|trainer.py:3819] 2026-01-01 10:00:00,123 >> ***** Running Prediction *****",
    "***** Evaluating perplexity, Epoch 1/16 *****",
    "{'eval_runtime': 18.4471, 'eval_samples_per_second': 2.71, 'eval_steps_per_second': 2.71, 'epoch': 0.32}",
    "Validation DataLoader 0:   0%|          | 0/313 [00:00<?, ?it/s]",
    "Validation DataLoader 0: 100%|██████████| 313/313 [00:31<00:00, 10.0it/s]",
    "Validation: iteration 1/2",
    'INFO | fairseq_cli.train | begin validation on "valid" subset',
    "| epoch 001 | valid on 'valid' subset | valid_loss 8.11425 | valid_nll_loss 6.8834 | valid_ppl 118.06",
    "step 250: train loss 2.1032, val loss 2.2071",
    "[titan] 2026-01-01 10:00:00,123 - root - INFO - validate step:  100  loss:  4.21  memory: 10.00GiB(10.00%)",
    "Validating ...",
    "eval metrics after step: 4, loss=9.855, total_weights=75264.0",
    "INFO Running evaluation for 'all-small-ppl-validation'...",
    "eval          Epoch   3:    0%|                         | 0/20 [00:00<?, ?ba/s]",
    "2026-01-01 10:00:00 INFO Starting evaluation",
    "Starting validation at step 400",
    "[rank0]: Running the evaluation ...",
]
OTHERS = [
    "Starting evaluation dataset download",
    "loading validation set from /data/valid.bin",
    "Running validation data through the tokenizer",
    "Validation DataLoader 0:  37%|███▋      | 116/313 [00:11<00:19, 10.0it/s]",
    "Evaluating iter 37/100",
    "eval_interval = 250 # how often to evaluate",
    "do_eval=True, evaluation_strategy=steps",
    " > building validation dataset ...",
]


def evaluations(*lines: str) -> list[Event]:
    given = [LogLine(text=text, event_time=1e9 + 100.0 * index) for index, text in enumerate(lines)]
    return [one for one in read_log(given) if isinstance(one, Event) and one.type == "evaluation"]


@pytest.mark.parametrize("line", MARKS)
def test_a_line_of_an_evaluation_marks_it(line: str) -> None:
    assert len(evaluations(line)) == 1


def test_other_lines_mark_none() -> None:
    assert evaluations(*OTHERS) == []


def test_a_duration_and_an_iteration_are_read() -> None:
    [runtime, loss] = evaluations("{'eval_runtime': 18.4471, 'epoch': 0.32}", MARKS[0])
    assert runtime.details["duration_seconds"] == pytest.approx(18.4471)
    assert loss.iteration == 100
