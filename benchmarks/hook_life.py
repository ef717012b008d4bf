"""The figures of `benchmarks/hook.py` beside the calls: starting, memory, descriptors, and rows that arrive."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.harness import Figure, spread_of
from benchmarks.hook_runs import ROOT, Receiver, Size, alternate, middle, receivers, run_job

HOOK = ROOT / "plugins" / "sources" / "wandb_hook"


def start_figures(size: Size) -> list[Figure]:
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
        for number in range(size.of(40, 300)):
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


def footprint_figures(size: Size) -> list[Figure]:
    """Memory, threads and descriptors, and the import of wandb."""
    repeats = size.runs(1, 5)
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


def delivery_figures(size: Size) -> list[Figure]:
    """Points that arrive of those logged as fast as the loop goes, with the exit straight after."""
    calls = size.of(5_000, 200_000)
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
