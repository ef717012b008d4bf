"""A call of a plugin that computes in a thread without end is named; short calls and waiting threads are not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from lens_core import Delivered, Sink
from lens_core.base.self_metrics import SelfMetrics
from lens_core.daemon.blame import Blame
from lens_core.daemon.thread_watch import ThreadWatch, thread_cpu_seconds
from lens_core.testing import host_of


class Threaded(Sink):
    """Has threads."""

    name = "threaded"

    async def send(self, batch: object) -> Delivered:
        return Delivered()


@contextmanager
def running(work: Callable[[], object]) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=work, name="helper", daemon=True)
    thread.start()
    yield thread


class Seen:
    """A watch whose clock and processor times a test moves."""

    def __init__(self) -> None:
        metrics = SelfMetrics()
        self.now = 0.0
        self.used: dict[int, float] = {}
        self.watch = ThreadWatch(
            Blame(host_of(Threaded), metrics), metrics, cpu_seconds=lambda: self.used, clock=lambda: self.now
        )

    def look(self, thread: threading.Thread, computed: float) -> list[str]:
        self.now += 5.0
        number = thread.native_id or 0
        self.used[number] = self.used.get(number, 0.0) + computed
        self.watch.check_threads()
        return [one.function for one in self.watch.busy()]


def test_one_call_that_computes_on_and_on_is_named() -> None:
    go_on = threading.Event()

    def compute() -> None:
        go_on.wait()

    seen = Seen()
    with running(compute) as thread:
        assert seen.look(thread, 1.0) == []
        assert seen.look(thread, 0.1) == []
        assert seen.look(thread, 2.0) == ["compute"]
        assert seen.watch.busy()[0].cpu_seconds == 2.0
        go_on.set()
        thread.join()


def test_many_short_calls_in_a_pool_are_nobodys_fault() -> None:
    began, go_on = threading.Semaphore(0), threading.Semaphore(0)
    workers = []

    def short() -> None:
        workers.append(threading.current_thread())
        began.release()
        go_on.acquire()

    seen = Seen()
    with ThreadPoolExecutor(1) as pool:
        for _ in range(4):
            call = pool.submit(short)
            began.acquire()
            assert seen.look(workers[-1], 3.0) == []
            go_on.release()
            call.result()
    assert len(set(workers)) == 1


def test_the_processor_times_of_this_process_are_read() -> None:
    used = thread_cpu_seconds()
    assert used[threading.get_native_id()] >= 0.0
