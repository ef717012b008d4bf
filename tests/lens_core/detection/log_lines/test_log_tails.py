"""The last lines of streams: bounded, without secrets, stored once something is wrong with a job."""

from __future__ import annotations

import itertools
import sys
import threading

from hypothesis import given
from hypothesis import strategies as st

from lens_core import Diagnosis, Event, LogLine, Origin
from lens_core.detection.log_lines import log_tails
from lens_core.detection.log_lines.kept_tails import MOVED_SECONDS, KeptTails
from lens_core.detection.log_lines.log_tails import LogTail, LogTails, decode_tail
from tests.lens_core.detection.log_lines.stand import POD, Stand, megatron, of

OTHER = Origin(workload_uid="w", pod_name="trainer-1", namespace="ns", container="main", rank=1)
FAILURE = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


def tails_of(stand: Stand, uid: str = "w") -> list[LogTail]:
    found, _ = stand.processor.tails.tails_of(lambda origin: origin.workload_uid == uid, 100)
    return found


def texts(tail: LogTail) -> list[str]:
    return [line.text for line in tail.lines]


def stored(stand: Stand, after: float = 10.0) -> list[LogTail]:
    stand.now += after
    tails = [decode_tail(report.data_content) for report in of(Diagnosis, stand.give([]))]
    return [tail for tail in tails if tail is not None]


def test_the_last_lines_of_each_stream_are_kept_without_secrets(stand: Stand) -> None:
    stand.feed(megatron(1), "WANDB_API_KEY=abcdef123456")
    stand.feed("of another rank", origin=OTHER)
    assert sorted(map(texts, tails_of(stand))) == [[megatron(1), "WANDB_API_KEY=***"], ["of another rank"]]
    assert tails_of(stand, "another") == []


def test_a_stream_that_says_little_among_much_of_another_is_kept() -> None:
    """A traceback on stderr comes in one submission with the many lines that other threads still print."""
    tails, origin = LogTails(), Origin(workload_uid="w")
    much = [LogLine(origin=origin, text="x" * 80, stream="stdout") for _ in range(400)]
    traceback = LogLine(origin=origin, text="Traceback", stream="stderr")
    tails.append_lines([much[0], traceback, *much], lambda one: (one.workload_uid,), lambda one: ["w"], 1.0)
    found, _ = tails.tails_of(lambda one: True, 10)
    assert {tail.stream: texts(tail)[-1] for tail in found} == {"stdout": "x" * 80, "stderr": "Traceback"}


@given(
    batches=st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3000)), max_size=20), max_size=20),
    rolled_back=st.sets(st.integers(0, 19)),
)
def test_memory_is_bounded_and_the_newest_lines_stay(
    batches: list[list[tuple[int, int]]], rolled_back: set[int]
) -> None:
    tails = LogTails(stream_bytes=5000, total_bytes=40_000)
    newest: dict[int, str] = {}
    for number, batch in enumerate(batches):
        tails.begin()
        lines = [
            LogLine(origin=Origin(workload_uid=f"w{job}"), text=f"{number}.{place} {'x' * size}")
            for place, (job, size) in enumerate(batch)
        ]
        tails.append_lines(lines, lambda origin: (origin.workload_uid,), lambda origin: [origin.workload_uid], number)
        assert tails.bytes <= 40_000
        if number in rolled_back:
            tails.rollback()
            assert tails.bytes == sum(stream.bytes for stream in tails._streams.values())
        else:
            newest |= {
                job: line.text[: log_tails.MOST_LINE_CHARACTERS] for (job, _), line in zip(batch, lines, strict=True)
            }
    found, count = tails.tails_of(lambda origin: True, 1000)
    assert len(found) == count
    assert all(tail.lines for tail in found)
    whole = sum(sum(len(line.text) for line in tail.lines) for tail in found)
    assert whole <= 40_000
    kept = {text for tail in found for text in texts(tail)[-1:]}
    assert kept <= set(newest.values())


def test_lines_are_read_while_another_thread_notes_failures() -> None:
    tails, is_over = LogTails(), threading.Event()

    def note_failures() -> None:
        for number in itertools.count():
            if is_over.is_set():
                return
            tails.note_trouble([f"w{number % 50}"], Origin(), (f"w{number % 50}", str(number)), number)
            if number % 400 == 0:
                tails.forget_streams(lambda origin: True)

    noting = threading.Thread(target=note_failures)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    noting.start()
    try:
        for _ in range(20_000):
            tails.tails_of(lambda origin: True, 5)
    finally:
        is_over.set()
        noting.join()
        sys.setswitchinterval(interval)


def test_a_failure_stores_the_last_lines_with_what_was_printed_after_it(stand: Stand) -> None:
    stand.feed("calm", origin=OTHER)
    stand.feed(megatron(1), FAILURE)
    stand.feed("and what came after")
    first, second = stored(stand)
    assert (first.has_cause, texts(first)[-2:]) == (True, [FAILURE, "and what came after"])
    assert (second.has_cause, second.rank, texts(second)) == (False, 1, ["calm"])
    assert stored(stand) == [], "once"


def test_a_failure_that_another_sender_tells_stores_the_last_lines(stand: Stand) -> None:
    stand.feed("the last words")
    stand.give([Event(origin=POD, type="training_failed", event_time=stand.now)])
    assert [texts(tail) for tail in stored(stand)] == [["the last words"]]


def test_a_job_that_fails_all_the_time_is_stored_once_a_minute(stand: Stand) -> None:
    kept = 0
    stand.feed("the last words")
    for _ in range(100):
        stand.give([Event(origin=POD, type="training_failed", event_time=stand.now)])
        kept += bool(stored(stand, after=1.0))
    assert kept == 2


def test_what_could_not_be_stored_is_drained_again_and_lines_do_not_double(stand: Stand) -> None:
    stand.feed("one")
    stand.feed("two", commit=False)
    stand.feed("two", FAILURE)
    assert texts(tails_of(stand)[0]) == ["one", "two", FAILURE]
    stand.now += 10
    assert of(Diagnosis, stand.give([], commit=False))
    assert of(Diagnosis, stand.give([]))


def test_deleted_jobs_are_forgotten(stand: Stand) -> None:
    stand.feed("one", FAILURE)
    stand.processor.end_jobs(lambda origin: origin.workload_uid == "w")
    assert tails_of(stand) == []
    assert stored(stand) == []


def test_a_secret_in_the_line_of_a_failure_is_no_part_of_the_event(stand: Stand) -> None:
    stand.feed(megatron(1))
    error = "RuntimeError: cannot read with AWS_SECRET_ACCESS_KEY=abcdefgh"
    done = stand.feed("Traceback (most recent call last):", '  File "train.py", line 1, in <module>', error)
    (event,) = of(Event, done)
    assert "RuntimeError: cannot read" in repr(event)
    assert "abcdefgh" not in repr(event)


def test_tails_of_a_partition_that_moved_are_held_for_a_while() -> None:
    now = [0.0]
    kept = KeptTails(clock=lambda: now[0])
    working, moved, lost, gone = (LogTails() for _ in range(4))
    for tails in (working, moved, lost, gone):
        kept.add_tails(tails)
    kept.release_tails(lost, is_moved=False)
    kept.release_tails(gone, is_moved=True)
    now[0] = MOVED_SECONDS / 2
    kept.release_tails(moved, is_moved=True)
    kept.drop_released()
    assert set(kept) == {working, moved, gone}
    now[0] = MOVED_SECONDS
    kept.drop_released()
    assert set(kept) == {working, moved}
    kept.drop_released(at_once=True)
    assert set(kept) == {working}


def test_only_the_stream_in_which_the_failure_stands_told_it(stand: Stand) -> None:
    def lines(stream: str, *said: str) -> list[LogLine]:
        return [LogLine(origin=POD, text=text, stream=stream, event_time=stand.now) for text in said]

    stand.give([*lines("stdout", megatron(1), "saving the rest"), *lines("stderr", FAILURE), *lines("stdout", "bye")])
    told = {tail.stream: tail.has_cause for tail in tails_of(stand)}
    assert told == {"stdout": False, "stderr": True}
    assert [tail.stream for tail in tails_of(stand)] == ["stderr", "stdout"]
    assert {tail.stream: tail.has_cause for tail in stored(stand)} == told
