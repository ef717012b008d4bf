"""The hook's cost in each tracker: its wrapper around nothing, beside the tracker's own call."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from benchmarks.harness import Figure
from benchmarks.hook_runs import Size
from tests.plugins.sources.wandb_hook.environments import TRACKERS as PACKAGES
from tests.plugins.sources.wandb_hook.environments import environment
from tests.plugins.sources.wandb_hook.tracker_scripts import script_of

# The place of the wrapper, and the arguments of a row of five scalars for it, or of one scalar where a call has one.
_PLACES = {
    "mlflow": (
        "mlflow.tracking._tracking_service.client",
        "TrackingServiceClient.log_batch",
        "(object(), 'r', [mlflow.entities.Metric(f'm{n}', 0.5, 1700000000000, 1) for n in range(5)])",
    ),
    "trackio": ("trackio.run", "Run.log", "(run, {f'm{n}': 0.5 for n in range(5)}, 1)"),
    "swanlab": ("swanlab.sdk.internal.run", "Run._log_impl", "(run, {f'm{n}': 0.5 for n in range(5)}, 1)"),
    "comet": ("comet_ml.experiment", "CometExperiment._log_metric", "(run, 'loss', 0.5, 1)"),
    "clearml": (
        "clearml.backend_interface.metrics.reporter",
        "Reporter.report_scalar",
        "(log._task._reporter, 'train', 'loss', 0.5, 1)",
    ),
    "aim": ("aim.sdk.tracker", "RunTracker.__call__", "(run._tracker, {f'm{n}': 0.5 for n in range(5)}, None, 1)"),
}
_MEASURE = """
    import functools, importlib, json, statistics, time
    start()
    for step in range(3):
        log_row(step)
    owner = importlib.import_module({module!r})
    *path, name = {place!r}.split(".")
    for part in path:
        owner = getattr(owner, part)
    wrapped = vars(owner)[name]
    names = wrapped.__code__.co_freevars
    cell = wrapped.__closure__[names.index("original")]
    arguments = {arguments}
    nothing = lambda *args, **kwargs: None

    def block(function, calls):
        begun = time.perf_counter()
        for _ in range(calls):
            function(*arguments)
        return (time.perf_counter() - begun) / calls * 1e6

    original = cell.cell_contents
    cell.cell_contents = nothing
    pairs = [(block(wrapped, 200), block(nothing, 200)) for _ in range({blocks})]
    cell.cell_contents = original
    own = []
    for step in range(10, 10 + {blocks}):
        begun = time.perf_counter()
        log_row(step)
        own.append((time.perf_counter() - begun) * 1e6)
    print("FIGURES", json.dumps([statistics.median(with_it - without for with_it, without in pairs),
                                 statistics.median(own)]), flush=True)
"""


def tracker_figures(size: Size) -> list[Figure]:
    """One process for each tracker, with its real package and nobody listening."""
    found = []
    python = environment("trackers", PACKAGES)
    for tracker, (module, place, arguments) in _PLACES.items():
        with tempfile.TemporaryDirectory() as folder:
            script = script_of(
                tracker,
                _MEASURE.format(module=module, place=place, arguments=arguments, blocks=size.of(20, 200)),
            )
            variables = {"PRIMUS_LENS_API_BASE_URL": "http://127.0.0.1:9/api/v1", "TRACKIO_DIR": folder}
            said = python.run(script, Path(folder), variables).stdout
        line = next(line for line in said.splitlines() if line.startswith("FIGURES"))
        wrapper, own = json.loads(line.partition(" ")[2])
        found.append(
            Figure(
                figure=f"{tracker}: the wrapper around nothing, beside the tracker's own row of two scalars",
                unit="µs",
                lens=round(wrapper, 2),
                peer=round(own, 1),
                peer_name=tracker,
                goal="≤ 4 µs",
                holds=wrapper <= 4.0,
            )
        )
    return found
