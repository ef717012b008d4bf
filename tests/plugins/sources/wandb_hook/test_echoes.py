"""Frameworks: their own rows where no tracker is below, and the mark on what trackers log inside of them."""

from __future__ import annotations

import textwrap
from collections import Counter
from pathlib import Path

import pytest

from tests.docs.pages import blocks
from tests.plugins.sources.wandb_hook import environments
from tests.plugins.sources.wandb_hook.environments import Environment
from tests.plugins.sources.wandb_hook.receiver import Receiver

TRAINER = """
    import torch
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)
        def forward(self, x, labels=None):
            out = self.layer(x)
            return {"loss": ((out - labels) ** 2).mean(), "logits": out}

    def trainer(report_to):
        data = [{"x": torch.randn(4), "labels": torch.ones(1)} for _ in range(40)]
        arguments = TrainingArguments("out", report_to=report_to, logging_steps=2, max_steps=6, use_cpu=True,
                                      per_device_train_batch_size=4, save_strategy="no", disable_tqdm=True)
        return Trainer(Model(), arguments, train_dataset=data)
"""
ALONE = {
    "transformers": (
        TRAINER + "    made = trainer('none')\n    made.train()\n    made.train()\n",
        [("loss", 2), ("loss", 4), ("loss", 6)] * 2,
    ),
    "lightning": (
        """
        import torch, warnings
        warnings.filterwarnings("ignore")
        import lightning as L
        class Model(L.LightningModule):
            def __init__(self):
                super().__init__()
                self.save_hyperparameters({"lr": 0.01})
                self.layer = torch.nn.Linear(4, 1)
            def training_step(self, batch, index):
                loss = self.layer(batch).pow(2).mean()
                self.log("loss", loss)
                return loss
            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.01)
        loader = torch.utils.data.DataLoader(torch.randn(20, 4), batch_size=4)
        L.Trainer(max_epochs=1, logger=False, log_every_n_steps=2, accelerator="cpu", enable_checkpointing=False,
                  enable_progress_bar=False, enable_model_summary=False).fit(Model(), loader)
        """,
        [("loss", 1), ("loss", 3)],
    ),
    "accelerate": (
        """
        from accelerate import Accelerator
        made = Accelerator(cpu=True)
        made.init_trackers("p", config={"lr": 0.01})
        for step in range(3):
            made.log(values={"loss": step}, step=step)
        for value in range(2):
            made.log({"own": value})
        """,
        [("loss", 0), ("loss", 1), ("loss", 2), ("own", 0), ("own", 1)],
    ),
    "keras": (
        """
        import os
        os.environ["KERAS_BACKEND"] = "torch"
        import keras, numpy
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(numpy.ones((8, 2)), numpy.ones((8, 1)), epochs=3, verbose=0)
        """,
        [("loss", 0), ("loss", 1), ("loss", 2)],
    ),
    "torchtitan": (
        """
        from torchtitan.components.metrics import BaseLogger, LoggerContainer
        for logger in (BaseLogger(), LoggerContainer()):
            for step in range(2):
                logger.log({"loss": step}, step=step)
        """,
        [("loss", 0), ("loss", 1)] * 2,
    ),
}

FEW = {"transformers", "lightning", "accelerate"}


@pytest.fixture(scope="session")
def trackers_environment() -> environments.Environment:
    """All trackers and frameworks, in their newest versions."""
    return environments.environment("trackers", environments.TRACKERS)


@pytest.mark.parametrize("name", ALONE)
def test_a_framework_without_a_tracker_is_heard_itself(
    request: pytest.FixtureRequest, receiver: Receiver, tmp_path: Path, name: str
) -> None:
    script, expected = ALONE[name]
    # Where trackers are installed, frameworks import them all, which takes half as long again.
    environment: Environment = request.getfixturevalue("torch_environment" if name in FEW else "trackers_environment")
    done = environment.run(script, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url, "WORKLOAD_UID": "w"})
    assert "lens-hook" not in done.stderr
    rows = receiver.rows()
    seen = [(key, row["row_step"]) for row in rows for key in ("loss", "own") if key in row["values"]]
    assert seen == expected
    assert {row["data_source"] for row in rows} == {name}
    assert not any("echo_of" in row for row in rows)
    assert receiver.records("evidence")[0]["facts"]["tracker"]["tracker"] == name
    if name == "transformers":  # `train()` once more
        assert len({row["session"] for row in rows}) == 2


@pytest.mark.slow("Ray starts a small cluster of its own")
def test_a_worker_of_ray_train(trackers_environment: Environment, receiver: Receiver, tmp_path: Path) -> None:
    script = """
        import ray
        from ray.train import RunConfig, ScalingConfig
        from ray.train.torch import TorchTrainer

        def loop():
            import ray.train
            for step in range(3):
                ray.train.report({"loss": step / 2})

        ray.init(num_cpus=2, include_dashboard=False)
        TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=1),
                     run_config=RunConfig(name="night", storage_path=os.getcwd())).fit()
    """
    variables = {"PRIMUS_LENS_API_BASE_URL": receiver.url, "WORKLOAD_UID": "w"}
    trackers_environment.run("import os\n" + textwrap.dedent(script), tmp_path, variables)
    rows = [(row["data_source"], row["run_id"], row["row_step"], row["values"]["loss"]) for row in receiver.rows()]
    assert rows == [("ray", "night", step, step / 2) for step in range(3)]


@pytest.mark.slow("imports five trackers and trains")
def test_what_trackers_log_inside_a_framework_is_its_echo(
    trackers_environment: Environment, receiver: Receiver, tmp_path: Path
) -> None:
    script = textwrap.dedent(TRAINER) + textwrap.dedent(
        """
        import mlflow, wandb
        import clearml
        clearml.Task.set_offline(True)
        mlflow.set_tracking_uri("sqlite:///mlflow.db")
        made = trainer(["wandb", "mlflow", "tensorboard", "trackio", "clearml"])
        made.train()
        wandb.log({"own": 1.0})
        """
    )
    variables = {"PRIMUS_LENS_API_BASE_URL": receiver.url, "WORKLOAD_UID": "w", "TRACKIO_DIR": "trackio"}
    done = trackers_environment.run(script, tmp_path, variables)
    assert "lens-hook" not in done.stderr
    # Comet, which transformers imports, has its own copy of MLflow's rows.
    rows = [row for row in receiver.rows() if row["data_source"] != "comet"]
    assert {row["data_source"] for row in rows} == {"wandb", "mlflow", "tensorflow", "trackio", "clearml"}
    assert next(row for row in rows if "own" in row["values"]).get("echo_of") is None
    assert all(row["echo_of"] == "transformers" for row in rows if "own" not in row["values"])
    losses = Counter(row["data_source"] for row in rows if {"loss", "train/loss"} & set(row["values"]))
    assert losses == dict.fromkeys(losses, 3)
    assert [event["type"] for event in receiver.records("event")] == ["training_started", "training_ended"]
    described = {
        record["facts"]["tracker"]["tracker"]: record["facts"]
        for record in receiver.records("evidence")
        if "tracker" in record["facts"]
    }
    assert set(described) - {"comet"} == {"mlflow", "trackio", "clearml"}
    assert all("modules" not in facts for facts in described.values()), "they are told once"


def test_clearmls_copies_of_tensorboard_are_marked(
    trackers_environment: Environment, receiver: Receiver, tmp_path: Path
) -> None:
    script = """
        from clearml import Task
        Task.set_offline(True)
        task = Task.init("p", "t")
        from torch.utils.tensorboard import SummaryWriter
        writer = SummaryWriter("runs")
        for step in range(3):
            writer.add_scalar("loss", step, step)
        writer.close()
        task.get_logger().report_scalar("own", "own", 1.0, 0)
    """
    trackers_environment.run(script, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url, "WORKLOAD_UID": "w"})
    marks = {(row["data_source"], row.get("echo_of"), *row["values"]) for row in receiver.rows()}
    assert {("clearml", None, "own"), ("tensorflow", None, "loss")} <= marks
    assert {mark[1] for mark in marks if mark[0] == "clearml" and "own" not in mark} == {"tensorflow"}


# The page's own example, and an async method.
(EXAMPLE,) = blocks("trackers.md", "python")
THIRD_PARTY = EXAMPLE.replace('"log", logged)', '"log", logged)\n    tracking.follow(module.Run, "log_later", after)')
THIRD_PARTY += """
def after(result, self, values, step=None):
    tracking.log_row(tracking.session_of(self, "mytracker", dict, self.id), values, step)
"""
MYTRACKER = """
class Run:
    id, config = "r", {}
    def log(self, values, step=None):
        return "logged"
    async def log_later(self, values, step=None):
        return "logged later"
"""


@pytest.mark.parametrize("way", ["entry point", "function"])
def test_a_tracker_of_another_distribution(
    torch_environment: Environment, receiver: Receiver, tmp_path: Path, way: str
) -> None:
    (tmp_path / "mytracker").mkdir()
    (tmp_path / "mytracker" / "__init__.py").write_text("")
    (tmp_path / "mytracker" / "run.py").write_text(MYTRACKER)
    (tmp_path / "mytracker_lens.py").write_text(THIRD_PARTY)
    folder = tmp_path / "mytracker-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: mytracker\nVersion: 1.0\n")
    points = (
        "[lens_hook.trackers]\nmytracker.run = mytracker_lens:patch\nwandb = nowhere:patch\nmytracker.x = nowhere\n"
    )
    (folder / "entry_points.txt").write_text(f"[lens_hook.trackers]\n{points}" if way == "entry point" else "")
    script = """
        import asyncio, sys
        WAY
        from mytracker.run import Run
        run = Run()
        assert run.log({"loss": 1.0}, step=3) == "logged"
        assert asyncio.run(run.log_later(values={"loss": 2.0}, step=4)) == "logged later"
    """
    before = "import tensorboard.summary.writer.event_file_writer\n        assert 'torch' not in sys.modules"
    if way == "function":
        before = (
            "import mytracker.run, lens_hook\n"
            "        lens_hook.add_tracker('mytracker', 'mytracker.run', 'mytracker_lens:patch')"
        )
    done = torch_environment.run(
        script.replace("WAY", before), tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url, "WORKLOAD_UID": "w"}
    )
    assert receiver.points() == [(3, "loss", 1.0), (4, "loss", 2.0)]
    assert {row["data_source"] for row in receiver.rows()} == {"mytracker"}
    said = [line for line in done.stderr.splitlines() if "lens-hook" in line]
    assert len(said) == (2 if way == "entry point" else 0), done.stderr
