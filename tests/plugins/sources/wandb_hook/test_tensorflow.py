"""TensorFlow 2's `tf.summary`, whose event files are written in C++."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins.sources.wandb_hook.environments import HOOK, Environment
from tests.plugins.sources.wandb_hook.receiver import Receiver

SUMMARIES = """
    import tensorflow as tf
    {attach}
    writer = tf.summary.create_file_writer("logs/train")
    tf.summary.scalar("nobody's", 1.0, step=1)                # no writer is the default one
    with writer.as_default():
        for step in range(3):
            tf.summary.scalar("loss", 0.5 + step, step=step)
            tf.summary.scalar("accuracy", tf.constant(step), step=tf.constant(step, tf.int64))
        tf.summary.histogram("weights", [1.0, 2.0], step=3)
        tf.summary.text("note", "text", step=3)
        with tf.summary.record_if(False):
            tf.summary.scalar("not recorded", 1.0, step=4)
        tf.summary.experimental.set_step(5)
        with tf.name_scope("inner"):
            tf.summary.scalar("nan", float("nan"))

        @tf.function
        def step(number):
            tf.summary.scalar("in a graph", number, step=6)

        step(tf.constant(1.0))
    with tf.summary.create_file_writer("logs/test").as_default(step=7):
        tf.summary.scalar("loss", 2.5)
"""


@pytest.mark.parametrize("way", ["armed", "attached"])
def test_eager_scalars_are_seen(
    tensorflow_environment: Environment, receiver: Receiver, tmp_path: Path, way: str
) -> None:
    variables = {"PRIMUS_LENS_API_BASE_URL": receiver.url, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    attach = ""
    if way == "attached":
        attach, variables["PYTHONPATH"] = "import lens_hook; lens_hook.attach()", str(HOOK)
    done = tensorflow_environment.run(SUMMARIES.format(attach=attach), tmp_path, variables)
    assert "lens-hook" not in done.stderr
    assert {row["data_source"] for row in receiver.rows()} == {"tensorflow"}
    rows = receiver.rows()
    seen = {(row["run_id"], row["row_step"], name): value for row in rows for name, value in row["values"].items()}
    expected = {("logs/train", step, "loss"): 0.5 + step for step in range(3)}
    expected |= {("logs/train", step, "accuracy"): step for step in range(3)}
    assert seen == {**expected, ("logs/train", 5, "inner/nan"): "NaN", ("logs/test", 7, "loss"): 2.5}
    assert len(rows) == 5, "one row per step"


def test_keras_batches_and_epochs_have_their_own_axes(
    tensorflow_environment: Environment, newest: Environment, receiver: Receiver, tmp_path: Path
) -> None:
    script = f"""
        import sys
        sys.path.append({str(newest.packages)!r})     # behind this environment's own numpy
        import wandb
        from wandb.integration.keras import WandbMetricsLogger
        import numpy as np, tensorflow as tf
        run = wandb.init(project="p")
        model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(1)])
        model.compile(loss="mse", optimizer="sgd")
        x, y = np.random.rand(40, 4).astype("float32"), np.ones((40, 1), "float32")
        model.fit(x, y, batch_size=10, epochs=3, verbose=0, callbacks=[WandbMetricsLogger(log_freq=1)])
    """
    tensorflow_environment.run(script, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url})
    axes = {"batch/loss": list[int](), "epoch/loss": list[int]()}
    for row in receiver.rows():
        for name in axes.keys() & row["values"].keys():
            axes[name].append(row["iteration"])
    assert axes == {"batch/loss": list(range(12)), "epoch/loss": [0, 1, 2]}
