"""`lens goodput --file`: the ledger of a job out of its log alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lens_core.cli import cli, main
from lens_core.plugin_host.host import PluginHost

BEGIN = datetime(2026, 5, 1, tzinfo=timezone.utc)
FAILED = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"
Line = tuple[float, str]


def step(number: int) -> str:
    return (
        f" iteration {number:8d}/    1000 | elapsed time per iteration (ms): 1.0 | lm loss: {3 - number / 1000:.6E} |"
    )


def steps(first: int, last: int, begin: float, each: float, every: int = 1) -> list[Line]:
    return [(begin + index * each, step(number)) for index, number in enumerate(range(first, last + 1, every))]


def loaded(number: int) -> str:
    return f"  successfully loaded checkpoint from /ckpt [ t 0, p 0 ] at iteration {number}"


def stamped(lines: Iterable[Line]) -> str:
    return "".join(
        f"{(BEGIN + timedelta(seconds=at)).isoformat(timespec='milliseconds')} {text}\n" for at, text in lines
    )


def run(text: str | bytes, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["goodput", "--file", "-", *arguments], input=text, catch_exceptions=False)


def answer(text: str | bytes, *arguments: str) -> dict[str, Any]:
    result = run(text, "--json", *arguments)
    assert result.exit_code == 0, result.output
    [found] = json.loads(result.stdout)["runs"]
    assert list(found) == ["run", "wall_seconds", "goodput", "buckets", "interruptions", "resolution", "notes"]
    assert sum(round(value * 1e6) for value in found["buckets"].values()) == round(found["wall_seconds"] * 1e6)
    return dict(found)


def spent(found: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in found["buckets"].items() if value}


def test_example_1_out_of_a_log() -> None:
    found = answer(stamped([(0, "launching"), *steps(1, 100, 130, 10)]))
    assert (found["wall_seconds"], found["goodput"]) == (1120, 0.8929)
    assert spent(found) == {"productive": 1000, "startup": 120}
    assert set(found["buckets"]) >= {"restore", "checkpoint", "evaluation", "data", "slow", "queued", "periodic"}
    assert found["interruptions"] == []


def test_example_2_out_of_a_log() -> None:
    lines: list[Line] = [(0, "launching")]
    time = 130.0
    for number in range(1, 101):
        lines.append((time, step(number)))
        if number in (25, 50, 75):
            lines.append((time, f"saving checkpoint at iteration {number} to /ckpt in torch format"))
            time += 30
            lines.append((time, f"  successfully saved checkpoint from iteration {number} to /ckpt"))
        time += 10
    assert spent(answer(stamped(lines))) == {"productive": 1000, "checkpoint": 90, "startup": 120}


def test_example_4_out_of_a_log() -> None:
    lines = [(0, "launching"), *steps(1, 180, 60, 10), (1855, f"[rank3]: {FAILED}"), (1855.2, "  traceback")]
    lines += [(2155, "launching"), (2200, loaded(100)), *steps(101, 300, 2275, 10)]
    found = answer(stamped(lines))
    assert spent(found) == {"productive": 3000, "startup": 160, "lost": 805, "down": 300}
    assert (found["wall_seconds"], found["goodput"]) == (4265, 0.7034)
    assert found["interruptions"] == [
        {"cause": "training_failed", "node": None, "rank": 3, "seconds": 1215, "gpu_hours": None}
    ]
    assert any(note.startswith("gpus: unknown") for note in found["notes"])


def test_example_5_out_of_a_log() -> None:
    lines = [(0, "launching"), *steps(10, 200, 80, 50, 10), (1042, FAILED)]
    lines += [(1100, loaded(195)), (1150, step(200)), *steps(210, 300, 1200, 50, 10)]
    found = answer(stamped(lines))
    assert spent(found) == {"productive": 1500, "startup": 55, "lost": 37, "down": 58}
    assert found["resolution"] == "every 10 steps"


def test_example_6_out_of_a_log() -> None:
    lines = [(0, "launching"), *steps(1, 300, 22, 2), *steps(301, 500, 1522, 2)]
    assert spent(answer(stamped(lines))) == {"productive": 1000, "startup": 20, "stalled": 900}


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (100, " validation loss at iteration {step} | lm loss value: 2.1E+00 | lm loss PPL: 8.1E+00 |"),
        (0, "***** Running Evaluation *****"),
        (1, "Evaluating iter 1/10"),
        (100, "{{'eval_loss': 1.2, 'eval_runtime': 100.0, 'epoch': 0.1}}"),
        (100, "{{'eval_loss': '1.2', 'eval_runtime': '99.99', 'epoch': '0.1'}}"),
    ],
)
def test_example_8_out_of_a_log(at: float, text: str) -> None:
    lines: list[Line] = [(0, "launching")]
    time = 40.0
    for number in range(1, 151):
        lines.append((time, step(number)))
        if number in (50, 100):
            lines.append((time + at, text.format(step=number)))
            time += 100
        time += 10
    found = answer(stamped(lines))
    assert found["buckets"]["evaluation"] == pytest.approx(200, abs=0.05)
    assert found["buckets"]["productive"] == 1500
    assert found["buckets"]["startup"] == 30


def test_example_7_out_of_a_log() -> None:
    hung = "[rank3]:[E ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL("
    hung += "SeqNum=21, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800030 milliseconds"
    lines = [(0, "launching"), *steps(1, 100, 34, 4), (2230, f"{hung} before timing out.")]
    lines += [(2290, "launching"), (2310, loaded(80)), *steps(81, 200, 2350, 4)]
    found = answer(stamped(lines))
    assert spent(found) == {"productive": 800, "stalled": 1796, "lost": 84, "startup": 86, "down": 60}
    assert [(one["cause"], one["rank"]) for one in found["interruptions"]] == [("collective_timeout", 3)]


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (["Received Signals.SIGTERM death signal, shutting down workers"], "preempted"),
        (["slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-05-01T00:05:00 DUE TO PREEMPTION ***"], "preempted"),
        (["Sending process 7 closing signal SIGTERM", FAILED], "training_failed"),
        (["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", FAILED], "out_of_memory"),
        ([FAILED, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"], "out_of_memory"),
        (["Killed"], "process_terminated"),
    ],
)
def test_the_most_telling_cause_is_the_interruptions(said: list[str], cause: str) -> None:
    lines = [(0, "launching"), *steps(1, 50, 105, 5), *((352.0 + index, text) for index, text in enumerate(said))]
    lines += [(520, "launching"), (540, loaded(40)), *steps(41, 100, 625, 5)]
    found = answer(stamped(lines))
    assert [one["cause"] for one in found["interruptions"]] == [cause]
    assert spent(found) == {"productive": 500, "startup": 200, "lost": 52, "down": 168}
    alone = answer(stamped(lines[: 51 + len(said)]))
    assert alone["interruptions"][0]["cause"] == cause.replace("preempted", "process_terminated")


def test_a_process_that_dies_without_a_word() -> None:
    lines = [(0, "launching"), *steps(1, 100, 10, 10), (1400, "launching"), *steps(81, 200, 1460, 10)]
    found = answer(stamped(lines))
    assert spent(found) == {"productive": 2000, "startup": 50, "stalled": 390, "lost": 210}
    assert found["interruptions"][0]["cause"] == "unknown"


def test_times_of_another_file(tmp_path: Path) -> None:
    lines = [(0, "launching"), *steps(1, 100, 130, 10)]
    bare = "".join(f"{text}\n" for _, text in lines)
    times = tmp_path / "times.txt"
    writers: list[Callable[[float], str]] = [
        lambda at: f"{BEGIN.timestamp() + at}",
        lambda at: f"{(BEGIN.timestamp() + at) * 1000:.0f}",
        lambda at: (BEGIN + timedelta(seconds=at)).isoformat(),
        lambda at: (BEGIN + timedelta(seconds=at)).strftime("%Y-%m-%dT%H:%M:%SZ"),
    ]
    for write in writers:
        times.write_text("".join(f"{write(at)}\n" for at, _ in lines))
        assert spent(answer(bare, "--times", str(times))) == {"productive": 1000, "startup": 120}


@pytest.mark.parametrize(
    ("text", "times", "reason"),
    [
        ("", None, "no line has a date and a time"),
        (step(1), None, "no line has a date and a time, so nothing can be measured; give their times in a file"),
        (stamped([(0, "hello")]), None, "no line is a step of training; `lens explain"),
        (step(1), "yesterday\n", "--times: line 1 is 'yesterday'; write seconds since the epoch or"),
        (step(1), "nan\n", "--times: line 1 is 'nan', which is no time"),
        (step(1), "-1e14\n", "--times: line 1 is '-1e14', which is no time"),
        (step(1), "\x00\n", "--times: line 1 is "),
        (f"{step(1)}\n{step(2)}\n", "1777593600\n", "--times: ends at line 1, before the log"),
    ],
)
def test_what_cannot_be_measured_is_said(
    text: str, times: str | None, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, given = tmp_path / "train.log", tmp_path / "times.txt"
    log.write_text(text)
    arguments = ["goodput", "--file", str(log)]
    if times is not None:
        given.write_text(times)
        arguments += ["--times", str(given)]
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 1
    assert reason in capsys.readouterr().err


def test_lines_that_are_no_text_lose_nothing_else() -> None:
    text = stamped([(0, "launching"), *steps(1, 100, 130, 10)]).encode()
    lines = text.splitlines(keepends=True)
    lines[50:50] = [b"\xff\xfe\x00 torn\n", b"\n", b"{" * 5000 + b"\n"]
    found = answer(b"".join(lines))
    assert spent(found) == {"productive": 1000, "startup": 120}
    assert any(note.startswith("2 of 104 lines have no time") for note in found["notes"])


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_a_log_and_its_times_of_windows(tmp_path: Path, encoding: str) -> None:
    text = stamped([(0, "launching"), *steps(1, 100, 130, 10)]).replace("\n", "\r\n")
    assert spent(answer(text.encode(encoding))) == {"productive": 1000, "startup": 120}
    times = tmp_path / "times.txt"
    times.write_text("".join(f"{1777593600 + at}\r\n" for at in (0, *range(130, 1130, 10))), encoding=encoding)
    bare = "".join(f"{line}\r\n" for line in ["launching", *map(step, range(1, 101))])
    assert spent(answer(bare.encode(encoding), "--times", str(times))) == {"productive": 1000, "startup": 120}


@pytest.mark.parametrize("number", [2**53, 2**62, 2**63, 10**25])
def test_a_step_that_no_training_reaches_loses_nothing_else(number: int) -> None:
    lines = [(0, "launching"), *steps(1, 100, 130, 10)]
    lines[50:50] = [(620.0, step(number)), (620.0, f"  successfully saved checkpoint from iteration {number} to /ckpt")]
    assert spent(answer(stamped(lines))) == {"productive": 1000, "startup": 120}


@pytest.mark.parametrize("steps_lost", [1, 2, 3, 5, 7, 11, 13, 17, 19, 23])
def test_the_sentence_and_the_table_say_the_same_share(steps_lost: int) -> None:
    lines: list[Line] = [(0, "launching"), *steps(1, 50, 105, 5), (355, FAILED), (520, "launching")]
    first = 50 - steps_lost
    lines += [(540, loaded(first)), *steps(first + 1, 100, 625, 5)]
    shown = run(stamped(lines)).output
    (share,) = re.findall(r"^productive .* (\S+%)$", shown, re.M)
    assert shown.startswith(f"{share} of ")


def test_words_for_people() -> None:
    lines = [(0, "launching"), *steps(1, 180, 60, 10), (1855, f"[rank3]: {FAILED}")]
    lines += [(2155, loaded(100)), *steps(101, 300, 2275, 10)]
    result = run(stamped(lines))
    assert result.output.startswith("70.3% of 1 h 11 min made progress; most of the rest was lost: 13 min 25 s\n")
    bar = result.output.splitlines()[1]
    assert len(bar) == 60
    assert bar.count("█") == 42
    assert "productive      50 min 0 s    70.3%" in result.output
    assert "training_failed         –                   3   20 min 15 s    unknown" in result.output


def test_the_command_is_the_plugins() -> None:
    host = PluginHost.load()
    [plugin] = [found for found in host.plugins() if found.name == "goodput"]
    assert (plugin.state, plugin.commands) == ("loaded", ["goodput"])
    assert "goodput" in host.commands()


def test_no_other_plugin_takes_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LENS_PLUGINS_DIR", str(tmp_path))
    (tmp_path / "other_ledger.py").write_text(
        "import click\nfrom lens_core import hookimpl\n"
        "@hookimpl\ndef lens_commands():\n    return [click.Command('goodput')]\n"
    )
    host = PluginHost.load()
    [refused] = [found for found in host.plugins() if found.name == "other_ledger"]
    assert refused.state == "conflicting"
    assert "the command name goodput is claimed by" in refused.reason
    callback = host.commands()["goodput"].callback
    assert callback is not None
    assert callback.__module__.startswith("lens_plugins.")


def test_a_batch_size_that_grows_in_a_log_makes_nothing_slow() -> None:
    """Example: Megatron's --rampup-batch-size, with lines in any order."""

    def grown(number: int) -> str:
        return step(number) + f" global batch size: {512 if number <= 100 else 1024:5d} |"

    lines = [(10.0 + 10 * number, grown(number)) for number in range(1, 101)]
    lines += [(1010.0 + 20 * number, grown(100 + number)) for number in range(1, 101)]
    found = spent(answer(stamped([(0, "launching"), *lines])))
    assert found == {"productive": 3000.0, "startup": 10.0}
    assert spent(answer(stamped([(0, "launching"), *reversed(lines)]))) == found


@pytest.mark.parametrize(
    ("end", "cause", "lost"),
    [("[after training is done] datetime: 2026-01-05", None, 0.0), (FAILED, "training_failed", 5.0)],
)
def test_steps_that_go_on_long_behind_an_end_are_of_another_process(end: str, cause: str | None, lost: float) -> None:
    found = answer(stamped([*steps(1, 50, 10, 10), (505, end), *steps(51, 100, 90_000, 10)]))
    assert found["buckets"]["stalled"] == 0
    assert found["buckets"]["lost"] == lost
    assert [one["cause"] for one in found["interruptions"]] == ([] if cause is None else [cause])
    assert (found["wall_seconds"] < 2000) == (cause is None), "the days behind a clean end are nobody's"
    at_once = answer(stamped([*steps(1, 50, 10, 10), (505, end), *steps(51, 100, 512, 10)]))
    assert at_once["interruptions"] == []


def test_the_error_of_a_gpu_in_a_log_is_the_cause_with_its_node() -> None:
    line = "gpu-node-18 kernel: [ 12.5] NVRM: Xid (PCI:0000:3b:00): {}, pid=7, name=python3, something"
    behind = [(1700.0, FAILED), *steps(41, 90, 2000, 10)]
    fatal = answer(stamped([*steps(1, 50, 10, 10), (504, line.format(79)), *behind]))["interruptions"]
    assert [(one["cause"], one["node"]) for one in fatal] == [("Xid 79: GPU fell off the bus", "gpu-node-18")]
    corrected = answer(stamped([*steps(1, 50, 10, 10), (504, line.format(63)), *behind]))["interruptions"]
    assert [one["cause"] for one in corrected] == ["training_failed"]
    passed = answer(stamped([*steps(1, 50, 10, 10), (104, line.format(79)), *behind]))["interruptions"]
    assert [one["cause"] for one in passed] == ["training_failed"]
