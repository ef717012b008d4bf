"""Data of training jobs, for the tests of the page."""

from __future__ import annotations

import math
import random
import time
from typing import Any

from lens_core.diagnosis import RankStack, StackReport, ThreadStack, encode_report
from tests.end_to_end.running_lens import RunningLens


def rows(steps: int, *, first: int = 0, seed: int = 1, more: int = 0, now: float | None = None) -> list[dict[str, Any]]:
    """Log entries of a loss that falls, with a spike, a NaN in the middle, throughput and memory; one a second."""
    rng = random.Random(seed)
    now = time.time() if now is None else now
    found = []
    for step in range(first, first + steps):
        loss: float | str = 4.0 * math.exp(-step / 150) + 0.4 + rng.random() * 0.1
        if step == first + steps // 3:
            loss = 25.0
        if step == first + steps // 2:
            loss = "NaN"
        data: dict[str, Any] = {
            "loss": loss,
            "learning_rate": 3e-4 * (1 - step / 2000),
            "grad_norm": 1 + rng.random(),
            "samples_per_second": 900 + 50 * rng.random(),
            "mem_usage": 61.5 + rng.random(),
        }
        data |= {f"layer{number:02}/norm": rng.random() + number for number in range(more)}
        found.append({"step": step, "timestamp": now - (first + steps - step), "data": data})
    return found


def send_rows(lens: RunningLens, workload: str, entries: list[dict[str, Any]], run_id: str = "first") -> None:
    """Send entries as the exporter does."""
    for begin in range(0, len(entries), 2000):
        body = {"workload_uid": workload, "run_id": run_id, "logs": entries[begin : begin + 2000]}
        answer = lens.post("/wandb/logs", body)
        assert answer.status_code == 200, answer.text


def send_evidence(lens: RunningLens, workload: str, config: dict[str, Any] | None = None) -> None:
    """Evidence of DeepSpeed under the Trainer, as the hook reports it."""
    body = {
        "source": "wandb",
        "workload_uid": workload,
        "evidence": {
            "wandb": {
                "project": "llm-pretrain",
                "name": workload,
                "config": config or {"deepspeed": "ds.json", "lr": 3e-4},
            },
            "environment": {"DEEPSPEED_CONFIG": "ds.json"},
            "modules": {"deepspeed": "0.15.1", "transformers": "4.44.0", "torch": "2.4.0"},
        },
    }
    assert lens.post("/wandb/detection", body).status_code == 200


def send_events(lens: RunningLens, workload: str, events: list[dict[str, Any]]) -> None:
    """Events as records."""
    records = [{"record": "event", "origin": {"workload_uid": workload}, **event} for event in events]
    answer = lens.post("/records", {"version": 1, "producer": "test", "records": records})
    assert answer.status_code == 200, answer.text
    assert answer.json()["rejected"] == []


def send_ranks(lens: RunningLens, workload: str, steps_of_ranks: list[int]) -> None:
    """Rows of one run that every rank logs by itself, each so many steps."""
    now = time.time()
    records = [
        {
            "record": "step_metrics",
            "origin": {"workload_uid": workload, "rank": rank, "world_size": len(steps_of_ranks)},
            "data_source": "wandb",
            "run_id": "ranked",
            "row_step": step,
            "values": {"loss": 1 / (step + 1), "tokens_per_gpu": 4000.0 + rank},
            "event_time": now - 60 + step,
        }
        for rank, steps in enumerate(steps_of_ranks)
        for step in range(steps)
    ]
    answer = lens.post("/records", {"version": 1, "producer": "test", "records": records})
    assert answer.json()["rejected"] == []


def send_slow_rank(lens: RunningLens, workload: str, metric: str, slow: float) -> None:
    """Rows of four ranks, of which the third takes another time for its part of a step."""
    now = time.time()
    records = [
        {
            "record": "step_metrics",
            "origin": {"workload_uid": workload, "rank": rank, "world_size": 4},
            "data_source": "wandb",
            "run_id": "slow",
            "session": f"s{rank}",
            "row_step": step,
            "values": {"loss": 1.0, metric: (slow if rank == 2 else 100.0) + (7 * rank + step) % 5, "step_time": 300.0},
            "event_time": now - 400 + step,
        }
        for step in range(1, 351)
        for rank in range(4)
    ]
    answer = lens.post("/records", {"version": 1, "producer": "test", "records": records})
    assert answer.json()["rejected"] == []


def send_many(lens: RunningLens, count: int, prefix: str = "job") -> None:
    """Send a number of workloads with one row each."""
    now = time.time()
    for begin in range(0, count, 1000):
        records = [
            {
                "record": "step_metrics",
                "origin": {"workload_uid": f"{prefix}-{number:05}", "namespace": "team-a"},
                "data_source": "wandb",
                "row_step": 10,
                "values": {"loss": 1.0 + number / 1000},
                "event_time": now - number,
                "run_id": "r",
                "session": "s",
            }
            for number in range(begin, min(count, begin + 1000))
        ]
        answer = lens.post("/records", {"version": 1, "producer": "test", "records": records})
        assert answer.status_code == 200, answer.text


def send_stacks(lens: RunningLens, workload: str, now: float) -> None:
    """Four ranks, three of which wait for the one that reads data."""
    waiting = ("all_reduce (torch/distributed/distributed_c10d.py:2501)", "train_step (train.py:90)")
    reading = ("read (socket.py:706)", "load_batch (data.py:31)", "train_step (train.py:84)")
    records = []
    for rank in range(4):
        frames = reading if rank == 1 else waiting
        stack = RankStack(rank=rank, pid=100 + rank, threads=(ThreadStack("MainThread", frames),))
        report = {
            "record": "diagnosis",
            "origin": {"workload_uid": workload},
            "data_type": "STACK_TRACE",
            "data_content": encode_report(StackReport(ranks=(stack,))),
            "node_type": "worker",
            "node_rank": rank,
            "node_id": rank,
            "timestamp": now - 20 + rank,
        }
        records.append(report)
    answer = lens.post("/records", {"version": 1, "producer": "test", "records": records})
    assert answer.status_code == 200, answer.text
    assert answer.json()["rejected"] == []


def send_lines(lens: RunningLens, workload: str, *texts: str, **origin: Any) -> None:
    """Lines of a log as records."""
    of_line = {"record": "log_line", "origin": {"workload_uid": workload, **origin}}
    answer = lens.post("/records", {"version": 1, "records": [{**of_line, "text": text} for text in texts]})
    assert answer.json()["rejected"] == [], answer.text


def send_measurements(lens: RunningLens, node: str, now: float, seconds: int = 600) -> None:
    """Measurements of two GPUs and the processor of a node, every 15 seconds."""
    records = [
        {
            "record": "measurement",
            "origin": {"node": node},
            "name": name,
            "value": 50.0 + 40 * math.sin(at / 60) if name.endswith("pct") else 6e10 + at * 1e7,
            "event_time": now - seconds + at,
            "tags": tags,
        }
        for at in range(0, seconds, 15)
        for name, tags in (
            ("host.cpu.used_pct", {}),
            *((name, {"gpu": gpu}) for gpu in "01" for name in ("gpu.used_pct", "gpu.memory_used_bytes")),
        )
    ]
    answer = lens.post("/records", {"version": 1, "records": records})
    assert answer.json()["rejected"] == [], answer.text
