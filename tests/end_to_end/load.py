"""A client under load: sends steps one body after another, again until they are acknowledged, and remembers which."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from tests.end_to_end.running_lens import PLAIN, RunningLens, metrics_body, wait_for

STEPS_PER_BODY = 20
NAMES = 5


class Load:
    """The rows of one client; `acknowledged` are the steps that were answered with 200."""

    def __init__(self, lens: RunningLens, workload: str) -> None:
        self.acknowledged: list[int] = []
        self.refusals = 0
        self._lens = lens
        self._workload = workload
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def wait_for_more(self, steps: int, seconds: float = 240.0) -> None:
        """Until so many more steps are acknowledged."""
        wanted = len(self.acknowledged) + steps
        wait_for(lambda: len(self.acknowledged) >= wanted, seconds, f"{steps} more acknowledged steps")

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self) -> None:
        """Send nothing more."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        for first in itertools.count(0, STEPS_PER_BODY):
            steps = range(first, first + STEPS_PER_BODY)
            body = metrics_body(self._workload, steps, names=NAMES)
            while not self._is_taken(body):
                if self._stop.wait(0.02):
                    return
            self.acknowledged += steps
            if self._stop.is_set():
                return

    def _is_taken(self, body: object) -> bool:
        try:
            response = httpx.post(f"{self._lens.url}/api/v1/wandb/metrics", json=body, timeout=240, verify=PLAIN)
        except httpx.HTTPError:
            self.refusals += 1
            return False
        assert response.status_code in (200, 503), response.text
        self.refusals += response.status_code == 503
        return response.status_code == 200


@contextmanager
def load(lens: RunningLens, workload: str) -> Iterator[Load]:
    """A client that sends until the block ends."""
    client = Load(lens, workload)
    client.start()
    try:
        yield client
    finally:
        client.stop()


def every_acknowledged_point_is_there_exactly_once(lens: RunningLens, client: Load, workload: str) -> None:
    """Compare what was acknowledged with what the query API answers, points and catalogue."""
    assert client.acknowledged
    for number in (0, NAMES - 1):
        points = lens.points(workload, metrics=f"m{number}")
        steps = [point["iteration"] for point in points]
        assert len(steps) == len(set(steps))
        assert set(client.acknowledged) <= set(steps)
        assert all(point["value"] == point["iteration"] + number / 100 for point in points)
    [source] = lens.get(f"/workloads/{workload}/metrics/sources")["data_sources"]
    assert source["count"] == len(steps)
    counts = {metric["count"] for metric in lens.get(f"/workloads/{workload}/metrics/available")["metrics"]}
    assert counts == {len(steps)}
