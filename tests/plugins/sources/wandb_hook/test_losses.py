"""Records that the hook cannot send are counted, said once at the end, and take no others with them."""

from __future__ import annotations

import time

import pytest
from lens_hook import say
from lens_hook.worker import Worker

from tests.plugins.sources.wandb_hook.receiver import Receiver
from tests.plugins.sources.wandb_hook.test_resting import Hook


class Odd:
    """Nothing that can be written."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@pytest.mark.parametrize("odd", [1, 3])
def test_events_that_cannot_be_encoded_are_counted(
    receiver: Receiver, capfd: pytest.CaptureFixture[str], odd: int
) -> None:
    say._said.clear()
    hook = Hook(receiver)
    worker = Worker(hook)
    for _ in range(odd):
        worker.event(hook.session, "checkpoint_saved", {"odd": Odd()})
    worker.event(hook.session, "checkpoint_saved", {"path": "x"})
    hook.log(2)
    assert worker.deliver_all(time.monotonic() + 240.0)
    worker.print_summary()
    worker.close()
    assert [event["details"] for event in receiver.records("event")] == [{"path": "x"}]
    assert len(receiver.rows()) == 2
    assert hook.buffer.counts.lost_others == odd
    assert f" {odd} events or evidence records did not reach {receiver.url}" in capfd.readouterr().err
