"""Real callers: the TensorBoard writers, the Hugging Face Trainer, Lightning, torchrun, DataLoader workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.plugins.sources.wandb_hook import wandb_file
from tests.plugins.sources.wandb_hook.environments import Environment, write_script
from tests.plugins.sources.wandb_hook.receiver import Receiver

WRITERS = """
    import math, sys
    import numpy as np
    import torch
    from torch.utils.tensorboard import SummaryWriter
    import tensorboardX
    from tensorboard.summary import Writer

    assert "wandb" not in sys.modules
    writer = SummaryWriter("runs/torch")
    for step in range(5):
        writer.add_scalar("loss", torch.tensor(0.5 + step), step)
        writer.add_scalar("lr", 0.1, step)
    writer.add_scalar("nan", math.nan, 5)
    writer.add_scalar("new", 2.0, 6, new_style=True)
    writer.add_scalar("double", 3.0, 7, double_precision=True)
    writer.add_histogram("weights", np.arange(100), 8)
    writer.add_text("note", "text", 8)
    writer.add_scalars("group", {"a": 1, "b": 2}, 9)
    writer.close()
    other = tensorboardX.SummaryWriter("runs/x")
    other.add_scalar("loss", 7.0, 3)
    other.add_text("note", "text", 3)
    other.add_histogram("weights", np.arange(100), 3)
    other.close()
    plain = Writer("runs/plain")
    plain.add_scalar("loss", 8.0, 4)
    plain.close()
    writer = SummaryWriter("runs/odd")
    writer.add_scalar("bfloat16", torch.tensor(1.5, dtype=torch.bfloat16), 1)
    writer.add_scalar("0-d", np.array(2.0), 2)
    writer.add_hparams({"lr": 0.1}, {"accuracy": 0.5}, run_name="trial")
    writer.close()
    shared = tensorboardX.GlobalSummaryWriter.getSummaryWriter()
    shared.add_scalar("everywhere", 9.0)

    # What TensorFlow 2 writes: a tensor with metadata; here through the writer that needs no TensorFlow.
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.scalar import summary_v2
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    event = Event(step=6, wall_time=1.0, summary=summary_v2.scalar_pb("tensor", 4.5))
    raw = EventFileWriter("runs/raw")
    raw.add_event(event)
    raw.close()
"""


def test_tensorboard_writers(torch_environment: Environment, receiver: Receiver, tmp_path: Path) -> None:
    done = torch_environment.run(WRITERS, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url})
    assert "lens-hook" not in done.stderr
    rows = receiver.rows()
    assert {row["data_source"] for row in rows} == {"tensorflow"}
    seen = {(row["run_id"], row["row_step"], name): value for row in rows for name, value in row["values"].items()}
    expected: dict[Any, Any] = {("runs/torch", step, "loss"): 0.5 + step for step in range(5)}
    expected |= {("runs/torch", step, "lr"): pytest.approx(0.1) for step in range(5)}
    expected |= {
        ("runs/torch", 5, "nan"): "NaN",
        ("runs/torch", 6, "new"): 2.0,
        ("runs/torch", 7, "double"): 3.0,
        ("runs/torch/group_a", 9, "group"): 1.0,
        ("runs/torch/group_b", 9, "group"): 2.0,
        ("runs/x", 3, "loss"): 7.0,
        ("runs/plain", 4, "loss"): 8.0,
        ("runs/odd", 1, "bfloat16"): 1.5,
        ("runs/odd", 2, "0-d"): 2.0,
        ("runs/odd/trial", 0, "accuracy"): 0.5,
        ("runs/raw", 6, "tensor"): 4.5,
    }
    of_the_shared_one = {key: seen.pop(key) for key in list(seen) if key[2] == "everywhere"}
    assert list(of_the_shared_one.values()) == [9.0]
    assert seen == expected
    steps = [row["row_step"] for row in rows if row["run_id"] == "runs/torch"]
    assert len(steps) == len(set(steps)), "one row per step"
    assert len(receiver.records("evidence")) >= 1
    assert [event["type"] for event in receiver.records("event")] == ["training_ended"]


def test_wandb_with_sync_tensorboard(torch_environment: Environment, receiver: Receiver, tmp_path: Path) -> None:
    script = """
        import wandb
        wandb.init(project="p", sync_tensorboard=True)
        from torch.utils.tensorboard import SummaryWriter
        writer = SummaryWriter("runs/synced")
        for step in range(3):
            writer.add_scalar("loss", step, step)
        writer.close()
        wandb.log({"own": 1})
        wandb.finish()
    """
    torch_environment.run(script, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url})
    rows = [(row["data_source"], row["row_step"], row["values"]) for row in receiver.rows()]
    assert [row for row in rows if row[0] == "tensorflow"] == [
        ("tensorflow", step, {"loss": step}) for step in range(3)
    ]
    assert [row[2] for row in rows if row[0] == "wandb"] == [{"own": 1}]


HUGGING_FACE = """
    import torch
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)
        def forward(self, x, labels=None):
            out = self.layer(x)
            return {"loss": ((out - labels) ** 2).mean(), "logits": out}

    data = [{"x": torch.randn(4), "labels": torch.ones(1)} for _ in range(40)]
    arguments = TrainingArguments("out", report_to="wandb", logging_steps=2, max_steps=10, use_cpu=True,
                                  per_device_train_batch_size=4, save_strategy="no", disable_tqdm=True,
                                  dataloader_num_workers=2)
    Trainer(Model(), arguments, train_dataset=data).train()
"""


def test_the_hugging_face_trainer(torch_environment: Environment, receiver: Receiver, tmp_path: Path) -> None:
    torch_environment.run(HUGGING_FACE, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url})
    rows = [row for row in receiver.rows() if "train/loss" in row["values"]]
    assert [row["iteration"] for row in rows] == [2, 4, 6, 8, 10]
    ((_, path),) = wandb_file.by_run(tmp_path).items()
    recorded = {(step, name): value for step, name, value in wandb_file.points(path)}
    for row in receiver.rows():
        if "tags" not in row:
            for name, value in row["values"].items():
                assert recorded[row["row_step"], name] == pytest.approx(value)
    summary = {name for row in receiver.rows() if "tags" in row for name in row["values"]}
    assert {"train_runtime", "train_loss"} <= summary
    evidence = receiver.records("evidence")[-1]["facts"]
    assert evidence["modules"]["transformers"]
    assert evidence["pytorch"]["available"] is True
    assert evidence["wandb"]["config"]["max_steps"] == 10


LIGHTNING = """
    import torch, warnings
    warnings.filterwarnings("ignore")
    import lightning as L
    from lightning.pytorch.loggers import WandbLogger

    class Model(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)
        def training_step(self, batch, index):
            loss = self.layer(batch).pow(2).mean()
            self.log("loss", loss)
            return loss
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    loader = torch.utils.data.DataLoader(torch.randn(40, 4), batch_size=4)
    L.Trainer(max_epochs=1, logger=WandbLogger(project="p"), log_every_n_steps=2, accelerator="cpu",
              enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False).fit(Model(), loader)
"""


def test_lightning(torch_environment: Environment, receiver: Receiver, tmp_path: Path) -> None:
    torch_environment.run(LIGHTNING, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url})
    rows = [row for row in receiver.rows() if "loss" in row["values"]]
    assert [row["iteration"] for row in rows] == [1, 3, 5, 7, 9]
    assert receiver.records("evidence")[-1]["facts"]["modules"]["lightning"]


def test_torch_tensors_and_watch(
    each_wandb: Environment, torch_environment: Environment, receiver: Receiver, tmp_path: Path
) -> None:
    script = f"""
        import sys
        sys.path.append({str(torch_environment.packages)!r})     # behind this environment's own wandb and numpy
        import torch
        import wandb
        run = wandb.init(project="p")
        model = torch.nn.Linear(2, 1)
        run.watch(model, log="all", log_freq=1)
        for step in range(3):
            loss = model(torch.ones(1, 2)).sum()
            loss.backward()
            total = torch.tensor(float(step), requires_grad=True)
            run.log({{"total": total, "half": torch.tensor([1.5], dtype=torch.float16), "flag": torch.tensor(True)}})
            with torch.no_grad():
                total += 100
        run.finish()
    """
    each_wandb.run(script, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url})
    (path,) = wandb_file.by_run(tmp_path).values()
    seen = [point for point in receiver.points() if not point[1].startswith(("gradients", "parameters"))]
    assert seen == [
        point for step in range(3) for point in ((step, "total", step), (step, "half", 1.5), (step, "flag", 1))
    ]
    assert sorted(seen) == sorted(point for point in wandb_file.points(path) if point[1] in ("total", "half", "flag"))


def test_torchrun_with_four_ranks(
    each_wandb: Environment, torch_environment: Environment, receiver: Receiver, tmp_path: Path
) -> None:
    script = """
        import os
        import wandb                       # of an environment of its own; torchrun is the launcher alone
        rank = int(os.environ["RANK"])
        run = wandb.init(project="p", id="one-run", group="g", mode="disabled" if rank else "offline")
        for step in range(3):
            run.log({"loss": rank})
        run.finish()
    """
    launcher = [f"{torch_environment.directory}/bin/torchrun", "--standalone", "--nproc-per-node=4", "--no-python"]
    variables = {"PRIMUS_LENS_API_BASE_URL": receiver.url, "WORKLOAD_UID": "w", "OMP_NUM_THREADS": "1"}
    each_wandb.run(script, tmp_path, variables, launcher=[*launcher, each_wandb.python])
    check_four_ranks(receiver)


def check_four_ranks(receiver: Receiver) -> None:
    """Three rows of each of four ranks have arrived."""
    rows = receiver.rows()
    assert sorted(row["origin"]["rank"] for row in rows) == [rank for rank in range(4) for _ in range(3)]
    assert all(row["values"]["loss"] == row["origin"]["rank"] for row in rows)
    assert all(row["origin"]["world_size"] == 4 for row in rows)


def test_four_ranks_that_compute_together(torch_environment: Environment, receiver: Receiver, tmp_path: Path) -> None:
    script = write_script(
        """
        import os
        import torch.distributed as dist
        import wandb
        dist.init_process_group("gloo")
        rank = dist.get_rank()
        run = wandb.init(project="p", id="one-run", group="g", mode="disabled" if rank else "offline")
        for step in range(3):
            run.log({"loss": rank})
        dist.barrier()
        run.finish()
        dist.destroy_process_group()
        """,
        tmp_path,
    )
    launcher = [f"{torch_environment.directory}/bin/torchrun", "--standalone", "--nproc-per-node=4"]
    variables = {"PRIMUS_LENS_API_BASE_URL": receiver.url, "WORKLOAD_UID": "w", "OMP_NUM_THREADS": "1"}
    torch_environment.run(script.read_text(), tmp_path, variables, launcher=launcher)
    check_four_ranks(receiver)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_data_loader_workers_that_import_wandb(
    torch_environment: Environment, receiver: Receiver, tmp_path: Path, method: str
) -> None:
    script = f"""
        import os, threading
        import torch

        class Data(torch.utils.data.Dataset):
            def __len__(self):
                return 8
            def __getitem__(self, index):
                import wandb                       # as a dataset does that logs its own trouble
                assert wandb._primus_lens_patched is True
                assert torch.utils.data.get_worker_info() is not None
                names = [os.readlink(f"/proc/self/fd/{{fd}}") for fd in os.listdir("/proc/self/fd")
                         if os.path.exists(f"/proc/self/fd/{{fd}}")]
                hook = [thread for thread in threading.enumerate() if thread.name == "lens-hook"]
                return torch.tensor([len(hook), sum("spool" in name for name in names)])

        if __name__ == "__main__":
            import wandb
            run = wandb.init(project="p")
            loader = torch.utils.data.DataLoader(Data(), num_workers=2, multiprocessing_context={method!r})
            for batch in loader:
                assert batch.tolist() == [[0, 0]], batch
                run.log({{"loss": 1.0}})
    """
    variables = {"PRIMUS_LENS_API_BASE_URL": receiver.url, "PRIMUS_LENS_SPOOL_PATH": str(tmp_path / "spool")}
    torch_environment.run(script, tmp_path, variables)
    assert receiver.points() == [(step, "loss", 1.0) for step in range(8)]
    assert len(receiver.records("event")) == 2
