"""A receiver that is slow is asked less often: what is not much waits for more."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lens_hook import spool
from lens_hook.buffer import Buffer
from lens_hook.sender import rest_after
from lens_hook.session import Session
from lens_hook.settings import Settings
from lens_hook.store import CROWDED_BYTES
from lens_hook.worker import Worker

from tests.plugins.sources.wandb_hook.receiver import Receiver, Request, accept, receiving

SLOW_SECONDS = 0.1


class Hook:
    """As much of a process's hook as its worker asks for."""

    def __init__(self, receiver: Receiver, spool_path: str = "") -> None:
        self.settings = Settings(base_url=receiver.url, flush_interval_seconds=0.05, spool_path=spool_path)
        self.buffer = Buffer(8 << 20, 1000)
        self.session = Session("wandb", "run", self.buffer)
        self.session.evidence_due = False
        self.sessions = [self.session]
        self.system_values: dict[str, float] = {}

    def forget_ended(self) -> None:
        """Nothing ends here."""

    def log(self, rows: int, names: int = 1) -> None:
        """Rows as a training loop leaves them."""
        for _ in range(rows):
            values = {f"metric_{number}": 0.5 for number in range(names)}
            self.buffer.append_row((self.session, values, None, None, None, None, time.time()))


@pytest.fixture
def slow() -> Iterator[Receiver]:
    """A receiver that takes its time."""
    pause = threading.Event()

    def answer(request: Request) -> tuple[int, bytes, dict[str, str]]:
        pause.wait(SLOW_SECONDS)
        return accept(request)

    with receiving(answer) as receiver:
        yield receiver


@pytest.mark.parametrize("spooled", [False, True])
def test_few_rows_wait_and_many_do_not(
    slow: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spooled: bool
) -> None:
    hook = Hook(slow, str(tmp_path) if spooled else "")
    monkeypatch.setattr("lens_hook.sender.rest_after", lambda seconds: 10.0 * seconds)
    worker = Worker(hook)
    hook.log(1)
    worker.cycle()
    hook.log(1)
    worker.cycle()
    assert len(slow.rows()) == 1
    hook.log(rows=40, names=CROWDED_BYTES // 40 // 15)
    worker.cycle()
    assert len(slow.rows()) == 42
    worker.close()


def test_an_end_waits_for_nothing(slow: Receiver) -> None:
    hook = Hook(slow)
    worker = Worker(hook)
    hook.log(1)
    worker.cycle()
    hook.log(1)
    assert worker.deliver_all(time.monotonic() + 240.0)
    assert len(slow.rows()) == 2
    worker.close()


def test_a_quick_receiver_is_hardly_kept_waiting_and_a_slow_one_not_for_ever() -> None:
    assert rest_after(0.01) <= 0.1
    rests = [rest_after(60.0) for _ in range(300)]
    assert min(rests) < 2.0
    assert 18.0 < max(rests) <= 20.0


def test_of_very_many_spools_in_one_directory_some_are_looked_at(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"lens-hook-host-{number}-0.jsonl").write_bytes(b"")
    looked = {name for _ in range(2) for name in spool._few(sorted(path.name for path in tmp_path.iterdir()))}
    assert 100 < len(looked) <= 200
    assert spool._few(["a", "b"]) == ["a", "b"]
