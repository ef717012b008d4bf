"""Reports of stacks: their size, their merging, their place."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_core import LensError
from lens_core.diagnosis import RankStack, StackReport, ThreadStack, decode_report, encode_report, merge_stacks
from lens_core.diagnosis.stacks import own_frames, split_frame

texts = st.text(max_size=40)
threads = st.builds(ThreadStack, texts, st.lists(texts, max_size=80).map(tuple))
ranks = st.builds(
    RankStack,
    rank=st.none() | st.integers(0, 1000),
    pid=st.integers(1, 1 << 22),
    threads=st.lists(threads, max_size=20).map(tuple),
    mark=texts,
)


@given(st.lists(ranks, max_size=12).map(tuple), st.integers(200, 5000))
def test_a_report_fits_and_says_what_was_cut(found: tuple[RankStack, ...], max_bytes: int) -> None:
    whole = StackReport(ranks=found)
    text = encode_report(whole, max_bytes)
    report = decode_report(text)
    assert not report.ranks or len(text.encode()) <= max_bytes
    assert (report.cut > 0) == (report.ranks != found)


@given(texts)
def test_any_text_is_a_report_or_an_error(text: str) -> None:
    with contextlib.suppress(LensError):
        decode_report(text)


@pytest.mark.parametrize(
    ("frame", "parts"),
    [
        ("train (job/train.py:30)", ("train", "job/train.py", 30)),
        ("operator() (libtorch.so)", ("operator()", "libtorch.so", 0)),
        ("<module> (a (b)/c.py:1)", ("<module> (a", "b)/c.py", 1)),
        ("odd", ("odd", "", 0)),
    ],
)
def test_frames(frame: str, parts: tuple[str, str, int]) -> None:
    assert split_frame(frame) == parts


def test_polling_inside_a_library_is_one_place() -> None:
    outer = ("train (job/train.py:20)", "<module> (job/train.py:50)")
    one = ("wait (lib/threading.py:320)", "get (lib/queue.py:180)", *outer)
    other = (
        "select (lib/selectors.py:400)",
        "poll (lib/multiprocessing/connection.py:5)",
        "get (lib/queue.py:180)",
        *outer,
    )
    assert own_frames(one) == own_frames(other) == ("get (lib/queue.py)", *outer)
    assert own_frames(("clock_nanosleep (libc.so.6)", *outer)) == outer


def stack(rank: int, *frames: str) -> RankStack:
    return RankStack(rank=rank, pid=rank, threads=(ThreadStack("MainThread", frames),))


def test_the_odd_rank_comes_first() -> None:
    waiting = ("all_reduce (torch/distributed/c10d.py:1)", "step (train.py:9)")
    groups = merge_stacks([stack(0, *waiting), stack(1, *waiting), stack(2, "read (data.py:3)"), stack(3, *waiting)])
    assert [(group.ranks, group.is_suspect) for group in groups] == [(["2"], True), (["0", "1", "3"], False)]


def test_a_minority_in_another_collective_is_suspect_and_halves_are_not() -> None:
    one, other = "all_reduce (torch/distributed/c10d.py:1)", "broadcast (torch/distributed/c10d.py:7)"
    a, b = (one, "step (train.py:9)"), (other, "save (train.py:80)")
    groups = merge_stacks([stack(0, *a), stack(1, *b), stack(2, *a)])
    assert [(group.ranks, group.is_suspect) for group in groups] == [(["1"], True), (["0", "2"], False)]
    assert not any(group.is_suspect for group in merge_stacks([stack(0, *a), stack(1, *b)]))


def test_values_of_variables_are_not_in_a_report() -> None:
    report = json.loads(encode_report(StackReport(ranks=(stack(0, "f (a.py:1)"),))))
    assert set(report["ranks"][0]) <= {"rank", "pid", "threads", "mark", "command", "world_size", "local_rank"}
