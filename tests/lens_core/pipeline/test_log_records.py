"""A log as the daemon would read it, without a daemon."""

from __future__ import annotations

import io

from hypothesis import given, settings
from hypothesis import strategies as st

from lens_core import Event, LogLine, StepMetrics
from lens_core.logs import decode_lines, parse_log_line, read_log
from tests.generated import examples

# Any text without what ends lines, and without surrogates, which no file has.
LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\ufeff"), max_size=30)


def test_a_container_prefix_gives_the_time_and_parts_are_joined() -> None:
    whole = parse_log_line("2026-05-18T16:04:46.5Z stdout F {'loss': 1.0}\n")
    assert (whole.text, whole.event_time, whole.source) == ("{'loss': 1.0}", 1779120286.5, "log")
    parts = [
        parse_log_line(f"2026-05-18T16:04:46Z stdout {mark} {text}")
        for mark, text in (
            ("P", " iteration        7/ 10 | elapsed time per"),
            ("F", " iteration (ms): 5.0 | lm loss: 2.0 |"),
        )
    ]
    [row] = [record for record in read_log(parts) if isinstance(record, StepMetrics)]
    assert (row.row_step, row.values["lm_loss"]) == (7, 2.0)


def test_a_printed_time_is_the_lines_and_a_line_without_one_has_none() -> None:
    assert parse_log_line("[2026-05-18T16:04:46Z] hello").event_time == 1779120286.0
    assert parse_log_line("hello").event_time is None


def test_rows_and_events_come_in_their_order_with_their_times() -> None:
    texts = [
        "  successfully loaded checkpoint from /ckpt [ t 0, p 0 ] at iteration 6",
        " iteration        7/ 10 | elapsed time per iteration (ms): 5.0 | lm loss: 2.0 |",
        " iteration        8/ 10 | elapsed time per iteration (ms): 5.0 | lm loss: 2.0 |",
    ]
    lines = [LogLine(text=text, event_time=100.0 + index) for index, text in enumerate(texts)]
    found = [record for record in read_log(lines) if isinstance(record, Event | StepMetrics)]
    assert [(type(record).__name__, record.event_time) for record in found] == [
        ("Event", 100.0),
        ("StepMetrics", 101.0),
        ("StepMetrics", 102.0),
    ]


@settings(max_examples=examples(100))
@given(st.lists(LINE, max_size=8), st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"]))
def test_lines_are_read_in_every_encoding_that_files_have(lines: list[str], encoding: str) -> None:
    """A character of a line may have the byte of a line's end in it; the first line tells the encoding."""
    whole = ["2026-05-18 16:04:46 launching", *lines]
    text = "\n".join(whole)
    assert [line.rstrip("\n") for line in decode_lines(io.BytesIO(text.encode(encoding)))] == text.rstrip("\n").split(
        "\n"
    )
    ended = (text + "\n").encode(encoding)
    assert [line[:-1] for line in decode_lines(io.BytesIO(ended))] == whole


@settings(max_examples=examples(100))
@given(st.lists(st.binary(max_size=20), max_size=5))
def test_bytes_that_are_no_text_lose_nothing_else(lines: list[bytes]) -> None:
    raw = b"\n".join([b"launching", *(line.replace(b"\n", b"") for line in lines), b"the end \xff"])
    found = list(decode_lines(io.BytesIO(raw)))
    assert len(found) == len(lines) + 2
    assert (found[0], found[-1]) == ("launching\n", "the end \ufffd")


def test_an_empty_file_has_no_lines() -> None:
    assert list(decode_lines(io.BytesIO(b""))) == []
