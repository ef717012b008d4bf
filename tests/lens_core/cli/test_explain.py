"""`lens explain`: JSON objects as the contract has them, and words for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lens_core.cli.explain import command

MEGATRON = " iteration      700/    3000 | elapsed time per iteration (ms): 12932.3 | lm loss NAN | loss scale 4.0 |"


def run(lines: str | bytes, *arguments: str) -> Result:
    result = CliRunner().invoke(command, [*arguments, "-"], input=lines)
    assert result.exit_code == 0, result.output
    return result


def objects(lines: str | bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(lines, "--json").stdout.splitlines()]


def test_one_object_for_each_line() -> None:
    answers = objects(f"{MEGATRON}\nnothing\n\nsaving checkpoint at iteration 5 to /x\n")
    assert [answer["line"] for answer in answers] == [1, 2, 3, 4]
    assert [answer["kind"] for answer in answers] == ["metric", "none", "none", "event"]
    assert all(set(answer) == {"line", "kind", "framework", "format", "values", "event"} for answer in answers)
    metric, none, _, event = answers
    assert (metric["framework"], metric["format"], metric["event"]) == (
        "megatron",
        "megatron.iteration",
        "loss_not_finite",
    )
    assert (metric["values"]["iteration"], metric["values"]["current_iteration"]) == (700, 700)
    assert metric["values"]["lm_loss"] == "NaN"
    assert metric["values"]["elapsed_time_per_iteration_ms"] == 12932.3
    assert none == {"line": 2, "kind": "none", "framework": "", "format": "", "values": {}, "event": ""}
    assert (event["event"], event["values"]) == ("checkpoint_saving", {"iteration": 5, "path": "/x"})


def test_several_updates_of_one_line_have_its_number() -> None:
    bar = "\r".join(
        f"Epoch 0:  6%|▌ | {step}/18 [00:08<02:29,  8.77s/it, loss={step}.5, v_num=1]" for step in (1, 2, 3)
    )
    answers = objects(f"x\n{bar}\ny\n")
    assert [answer["line"] for answer in answers] == [1, 2, 2, 2, 3]
    assert [answer["values"]["lm_loss"] for answer in answers[1:4]] == [1.5, 2.5, 3.5]


def test_a_line_of_no_framework_says_so() -> None:
    (answer,) = objects("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.12 GiB.\n")
    assert (answer["kind"], answer["framework"], answer["event"]) == ("event", "other", "out_of_memory")


def test_bytes_that_are_no_text_are_no_error() -> None:
    assert objects(b"\xff\xfe\x00 iteration 5/ 10 | lm loss: 1.0 |\r\n")[0]["values"]["lm_loss"] == 1


def test_people_see_what_was_missing() -> None:
    result = run(f"{MEGATRON}\nstep: 5  loss: nothing\nvalidation iteration 5/ 10 | lm loss: 1.0 |\n")
    first, second, third = result.stdout.splitlines()
    assert "megatron" in first
    assert "lm_loss=NaN" in first
    assert "it counts steps, but has no loss, reward or other measure of a training" in second
    assert "`validation` stands before its counter" in third or "it speaks of an evaluation" in third
    assert "1 steps, 0 events, 2 other lines" in result.stderr


def test_one_letter_of_a_time_makes_no_format_the_nearest() -> None:
    assert "like no known format" in run("2026-03-01T08:00:00.000000Z loading data\n").stdout


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("step 5 | loss 2.5", "no detector's format; counted by iteration, measured by lm_loss"),
        ("Epoch [1/3], Step [2/9], Loss: 0.5", "counted by step_in_epoch, measured by lm_loss"),
        ("Epoch 0 | Validation | Steps: 3 | Loss: 2", "it speaks of an evaluation"),
        ("resuming, step: 3, loss: 4", "`resuming` stands before its counter"),
        ("iter 2000: train loss 2.1, val loss 2.2", "iteration=2000"),
        ('{"trial": 3, "iters": 5, "main_loss": 2}', "`trial` is among its keys"),
    ],
)
def test_people_see_why_the_general_reader_reads_a_line_or_does_not(line: str, reason: str) -> None:
    assert reason in run(f"{line}\n").stdout


def test_a_file_and_a_configuration(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("house step=5 loss=1.5\n")
    config = tmp_path / "lens.yaml"
    config.write_text(
        "detectors:\n"
        "  house: {type: pattern, framework: house_trainer,"
        " line: 'house step=(?P<iteration>\\d+) loss=(?P<lm_loss>\\S+)'}\n"
    )
    result = CliRunner().invoke(command, [str(log), "--json", "--config", str(config)])
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert (answer["framework"], answer["values"]["iteration"], answer["values"]["lm_loss"]) == (
        "house_trainer",
        5,
        1.5,
    )


def test_a_file_that_is_not_there_is_wrong_usage() -> None:
    assert CliRunner().invoke(command, ["/there/is/no/such.log"]).exit_code == 2
