"""`lens demo`: a daemon on the embedded default, a small real training run, and where to look at it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from ..base.errors import LensError
from ..demo.scripted import Script, right_ledger
from ..plugin_api.commands import data_dir_option
from .client import request_json, resolve_data_dir
from .screen import make_console, pictures
from .wording import in_locale, page_address, sparkline

PREFERRED_PORT = 8080
# Without --seconds: long enough for everything that is planted, and the page stays afterwards.
DEFAULT_SECONDS = 1200.0
RANKS = 2


@click.command("demo")
@click.option(
    "--seconds",
    type=click.FloatRange(1, 86_400),
    help="Train for so many seconds, then stop [default: train for 20 minutes, then keep the page].",
)
@click.option("--no-browser", is_flag=True, help="Do not open the page.")
@click.option("--faults", is_flag=True, help="Run a job with scripted faults, and compare where its time went.")
@data_dir_option
def command(seconds: float | None, no_browser: bool, faults: bool, data_dir: Path | None) -> None:
    """Start a daemon and a small training run on two ranks, and show the stored data.

    The training logs through wandb and through what it prints. A spike, a NaN, checkpoints and a stall are planted.

    With --faults it is another job, of about four minutes: killed, slowed down by one rank, hung until a watchdog
    ends it, with evaluations and a disk that gets slower. The time that each of these took is known, and printed beside
    the ledger of Lens.

    \b
    Examples:
      lens demo
      lens demo --seconds 20 --no-browser
      lens demo --faults --no-browser
    """
    if faults:
        if seconds is not None:
            raise click.UsageError("--faults takes as long as its script does: leave --seconds out")
        _run_faults(resolve_data_dir(data_dir) / "demo", open_page=not no_browser)
        return
    if importlib.util.find_spec("wandb") is None:
        raise LensError('the demo trains with the real wandb package; pip install "lens-agent[demo]"')
    directory = resolve_data_dir(data_dir) / "demo"
    workload = f"demo-{time.strftime('%Y%m%d-%H%M%S')}"
    training_for = seconds or DEFAULT_SECONDS
    with _daemon(directory) as url, tempfile.TemporaryDirectory(prefix="lens-demo-") as folder:
        _introduce(url, workload, directory, open_page=not no_browser)
        training = _training(url, workload, training_for, Path(folder))
        with training as process, contextlib.suppress(KeyboardInterrupt):
            _watch_training(url, workload, process)
            _print_comparison(url, workload, process, Path(folder))
            if seconds is None:
                click.echo(f"The training is over; {url}/ stays until Ctrl-C.")
                signal.pause()


def _run_faults(directory: Path, *, open_page: bool) -> None:
    """Run the scripted job under a daemon, and print the right ledger beside that of Lens."""
    script = Script()
    workload = f"demo-faults-{time.strftime('%Y%m%d-%H%M%S')}"
    with _daemon(directory) as url, tempfile.TemporaryDirectory(prefix="lens-demo-") as name:
        folder = Path(name)
        _introduce(url, workload, directory, open_page=open_page)
        click.echo(f"The job takes about {script.seconds / 60:.0f} minutes; its log: {folder}/training.log")
        run = [sys.executable, "-m", "lens_core.cli", "run", "--log", "--url", url, "--workload", workload, "--"]
        job = [sys.executable, "-m", "lens_core.demo.scripted", str(folder), json.dumps(script)]
        with (folder / "training.log").open("wb") as log:
            done = subprocess.run([*run, *job], stdout=log, stderr=log, check=False)
        if done.returncode:
            told = (folder / "training.log").read_text(errors="replace")[-2000:]
            raise LensError(f"the job failed with exit code {done.returncode}:\n{told}")
        right = right_ledger(folder, script)
        click.echo(f"{'BUCKET':<12}{'SCRIPTED':>10}{'LENS':>10}")
        seen = _wait_for_ledger(url, workload, sum(right.values()))
        for bucket in sorted({*right, *seen}, key=lambda one: -right.get(one, 0.0)):
            if right.get(bucket, 0.0) >= 0.05 or seen.get(bucket, 0.0) >= 0.05:
                click.echo(f"{bucket:<12}{right.get(bucket, 0.0):>8.1f} s{seen.get(bucket, 0.0):>8.1f} s")
        click.echo(f"lens goodput {workload} says it in words.")


def _wait_for_ledger(url: str, workload: str, wall_seconds: float) -> dict[str, float]:
    """The buckets of the job, as soon as all of it is stored."""
    deadline = time.monotonic() + 15
    while True:
        runs = request_json("GET", url, f"/api/v1/workloads/{workload}/goodput")["runs"]
        is_whole = bool(runs) and runs[0]["wall_seconds"] >= 0.97 * wall_seconds
        if is_whole or time.monotonic() > deadline:
            return dict(runs[0]["buckets"]) if runs else {}
        time.sleep(0.5)


def _introduce(url: str, workload: str, directory: Path, *, open_page: bool) -> None:
    page = page_address(url, workload)
    click.echo(f"The page:        {url}/")
    click.echo(f"The run:         {page}")
    click.echo(f"The query API:   {url}/api/v1/workloads/{workload}/metrics/data?metrics=loss")
    click.echo(f"In a terminal:   lens top --url {url}")
    click.echo(f"The data:        {directory}\n")
    if open_page and sys.stdout.isatty():
        click.launch(page)


@contextlib.contextmanager
def _daemon(directory: Path) -> Iterator[str]:
    """A daemon as a child process; gives its address."""
    click.echo(in_locale("Starting the daemon with its own PostgreSQL …"), err=True)
    port = _free_port()
    process, line = _start_daemon(directory, port)
    if not line and port and not _free_port():  # somebody has taken the port since it was looked at
        process.wait()
        process, line = _start_daemon(directory, 0)
    try:
        if not line:
            raise LensError("the daemon did not start; its messages are above")
        address: str = msgspec.json.decode(line)["listening"]
        yield address
    finally:
        process.terminate()
        process.wait()


def _start_daemon(directory: Path, port: int) -> tuple[subprocess.Popen[bytes], bytes]:
    """Start a daemon; returns its first line, which is empty where it did not start."""
    up = ["up", "--listen", f"127.0.0.1:{port}", "--data-dir", str(directory)]
    command = [sys.executable, "-m", "lens_core.cli", *up, "--announce-json", "--exit-with-parent", str(os.getpid())]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    return process, process.stdout.readline()


def _free_port() -> int:
    """8080 if nobody has it, so that the address is the usual one; else any."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", PREFERRED_PORT))
        except OSError:
            return 0
    return PREFERRED_PORT


@contextlib.contextmanager
def _training(url: str, workload: str, seconds: float, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The training script under `lens run --log`, as a user would start it."""
    environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_DIR": str(folder), "WANDB_SILENT": "true"}
    environment.pop("RANK", None)
    run = [sys.executable, "-m", "lens_core.cli", "run", "--log", "--url", url, "--workload", workload, "--"]
    train = [sys.executable, "-m", "lens_core.demo.train", str(seconds), str(folder)]
    with (folder / "training.log").open("wb") as log:
        process = subprocess.Popen([*run, *train], env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def _watch_training(url: str, workload: str, training: subprocess.Popen[bytes]) -> None:
    """Show the loss as it comes out of the database, until the training ends."""
    console = make_console(piped_width=100)
    with pictures(console, lines_every_seconds=15.0) as show:
        while training.poll() is None:
            show(_index(_points(url, workload), _stored(url, workload), console.width))
            time.sleep(0.5)


def _points(url: str, workload: str) -> list[dict[str, Any]]:
    asked = {"metrics": "loss", "data_source": "wandb", "max_points": "400"}
    points: list[dict[str, Any]] = request_json("GET", url, f"/api/v1/workloads/{workload}/metrics/data", **asked)[
        "data"
    ]
    return sorted(points, key=lambda point: int(point["timestamp"]))


def _stored(url: str, workload: str) -> int:
    sources = request_json("GET", url, f"/api/v1/workloads/{workload}/metrics/sources")["data_sources"]
    return sum(source["count"] for source in sources if source["name"] == "wandb")


def _index(points: list[dict[str, Any]], stored: int, width: int) -> str:
    if not points:
        return "waiting for the first step …"
    values = [point["value"] for point in points if point["value"] is not None]
    last = max((point for point in points if point["value"] is not None), key=lambda point: int(point["iteration"]))
    line = f"step {last['iteration']}   loss {last['value']:.4f}   {stored} steps of {RANKS} ranks stored"
    return f"loss  {sparkline(values, width - 8)}\n{line}"


def _print_comparison(url: str, workload: str, training: subprocess.Popen[bytes], folder: Path) -> None:
    """Print the logged values beside the stored ones."""
    if training.poll():
        told = (folder / "training.log").read_text(errors="replace")[-2000:]
        raise LensError(f"the training script failed with exit code {training.returncode}:\n{told}")
    logged = sum(int((folder / f"steps-{rank}").read_text()) for rank in range(RANKS))
    stored = _stored(url, workload)
    deadline = time.monotonic() + 10
    while stored < logged and time.monotonic() < deadline:
        time.sleep(0.1)
        stored = _stored(url, workload)
    click.echo(_index(_points(url, workload), stored, 100))
    click.echo(f"The training logged {logged} steps on {RANKS} ranks; {stored} of them are stored.")
    events = request_json("GET", url, f"/api/v1/workloads/{workload}/events")["events"]
    # Each rank's run and the log say that they have ended; once is enough here.
    for line in dict.fromkeys(_event_line(event) for event in reversed(events)):
        click.echo(line)
    if stored != logged:
        raise LensError(f"{logged - stored} steps are missing")


def _event_line(event: Mapping[str, Any]) -> str:
    where = "" if event["iteration"] is None else f"iteration {event['iteration']}"
    return f"  {event['type']:18} {where}".rstrip()
