"""The log lines that `benchmarks/logs.py` reads: what containers of training jobs print, one line in twenty a step.

A quarter of the noise holds something random made of letters (addresses, ids, hashes), so that it never comes again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec

METRICS = (
    "[20251202 09:12:08][rank-7/8][INFO ] [--------trainer.py:2560] : iteration {step:8d}/  500000 | consumed samples:"
    " {samples:12d} | elapsed time per iteration (ms): 13372.8/13364.7 | hip mem usage/free/total/usage_ratio:"
    " 153.81GB/102.17GB/255.98GB/60.09% | throughput per GPU (TFLOP/s/GPU): 567.6/568.0 | tokens per GPU"
    " (tokens/s/GPU): 9801.4/9807.3 | learning rate: 9.984820E-06 | global batch size:   128 | lm loss: {loss:.6E} |"
    " loss scale: 1.0 | grad norm: 0.061 | number of skipped iterations:   0 | number of nan iterations:   0 |",
    " [2025-08-13 03:42:28] iteration {step:8d}/  500000 | consumed samples: {samples:12d} | elapsed time per iteration"
    " (ms): 10235.8 | throughput per GPU (TFLOP/s/GPU): 590.2 | learning rate: 9.999999E-05 | global batch size:"
    "   256 | lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: 1.571 | number of skipped iterations:   0 | number of"
    " nan iterations:   0 |",
    "[rank0]:[titan] 2026-05-18 16:04:46,338 - root - INFO - step: {step:2}  loss: {loss:8.5f}  grad_norm:  0.8319"
    "  memory:  9.46GiB(64.99%)  tps: 7,282  tflops: 0.52  mfu: 0.17%",
    "{{'loss': {loss:.4f}, 'grad_norm': 37.2282, 'learning_rate': 1e-05, 'epoch': {epoch:.2f}}}",
    "completed step: {step}, seconds: 10.344, TFLOP/s/device: 346.932, Tokens/s/device: 19006.461, total_weights:"
    " 1572864, loss: {loss:.3f}",
    "[2023-04-18 01:46:59,142] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=6, lr=[9.6e-06, 9.6e-06],"
    " mom=[(0.9, 0.95), (0.9, 0.95)]",
)
NOISE = (
    "2026-11-27 22:01:{s:02d},123 - INFO - worker-{n} dataloader prefetch queue depth {n} of 64, memory 412.3 GB free",
    "worker-0:53:401 [0] NCCL INFO Channel {n:02d}/16 : 0[1000] -> 1[2000] via P2P/IPC/read",
    "worker-0:53:401 [0] NCCL INFO comm 0x{h:012x} rank {n} nranks 16 cudaDev 0 busId 1000 - Init COMPLETE",
    "  {n}_layers ........................................ 48",
    'INFO: 10.0.{n}.1:53412 - "GET /v1/jobs/{h:012x} HTTP/1.1" 200 OK',
    "/usr/lib/python3/dist-packages/torch/utils/data/dataloader.py:{n}: UserWarning: This will create 8 workers",
    "time (ms) | forward-compute: 306.62 | backward-compute: 575.17 | optimizer: 94.{n:02d} | batch-generator: 2.97",
    "I0131 11:17:43.038159 136759033735168 max_utils.py:695] Total memory size: 6.{n} GB, Output size: 0.2 GB",
    "[2024-01-19 08:22:00,088] [INFO] [axolotl.load_model:625] [PID:6548] [RANK:{n}] GPU memory usage: 25.701GB",
    "model.safetensors:  10%|█         | {n}00M/4.00G [00:05<00:45, 75.0MB/s]",
    '  File "/srv/app/train.py", line {n}, in train_step',
    "W1127 22:01:{s:02d}.123456 140 kubelet.go:{n}] Sandbox {h:012x} changed, it will be killed and re-created",
)
KUBERNETES = {
    "pod_name": "llama-70b-worker-3",
    "namespace_name": "training",
    "pod_id": "0c5f3d1e-6d2b-4c0e-9d1b-2f1f1a9e7a11",
    "host": "gpu-node-17",
    "container_name": "pytorch",
    "docker_id": "4c0e9d1b2f1f1a9e7a110c5f3d1e6d2b",
    "container_image": "registry/primus:v25.9",
    "labels": {"training.kubeflow.org/job-name": "llama-70b", "training.kubeflow.org/replica-type": "worker"},
}


def lines(count: int, seed: int = 7) -> Iterator[str]:
    """Lines of one container: 95 % noise, and in 5 % steps of one format that changes every 20,000 lines."""
    rng = random.Random(seed)
    step = 0
    for index in range(count):
        if index % 20 == 0:
            step += 1
            form = METRICS[index // 20_000 % len(METRICS)]
            yield form.format(step=step, samples=step * 128, loss=2.0 + rng.random(), epoch=step / 1000)
        else:
            yield rng.choice(NOISE).format(n=rng.randrange(16), s=rng.randrange(60), h=rng.getrandbits(48))


def bodies(count: int, per_body: int) -> Iterator[tuple[bytes, int]]:
    """The same lines as Fluent Bit posts them: bodies and how many lines each has."""
    entries: list[dict[str, object]] = []
    for index, line in enumerate(lines(count)):
        date = 1_795_000_000.0 + index / 1000
        entries.append({"date": date, "stream": "stdout", "logtag": "F", "message": line, "kubernetes": KUBERNETES})
        if len(entries) == per_body:
            yield msgspec.json.encode(entries), len(entries)
            entries = []
    if entries:
        yield msgspec.json.encode(entries), len(entries)
