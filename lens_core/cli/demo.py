"""`lens demo`: a daemon on the embedded default, a small real training run, and where to look at it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import click
import msgspec

from ..errors import LensError
from .client import ask, data_dir_option, resolve_data_dir

PREFERRED_PORT = 8080


@click.command("demo")
@click.option("--seconds", type=click.FloatRange(1, 86_400), help="Train so long and stop; without it, until Ctrl-C.")
@click.option("--no-browser", is_flag=True, help="Do not open the page.")
@data_dir_option
def command(seconds: float | None, no_browser: bool, data_dir: Path | None) -> None:
    """Start a daemon and a small real training run that logs through wandb, and show what arrives.

    \b
    Examples:
      lens demo
      lens demo --seconds 20 --no-browser
    """
    if importlib.util.find_spec("wandb") is None:
        raise LensError('the demo trains with the real wandb package; pip install "lens-agent[demo]"')
    directory = resolve_data_dir(data_dir) / "demo"
    workload = f"demo-{time.strftime('%Y%m%d-%H%M%S')}"
    with _daemon(directory) as url, _training(url, workload, seconds or 86_400) as training:
        click.echo(f"The page:        {url}/")
        click.echo(f"The query API:   {url}/api/v1/workloads/{workload}/metrics/data?metrics=loss")
        click.echo(f"The data:        {directory}\n")
        if not no_browser and sys.stdout.isatty():
            click.launch(f"{url}/")
        with contextlib.suppress(KeyboardInterrupt):
            _watch(url, workload, training)
        _report(url, workload, training)


@contextlib.contextmanager
def _daemon(directory: Path) -> Iterator[str]:
    """A daemon as a child process; gives its address."""
    click.echo("Starting the daemon with its own PostgreSQL …", err=True)
    up = ["up", "--listen", f"127.0.0.1:{_free_port()}", "--data-dir", str(directory)]
    command = [sys.executable, "-m", "lens_core.cli", *up, "--announce-json", "--exit-with-parent", str(os.getpid())]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise LensError("the daemon did not start; its messages are above")
        address: str = msgspec.json.decode(line)["listening"]
        yield address
    finally:
        process.terminate()
        process.wait()


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
def _training(url: str, workload: str, seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    """The training script under `lens run`, as a user would start it."""
    with tempfile.TemporaryDirectory(prefix="lens-demo-") as folder:
        environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_DIR": folder, "WANDB_SILENT": "true"}
        run = [sys.executable, "-m", "lens_core.cli", "run", "--url", url, "--workload", workload, "--"]
        train = [sys.executable, "-m", "lens_core.demo.train", str(seconds)]
        process = subprocess.Popen([*run, *train], env=environment, stdout=subprocess.PIPE, start_new_session=True)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()


def _watch(url: str, workload: str, training: subprocess.Popen[bytes]) -> None:
    """Show the loss as it comes out of the database, until the training ends."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with Live(console=console, refresh_per_second=2, transient=True) as live:
        while training.poll() is None:
            live.update(_picture(_points(url, workload), console.width))
            time.sleep(0.5)


def _points(url: str, workload: str) -> list[dict[str, Any]]:
    points: list[dict[str, Any]] = ask("GET", url, f"/api/v1/workloads/{workload}/metrics/data", metrics="loss")["data"]
    return points


BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: list[float], width: int) -> str:
    """Values as bars, each column the mean of its share of them."""
    if not values:
        return ""
    columns = min(width, len(values))
    shares = [
        values[column * len(values) // columns : (column + 1) * len(values) // columns] for column in range(columns)
    ]
    means = [sum(share) / len(share) for share in shares]
    low, high = min(means), max(means)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((mean - low) * scale)] for mean in means)


def _picture(points: list[dict[str, Any]], width: int) -> str:
    if not points:
        return "waiting for the first step …"
    values = [point["value"] for point in points if point["value"] is not None]
    last = points[-1]
    line = f"step {last['iteration']}   loss {last['value']:.4f}   {len(points)} steps stored"
    return f"loss  {sparkline(values, width - 8)}\n{line}"


def _report(url: str, workload: str, training: subprocess.Popen[bytes]) -> None:
    """What was logged beside what is stored."""
    if training.poll():
        raise LensError(f"the training script failed with exit code {training.returncode}; its messages are above")
    logged = _logged_steps(training.stdout)
    points = _points(url, workload)
    if logged is None:
        click.echo(f"{len(points)} steps are stored.")
        return
    deadline = time.monotonic() + 10
    while len(points) < logged and time.monotonic() < deadline:
        time.sleep(0.1)
        points = _points(url, workload)
    click.echo(_picture(points, 100))
    click.echo(f"The training logged {logged} steps; {len(points)} of them are stored.")
    if len(points) != logged:
        raise LensError(f"{logged - len(points)} steps are missing")


def _logged_steps(output: IO[bytes] | None) -> int | None:
    text = output.read().split() if output else []
    return int(text[-1]) if text and text[-1].isdigit() else None
