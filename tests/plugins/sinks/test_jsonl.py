from __future__ import annotations

import json
import logging
import math
import resource
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.sinks.jsonl import Jsonl, JsonlSettings, encode_lines

from lens_core import Batch, Context, Delivered, Event, Measurement, Position, StepMetrics
from lens_core.base.self_metrics import SelfMetrics


def batch(steps: Sequence[int], number: int, spool: str = "s") -> Batch:
    records = [StepMetrics(data_source="wandb", row_step=step, values={"loss": step / 2}) for step in steps]
    return Batch(
        records=records,
        start=Position(number - 1, 0),
        end=Position(number, 0),
        spool_id=spool,
        pipeline="p",
        sink="file",
    )


async def sink_on(path: Path, **settings: int) -> Jsonl:
    context = Context(name="file", logger=logging.getLogger("test"), data_dir=path.parent, metrics=SelfMetrics())
    sink = Jsonl(JsonlSettings(path=str(path), **settings), context)
    await sink.start()
    return sink


@pytest.fixture
async def sink(tmp_path: Path) -> AsyncIterator[Jsonl]:
    made = await sink_on(tmp_path / "out" / "rows.jsonl")
    yield made
    await made.stop()


def steps_in(path: Path) -> list[int]:
    return [json.loads(line)["row_step"] for line in path.read_text().splitlines()]


async def test_lines_are_strict_json(sink: Jsonl) -> None:
    odd = StepMetrics(data_source="w", row_step=1, values={"a": math.nan, "b": -math.inf, "ü/x,y": 1.0})
    sent = Batch(records=[odd], start=Position(0, 0), end=Position(1, 0), spool_id="s", pipeline="p", sink="f")
    assert await sink.send(sent) == Delivered()
    [line] = Path(sink.settings.path).read_text().splitlines()
    assert json.loads(line)["values"] == {"a": "NaN", "b": "-Infinity", "ü/x,y": 1.0}


@given(
    values=st.lists(st.dictionaries(st.text(), st.floats()), min_size=1, max_size=3),
    text=st.sampled_from(["", "null", "NaN", "a\nnull"]),
    known=st.none() | st.floats(),
)
def test_every_record_is_a_line_that_says_what_it_is(
    values: list[dict[str, float]], text: str, known: float | None
) -> None:
    rows = [StepMetrics(data_source="w", row_step=1, values=each) for each in values]
    lines = encode_lines([*rows, Measurement(name=text, value=known), Event(type="t", details={"a": [known]})])
    *written, measured, event = [json.loads(line, parse_constant=pytest.fail) for line in lines.splitlines()]
    assert [row["values"] for row in written] == [{key: said(one) for key, one in each.items()} for each in values]
    assert (measured["name"], measured["value"], event["details"]) == (text, said(known), {"a": [said(known)]})


def said(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    return str(value).replace("nan", "NaN").replace("inf", "Infinity")


async def test_what_an_unfinished_write_left_is_cut_off_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    first = await sink_on(path)
    await first.send(batch([1, 2], 1))
    await first.stop()
    with path.open("a") as file:
        file.write('{"record":"step_metrics","row_st')
    second = await sink_on(path)
    assert await second.position("s") == Position(1, 0)
    assert await second.position("another spool") is None
    await second.send(batch([3], 2))
    await second.stop()
    assert steps_in(path) == [1, 2, 3]


async def test_a_batch_that_comes_again_is_not_written_again(sink: Jsonl) -> None:
    await sink.send(batch([1], 1))
    await sink.send(batch([1], 1))
    await sink.send(batch([1], 1, spool="other"))
    assert steps_in(Path(sink.settings.path)) == [1, 1]


async def test_rotation_keeps_so_many_files(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    sink = await sink_on(path, rotate_bytes=10, keep_files=2)
    for number in range(1, 6):
        await sink.send(batch([number], number))
    await sink.stop()
    assert sorted(file.name for file in tmp_path.glob("rows*")) == ["rows.jsonl", "rows.jsonl.1", "rows.jsonl.2"]
    assert [steps_in(tmp_path / name) for name in ("rows.jsonl.2", "rows.jsonl.1", "rows.jsonl")] == [[3], [4], [5]]


async def test_a_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    sink = await sink_on(path)
    await sink.send(batch([1], 1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 300, hard))
    try:
        with pytest.raises(OSError, match="large"):
            await sink.send(batch(range(2, 40), 2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    await sink.send(batch(range(2, 40), 2))
    await sink.stop()
    assert steps_in(path) == list(range(1, 40))


@pytest.mark.parametrize("way", ["deleted", "moved", "folder deleted"])
async def test_a_file_that_is_gone_is_opened_anew_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    path = tmp_path / "out" / "rows.jsonl"
    sink = await sink_on(path)
    await sink.send(batch([1], 1))
    if way == "moved":
        path.rename(tmp_path / "elsewhere.jsonl")
    elif way == "deleted":
        path.unlink()
    else:
        shutil.rmtree(path.parent)
    await sink.send(batch([2], 2))
    await sink.send(batch([3], 3))
    assert steps_in(path) == [2, 3]
    (said,) = [message for message in caplog.messages if "reopened" in message]
    assert f"{path} was {'moved' if way == 'moved' else 'deleted'} while" in said
    await sink.stop()
    again = await sink_on(path)
    assert await again.position("s") == Position(3, 0)
    assert steps_in(path) == [2, 3]
    await again.stop()


async def test_a_file_that_was_deleted_meanwhile_is_said_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "rows.jsonl"
    sink = await sink_on(path)
    await sink.send(batch([1], 1))
    await sink.stop()
    path.unlink()
    sink = await sink_on(path)
    await sink.send(batch([2], 2))
    await sink.stop()
    assert steps_in(path) == [2]
    assert len([message for message in caplog.messages if "was deleted or cut" in message]) == 1
