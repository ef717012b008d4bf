"""2,000 series built, compressed and sent to a local intake: Lens' sink beside the official client.

Both send the same series, gzipped, over one connection to the same server, which reads and decompresses the body and
answers 202. Measured is the whole of a batch: from records (or the client's models) to the answer.

    python -m benchmarks.datadog [--quick] [--json]
"""

from __future__ import annotations

import asyncio
import gzip
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lens_plugins.sinks.datadog import Datadog, DatadogSettings

from benchmarks.harness import Figure, options, peer_environment, report, spread_of, temporary_folder
from lens_core import Batch, Delivered, Measurement, Position, Secret
from lens_core.testing import make_context
from tests.stub_server import Answer, StubServer

SERIES = 2_000

# Runs in the peer's environment: prints the seconds of each round.
PEER = """
import json, sys, time
from datadog_api_client import ApiClient, Configuration
from datadog_api_client.v2.api.metrics_api import MetricsApi
from datadog_api_client.v2.model.metric_content_encoding import MetricContentEncoding
from datadog_api_client.v2.model.metric_intake_type import MetricIntakeType
from datadog_api_client.v2.model.metric_payload import MetricPayload
from datadog_api_client.v2.model.metric_point import MetricPoint
from datadog_api_client.v2.model.metric_series import MetricSeries

configuration = Configuration(host=sys.argv[1])
configuration.api_key["apiKeyAuth"] = "k" * 32
seconds = []
with ApiClient(configuration) as client:
    api = MetricsApi(client)
    for _ in range(int(sys.argv[3]) + 1):
        now = int(time.time())
        started = time.perf_counter()
        series = [
            MetricSeries(
                metric=f"benchmark.metric_{number}",
                type=MetricIntakeType.GAUGE,
                points=[MetricPoint(timestamp=now, value=number / 7)],
                tags=["env:benchmark", f"gpu:{number % 8}", "team:research"],
                unit="byte",
            )
            for number in range(int(sys.argv[2]))
        ]
        api.submit_metrics(content_encoding=MetricContentEncoding.GZIP, body=MetricPayload(series=series))
        seconds.append(time.perf_counter() - started)
print(json.dumps(seconds[1:]))
"""


class Intake:
    """Counts the series that arrive."""

    def __init__(self) -> None:
        self.series = 0
        self.url = ""


@contextmanager
def running_intake() -> Iterator[Intake]:
    """An intake on loopback."""
    intake = Intake()

    def answer(path: str, headers: dict[str, str], body: bytes) -> Answer:
        intake.series += gzip.decompress(body).count(b'"metric":')
        return 202, b'{"errors":[]}', {"Content-Type": "application/json"}

    server = StubServer(answer)
    intake.url = server.url
    try:
        yield intake
    finally:
        server.close()


def lens_seconds(url: str, rounds: int, folder: Path) -> list[float]:
    """The seconds of each round of Lens' sink, in a process of its own as the client is."""
    command = [sys.executable, "-m", "benchmarks.datadog", "--child", url, str(rounds), str(folder)]
    found: list[float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


async def send_rounds(url: str, rounds: int, folder: Path) -> list[float]:
    """Run the child's part."""
    settings = DatadogSettings(api_key=Secret("k" * 32), url=url, tags=["env:benchmark"])
    sink = Datadog(settings, make_context("datadog", folder))
    await sink.start()
    found = []
    for _ in range(rounds + 1):
        now = time.time()
        started = time.perf_counter()
        records = [
            Measurement(
                name=f"benchmark.metric_{number}",
                value=number / 7,
                unit="byte",
                event_time=now,
                tags={"gpu": str(number % 8), "team": "research"},
            )
            for number in range(SERIES)
        ]
        place = Position(1, 0)
        batch = Batch(records=records, start=Position(0, 0), end=place, spool_id="s", pipeline="p", sink="dd")
        answer = await sink.send(batch)
        found.append(time.perf_counter() - started)
        if answer != Delivered():
            raise RuntimeError(f"not delivered: {answer}")
    await sink.stop()
    return found[1:]


def peer_seconds(url: str, rounds: int) -> list[float]:
    """The seconds of each round of the official client."""
    python = peer_environment("datadog-api-client", ["datadog-api-client==2.62.0"]) / "python"
    command = [str(python), "-c", PEER, url, str(SERIES), str(rounds)]
    found: list[float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def measure(folder: Path, *, quick: bool) -> list[Figure]:
    """The figure of this script."""
    rounds = 3 if quick else 10
    ours: list[float] = []
    theirs: list[float] = []
    with running_intake() as intake:
        for _ in range(1 if quick else 3):
            ours += lens_seconds(intake.url, rounds, folder)
            theirs += peer_seconds(intake.url, rounds)
        expected = SERIES * (len(ours) + len(theirs) + 2 * (1 if quick else 3))
        if intake.series != expected:
            raise RuntimeError(f"{intake.series} series arrived, {expected} were sent")
    lens, peer = statistics.median(ours), statistics.median(theirs)
    return [
        Figure(
            figure="2,000 series built, compressed and sent",
            unit="ms",
            lens=lens * 1000,
            peer=peer * 1000,
            peer_name="datadog-api-client 2.62",
            ratio=peer / lens,
            goal="≤ 1/10 of the client's time",
            holds=lens <= peer / 10,
            spread=spread_of([seconds * 1000 for seconds in ours]),
        )
    ]


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(asyncio.run(send_rounds(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])))))
        return
    chosen = options(__doc__ or "")
    with temporary_folder() as folder:
        report(measure(folder, quick=chosen.quick), as_json=chosen.json)


if __name__ == "__main__":
    main()
