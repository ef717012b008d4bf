"""Scripts that log through each tracker: how a run starts, how a row of two metrics is logged, its names."""

from __future__ import annotations

import textwrap
from typing import NamedTuple


class Tracker(NamedTuple):
    """Python text of one tracker; `log` is an expression of `step`."""

    start: str
    log: str
    names: tuple[str, str] = ("loss", "lr")
    module: str = ""


TRACKERS = {
    "mlflow": Tracker(
        "import mlflow; mlflow.set_tracking_uri(f'sqlite:///{os.getpid()}.db'); run = mlflow.start_run()",
        "mlflow.log_metrics({'loss': step, 'lr': 0.5}, step=step, run_id=run.info.run_id)",
    ),
    "trackio": Tracker(
        "import trackio; run = trackio.init(project='p')",
        "run.log(metrics={'loss': step, 'lr': 0.5}, step=step)",
    ),
    "swanlab": Tracker(
        "import swanlab; run = swanlab.init(project='p', mode='offline', logdir='swan')",
        "run.log({'loss': step, 'lr': 0.5}, step=step)",
    ),
    "comet": Tracker(
        "import comet_ml; run = comet_ml.OfflineExperiment(project_name='p', workspace='w', offline_directory='comet')",
        "run.log_metrics({'loss': step, 'lr': 0.5}, step=step)",
    ),
    "clearml": Tracker(
        "from clearml import Task; Task.set_offline(True); log = Task.init('p', 't').get_logger()",
        "[log.report_scalar('train', name, value, step) for name, value in (('loss', step), ('lr', 0.5))]",
        ("train/loss", "train/lr"),
    ),
    "aim": Tracker(
        "import aim; run = aim.Run(repo=f'aim-{os.getpid()}', system_tracking_interval=None)",
        "run.track({'loss': step, 'lr': 0.5}, step=step, context={'subset': 'train'})",
        ("train/loss", "train/lr"),
    ),
}


def script_of(tracker: str, body: str) -> str:
    """A script with `start()` and `log(step)` of a tracker before its body."""
    text = TRACKERS[tracker]
    head = f"""
        import os, sys, signal, threading, time, multiprocessing
        def start():
            exec({text.start!r}, globals())
        def log_row(step):
            {text.log}
    """
    return textwrap.dedent(head) + textwrap.dedent(body)
