"""What the hook costs a training process, beside no hook at all, upstream's exporter and swanlab's sync_wandb.

Every run is a process of its own with real wandb (offline); runs of all variants alternate, and what is reported is the
median over the runs of each one's median. "down" has nobody listening, "slow" answers after half a second.

    python -m benchmarks.hook [--quick] [--json]
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import Figure, options, peer_environment, report, spread_of

ROOT = Path(__file__).resolve().parents[1]
JOB = ROOT / "benchmarks" / "hook_job.py"
HOOK = ROOT / "plugins" / "sources" / "wandb_hook"
WANDB = ("wandb-0.31.0", ("wandb==0.31.0", "numpy", "psutil"))
EXPORTER = ("exporter-0.2.0", ("primus-lens-wandb-exporter==0.2.0", "wandb==0.31.0", "numpy"))
SWANLAB = ("swanlab-0.10.3", ("swanlab==0.10.3", "wandb==0.31.0", "numpy"))
VARIANTS = ("none", "lens up", "lens down", "lens slow", "exporter", "swanlab")
Results = dict[str, list[dict[str, float]]]


class Receiver:
    """Answers every route of Lens and of upstream, counts the points that arrive."""

    def __init__(self, delay_seconds: float = 0.0) -> None:
        self.points = 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                time.sleep(delay_seconds)
                outer.points += points_in(json.loads(body))
                answer = b'{"success": true, "accepted": 0, "rejected": []}'
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                return

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:  # a job that ends in the middle of a request is part of this
                return

        self._server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/api/v1"

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


def points_in(body: Mapping[str, Any]) -> int:
    """The points in one request, in Lens' envelope or upstream's list of metrics."""
    rows = sum(len(record.get("values", ())) for record in body.get("records", ()))
    return rows + len(body.get("metrics", ()))


@contextlib.contextmanager
def receivers() -> Iterator[dict[str, str]]:
    """A base URL for each variant."""
    up, slow = Receiver(), Receiver(0.5)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        down = f"http://127.0.0.1:{nobody.getsockname()[1]}/api/v1"
        try:
            yield {"lens up": up.url, "lens down": down, "lens slow": slow.url, "exporter": up.url}
        finally:
            up.close()
            slow.close()


def python_of(variant: str) -> str:
    """The interpreter of the variant's environment."""
    name, packages = {"exporter": EXPORTER, "swanlab": SWANLAB}.get(variant, WANDB)
    return str(peer_environment(name, packages) / "python")


def run_job(
    variant: str, what: str, count: int, url: str = "", more: Mapping[str, str] | None = None
) -> dict[str, float]:
    """One measured process."""
    with tempfile.TemporaryDirectory(prefix="lens-hook-benchmark-") as work:
        variables = {
            "PATH": os.environ["PATH"],
            "HOME": work,
            "WANDB_DIR": work,
            "WANDB_SILENT": "true",
            "WANDB_ERROR_REPORTING": "false",
            "SWANLAB_LOG_DIR": work,
            "POD_NAME": "benchmark",
            "PRIMUS_LENS_EXIT_DEADLINE_SECONDS": "1",
            **({"PRIMUS_LENS_API_BASE_URL": url} if url else {}),
            **(more or {}),
        }
        done = subprocess.run(
            [python_of(variant), str(JOB), variant.split()[0], what, str(count)],
            env=variables,
            cwd=work,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(f"{variant} {what}: {done.stderr[-2000:]}")
    result: dict[str, float] = json.loads(lines[-1])
    return result


def alternate(what: str, count: int, repeats: int, variants: Sequence[str], urls: Mapping[str, str]) -> Results:
    """`repeats` runs of each variant, in turn."""
    results: Results = {variant: [] for variant in variants}
    for number in range(repeats):
        for variant in variants if number % 2 == 0 else reversed(variants):
            results[variant].append(run_job(variant, what, count, urls.get(variant, "")))
    return results


def middle(results: Results, variant: str, key: str) -> float:
    """The median over a variant's runs."""
    return statistics.median(result[key] for result in results[variant])


def differences(results: Results, variant: str, key: str) -> list[float]:
    """What each run of a variant took more than the run without a hook that stood beside it."""
    return [run[key] - none[key] for run, none in zip(results[variant], results["none"], strict=True)]


def added(results: Results, key: str, label: str, goal_us: float | None = None) -> list[Figure]:
    """What each variant adds to wandb's own call: the median of the paired differences."""
    figures = [Figure(figure=f"{label}: wandb.log alone", unit="µs", lens=round(middle(results, "none", key), 1))]
    exporter = statistics.median(differences(results, "exporter", key))
    for variant in [name for name in results if name.startswith("lens")]:
        values = differences(results, variant, key)
        more = statistics.median(values)
        figures.append(
            Figure(
                figure=f"{label}: added, receiver {variant.split()[1]}",
                unit="µs",
                lens=round(more, 1),
                peer=round(exporter, 1),
                peer_name="exporter 0.2.0",
                ratio=round(exporter / max(more, 1.0), 1),
                goal=f"≤ {goal_us:g} µs" if goal_us is not None else "",
                holds=more <= goal_us if goal_us is not None else None,
                spread=spread_of(values),
            )
        )
    if "swanlab" in results:
        swanlab = statistics.median(differences(results, "swanlab", key))
        figures.append(Figure(figure=f"{label}: added by swanlab.sync_wandb", unit="µs", lens=round(swanlab, 1)))
    return figures


def switched_figures(quick: bool, urls: Mapping[str, str]) -> list[Figure]:
    """At training pace within one process, every other call with the hook on."""
    figures = []
    for variant in ("lens up", "lens down", "lens slow"):
        runs = [run_job(variant, "switched", 150 if quick else 1000, urls[variant]) for _ in range(1 if quick else 3)]
        more, base = (statistics.median(run[key] for run in runs) for key in ("median", "off"))
        figures.append(
            Figure(
                figure=f"one log per 10 ms, added to the median, receiver {variant.split()[1]}",
                unit="µs",
                lens=round(more, 1),
                peer=round(base, 1),
                peer_name="wandb.log itself",
                goal="≤ 20 µs and ≤ 3 %",
                holds=more <= min(20.0, 0.03 * base),
                spread=spread_of([run["median"] for run in runs]),
            )
        )
    return figures


def block_figures(quick: bool, urls: Mapping[str, str]) -> list[Figure]:
    """A burst within one process, every other block of calls with the hook on, plus all that the worker burns."""
    figures = []
    for variant in ("lens up", "lens down", "lens slow"):
        runs = [run_job(variant, "blocks", 4000 if quick else 20_000, urls[variant]) for _ in range(1 if quick else 3)]
        value = statistics.median(run["added"] for run in runs)
        worker = statistics.median(run["worker"] for run in runs)
        figures.append(
            Figure(
                figure=f"burst, added per call with the worker, receiver {variant.split()[1]}",
                unit="µs",
                lens=round(value, 1),
                peer=round(statistics.median(run["off"] for run in runs), 1),
                peer_name="wandb.log itself",
                goal="≤ 15 µs",
                holds=value <= 15.0,
                spread=f"worker {worker:.1f}; {spread_of([run['added'] for run in runs])}",
            )
        )
    return figures


def wrapper_figures(quick: bool) -> list[Figure]:
    """The wrapper around nothing."""
    runs = [run_job("lens up", "wrapper", 3000) for _ in range(2 if quick else 7)]
    figures = []
    for key, limit in (("median", 4.0), ("p99", 15.0)):
        values = [run[key] for run in runs]
        value = statistics.median(values)
        figures.append(
            Figure(
                figure=f"wrapper alone, 5 scalars, {key}",
                unit="µs",
                lens=round(value, 2),
                goal=f"≤ {limit:g} µs",
                holds=value <= limit,
                spread=spread_of(values),
            )
        )
    return figures


def start_figures(quick: bool) -> list[Figure]:
    """Starting Python with the hook installed: idle, and armed; beside an empty .pth."""
    with tempfile.TemporaryDirectory(prefix="lens-hook-benchmark-") as work:
        folders = {}
        for name in ("empty", "hook"):
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", f"{work}/{name}"], check=True)
            folders[name] = next(Path(f"{work}/{name}/lib").glob("python*/site-packages"))
        (folders["empty"] / "empty.pth").write_text("")
        (folders["hook"] / "lens_hook.pth").write_text((HOOK / "lens_hook.pth").read_text())
        subprocess.run(["cp", "-r", str(HOOK / "lens_hook"), str(folders["hook"])], check=True)
        cases = {
            "empty": (f"{work}/empty/bin/python", {}),
            "idle": (f"{work}/hook/bin/python", {}),
            "armed": (f"{work}/hook/bin/python", {"POD_NAME": "p"}),
        }
        taken: dict[str, list[float]] = {name: [] for name in cases}
        for number in range(40 if quick else 300):
            for name, (python, variables) in cases.items():
                begun = time.perf_counter()
                subprocess.run([python, "-c", "pass"], env={"PATH": "/usr/bin:/bin", **variables}, check=True)
                if number > 2:
                    taken[name].append((time.perf_counter() - begun) * 1e3)
    base = statistics.median(taken["empty"])
    figures = []
    for name, limit in (("idle", 0.6), ("armed", 2.5)):
        value = statistics.median(taken[name]) - base
        least = min(taken[name]) - min(taken["empty"])
        figures.append(
            Figure(
                figure=f"starting Python, {name}, over an empty .pth",
                unit="ms",
                lens=round(value, 2),
                goal=f"≤ {limit:g} ms",
                holds=value <= limit,
                spread=f"difference of minima {least:.2f}",
            )
        )
    return figures


def footprint_figures(quick: bool) -> list[Figure]:
    """Memory, threads and descriptors, and the import of wandb."""
    repeats = 1 if quick else 5
    with receivers() as urls:
        prints = alternate("footprint", 0, repeats, ("none", "lens up", "exporter"), urls)
        imports = alternate("import", 0, repeats + 2, ("none", "lens up"), urls)
    figures: list[Figure] = []
    for key, unit, limit in (("rss_mib", "MiB", 25.0), ("threads", "", 1.0), ("descriptors", "", 3.0)):
        base = middle(prints, "none", key)
        value, peer = middle(prints, "lens up", key) - base, middle(prints, "exporter", key) - base
        figures.append(
            Figure(
                figure=f"{key} added to a logging process",
                unit=unit,
                lens=round(value, 1),
                peer=round(peer, 1),
                peer_name="exporter 0.2.0",
                goal=f"≤ {limit:g}",
                holds=value <= limit,
            )
        )
    value = middle(imports, "lens up", "hook_ms")
    figures.append(
        Figure(
            figure="import wandb, time spent in the hook",
            unit="ms",
            lens=round(value, 1),
            peer=round(middle(imports, "none", "ms"), 1),
            peer_name="import wandb itself",
            goal="≤ 20 ms",
            holds=value <= 20.0,
            spread=spread_of([run["hook_ms"] for run in imports["lens up"]]),
        )
    )
    return figures


def delivery_figures(quick: bool) -> list[Figure]:
    """Points that arrive of those logged as fast as the loop goes, with the exit straight after."""
    calls = 5_000 if quick else 200_000
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="lens-hook-benchmark-") as spool:
        for label, variant, more in (
            ("disk spool", "lens up", {"PRIMUS_LENS_SPOOL_PATH": spool}),
            ("memory", "lens up", {}),
            ("", "exporter", {}),
        ):
            receiver = Receiver()
            variables = {"PRIMUS_LENS_EXIT_DEADLINE_SECONDS": "60", **more}
            run_job(variant, "burst", calls, receiver.url, variables)
            arrived = receiver.points / (5 * (calls + 50))
            receiver.close()
            if variant == "exporter":
                figures = [_with_peer(figure, arrived * 100) for figure in figures]
                continue
            figures.append(
                Figure(
                    figure=f"delivered of {5 * calls:,} points in a burst, {label}",
                    unit="%",
                    lens=round(100 * arrived, 3),
                    goal="100 %" if label == "disk spool" else "",
                    holds=arrived == 1.0 if label == "disk spool" else None,
                )
            )
    return figures


def _with_peer(figure: Figure, peer: float) -> Figure:
    return Figure(
        figure=figure.figure,
        unit=figure.unit,
        lens=figure.lens,
        peer=round(peer, 3),
        peer_name="exporter 0.2.0",
        ratio=round(figure.lens / max(peer, 0.001), 1),
        goal=figure.goal,
        holds=figure.holds,
    )


def main() -> None:
    """Measure and print."""
    chosen = options(__doc__ or "")
    figures = wrapper_figures(chosen.quick)
    variants = ("none", "lens up", "exporter") if chosen.quick else VARIANTS
    with receivers() as urls:
        figures += switched_figures(chosen.quick, urls)
        figures += block_figures(chosen.quick, urls)
        paced = alternate("paced", 100 if chosen.quick else 400, 1 if chosen.quick else 5, variants, urls)
        burst = alternate("burst", 3000 if chosen.quick else 10_000, 1 if chosen.quick else 7, variants, urls)
    figures += added(paced, "median", "one log per 10 ms, median of whole runs")
    figures += added(paced, "p99", "one log per 10 ms, p99 of whole runs")
    figures += added(burst, "wall", "burst, wall time per call of whole runs")
    figures += added(burst, "cpu", "burst, processor time per call, all threads")
    figures += start_figures(chosen.quick)
    figures += footprint_figures(chosen.quick)
    figures += delivery_figures(chosen.quick)
    report(figures, as_json=chosen.json)


if __name__ == "__main__":
    main()
