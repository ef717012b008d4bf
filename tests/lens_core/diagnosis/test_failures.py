"""Advice on failures: lines of real ones, from the corpus and from public issues (named beside each)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lens_core.diagnosis import Cause, Decision, RankFailure, advise

CORPUS = Path(__file__).parents[2] / "data" / "training_log_lines.jsonl"
RESTART, RELAUNCH, STOP = Decision.RESTART_WORKER, Decision.RELAUNCH_WORKER, Decision.JOB_ABORT

# Line, cause, decision at the first failure, decision after three restarts.
REAL = [
    # huggingface/accelerate#1192, vllm-project/vllm#5222, verl-project/verl#407
    ("RuntimeError: CUDA error: uncorrectable ECC error encountered", Cause.HARDWARE, RELAUNCH, RELAUNCH),
    # NVIDIA/semantic-segmentation#33
    (
        "RuntimeError: cuda runtime error (39) : uncorrectable ECC error encountered at THCAllocator.cpp:265",
        Cause.HARDWARE,
        RELAUNCH,
        RELAUNCH,
    ),
    # nagadit/DeepFaceLab_Linux#89
    ("CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered", Cause.HARDWARE, RELAUNCH, RELAUNCH),
    # learning-at-home/hivemind#509
    (
        "Aug 29 16:58:38 my-devbox-gpu kernel: [14282.651831] NVRM: Xid (PCI:0000:03:00): 79, pid='<unknown>'",
        Cause.HARDWARE,
        RELAUNCH,
        RELAUNCH,
    ),
    # leptonai/gpud#1160
    (
        "NVRM: Xid (PCI:0000:00:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x00000000)",
        Cause.HARDWARE,
        RELAUNCH,
        RELAUNCH,
    ),
    ("nvidia-nvswitch0: SXid (PCI:0000:c2:00.0): 20034, Fatal, Link 30", Cause.HARDWARE, RELAUNCH, RELAUNCH),
    # deepspeedai/DeepSpeed#6637
    (
        ":0:rocdevice.cpp            :2984: 13356666806077 us: [pid:1843  tid:0x7fb7da5c8700] Callback: Queue"
        " 0x7fb7f5800000 aborting with error : HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware"
        " exception. code: 0x1016",
        Cause.DEVICE_FAULT,
        RESTART,
        RELAUNCH,
    ),
    (
        "Indexing.cu:1292: indexSelectLargeIndex: block: [0,0,0], thread: [0,0,0] Assertion `srcIndex < 8` failed.",
        Cause.USER_EXCEPTION,
        RESTART,
        STOP,
    ),
    ("python[1234]: segfault at 0 ip 00007f0 sp 00007ff error 4 in libc.so.6", Cause.NATIVE_CRASH, RESTART, RELAUNCH),
    ("Bus error", Cause.NATIVE_CRASH, RESTART, RELAUNCH),
    # LSSI-ETH/plmfit#40
    ("slurmstepd: error: NVML: Failed to get usage(15): GPU is lost", Cause.HARDWARE, RELAUNCH, RELAUNCH),
    # NVIDIA/NVSentinel#155
    ("               NVRM: fallen off the bus and is not responding to commands.", Cause.HARDWARE, RELAUNCH, RELAUNCH),
    # limbo0000/InstanceLoc#20
    (
        "Unable to determine the device handle for GPU 0000:81:00.0: Unknown Error",
        Cause.DEVICE_MISSING,
        RELAUNCH,
        RELAUNCH,
    ),
    # ai2cm/ace#348
    (
        "[E ProcessGroupNCCL.cpp:457] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1132079, "
        "OpType=ALLREDUCE, NumelIn=304640, Timeout(ms)=1800000) ran for 1800035 milliseconds before timing out.",
        Cause.COLLECTIVE_TIMEOUT,
        RESTART,
        RELAUNCH,
    ),
    # pytorch/pytorch#150916
    (
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        Cause.PEER_LOST,
        RESTART,
        RELAUNCH,
    ),
    # pytorch/pytorch#108861
    (
        "RuntimeError: DataLoader worker (pid 11011) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory.",
        Cause.HOST_MEMORY,
        RELAUNCH,
        STOP,
    ),
    # EasyR1#9
    (
        "(Runner pid=104449) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.12 GiB.",
        Cause.DEVICE_MEMORY,
        RESTART,
        STOP,
    ),
    # AMD-AGI/Primus#349
    ("  torch.OutOfMemoryError: HIP out of memory. Tried to allocate 11.74 GiB.", Cause.DEVICE_MEMORY, RESTART, STOP),
    # OpenBMB/MiniCPM-V#770
    (
        "torch/distributed/elastic/multiprocessing/api.py:826] failed (exitcode: -9) local_rank: 0 (pid: 1322)",
        Cause.KILLED,
        RESTART,
        RELAUNCH,
    ),
    # bigscience-workshop/bigscience, chronicles of tr11
    (
        "[default3]:terminate called after throwing an instance of 'c10::CUDAError'",
        Cause.NATIVE_CRASH,
        RESTART,
        RELAUNCH,
    ),
    ("Memory access fault by GPU node-2 (Agent handle: 0x5) on address 0x7f.", Cause.DEVICE_FAULT, RESTART, RELAUNCH),
    # The same in the words of other runtimes, launchers and schedulers.
    (
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Attempting to allocate 12.00G. There are 10.00G free.",
        Cause.DEVICE_MEMORY,
        RESTART,
        STOP,
    ),
    (
        "XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm.",
        Cause.DEVICE_MEMORY,
        RESTART,
        STOP,
    ),
    ("worker-0:5:9 [0] NCCL WARN Cuda failure 'out of memory'", Cause.DEVICE_MEMORY, RESTART, STOP),
    (
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        Cause.HOST_MEMORY,
        RELAUNCH,
        STOP,
    ),
    ("Memory cgroup out of memory: Killed process 12345 (python)", Cause.HOST_MEMORY, RELAUNCH, STOP),
    ("srun: error: node1: task 0: Out Of Memory", Cause.HOST_MEMORY, RELAUNCH, STOP),
    (
        "[PG 0 Rank 1] Timeout at NCCL work: 10, last enqueued NCCL work: 12, last completed NCCL work: 9.",
        Cause.COLLECTIVE_TIMEOUT,
        RESTART,
        RELAUNCH,
    ),
    (
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 1",
        Cause.COLLECTIVE_TIMEOUT,
        RESTART,
        RELAUNCH,
    ),
    (
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients.",
        Cause.PEER_LOST,
        RESTART,
        RELAUNCH,
    ),
    (
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
        Cause.PEER_LOST,
        RESTART,
        RELAUNCH,
    ),
    ("RuntimeError: DataLoader worker (pid 123) is killed by signal: Killed.", Cause.KILLED, RESTART, RELAUNCH),
    (
        "mpirun noticed that process rank 3 with PID 9 on node x exited on signal 9 (Killed).",
        Cause.KILLED,
        RESTART,
        RELAUNCH,
    ),
    (
        "[launch.py:321:sigkill_handler] ['/usr/bin/python'] exits with return code = -11",
        Cause.NATIVE_CRASH,
        RESTART,
        RELAUNCH,
    ),
    ("Received Signals.SIGTERM death signal, shutting down workers", Cause.TERMINATED, RESTART, RELAUNCH),
    (
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore.",
        Cause.USER_EXCEPTION,
        RESTART,
        STOP,
    ),
    ("ValueError: the learning rate must be positive", Cause.USER_EXCEPTION, RESTART, STOP),
    ("[rank3]: KeyError: 'input_ids'", Cause.USER_EXCEPTION, RESTART, STOP),
    ("RuntimeError: CUDA error: device-side assert triggered", Cause.USER_EXCEPTION, RESTART, STOP),
    ("ModuleNotFoundError: No module named 'flash_attn'", Cause.MISTAKE, STOP, STOP),
    ("pretrain.py: error: unrecognized arguments: --bf61", Cause.MISTAKE, STOP, STOP),
    ("OSError: [Errno 28] No space left on device", Cause.DISK_FULL, RELAUNCH, RELAUNCH),
]


@pytest.mark.parametrize(("line", "cause", "first", "later"), REAL, ids=lambda value: str(value)[:40])
def test_real_failures(line: str, cause: Cause, first: Decision, later: Decision) -> None:
    for advice, expected in (
        (advise([RankFailure(message=line)]), first),
        (advise([], f"iteration 10 | loss 1.0\n{line}\n"), first),
        (advise([RankFailure(rank=3, exit_code=1)], line, restart_count=3), later),
    ):
        assert (advice.cause, advice.decision) == (cause, expected), advice.reason
        assert advice.evidence
        assert advice.evidence in advice.reason


@pytest.mark.parametrize(
    ("code", "cause", "first", "later"),
    [
        (-9, Cause.KILLED, RESTART, RELAUNCH),
        (137, Cause.KILLED, RESTART, RELAUNCH),
        (-11, Cause.NATIVE_CRASH, RESTART, RELAUNCH),
        (139, Cause.NATIVE_CRASH, RESTART, RELAUNCH),
        (-15, Cause.TERMINATED, RESTART, RELAUNCH),
        (2, Cause.MISTAKE, STOP, STOP),
        (1, Cause.UNKNOWN, RESTART, RELAUNCH),
    ],
)
def test_exit_codes(code: int, cause: Cause, first: Decision, later: Decision) -> None:
    failures = [RankFailure(rank=0, exit_code=code)]
    found, after = advise(failures), advise(failures, restart_count=3)
    assert (found.cause, found.decision, after.decision) == (cause, first, later), found.reason


def test_the_corpus() -> None:
    expected = {"oom": {Cause.DEVICE_MEMORY}, "nccl_timeout": {Cause.COLLECTIVE_TIMEOUT}}
    seen = 0
    for line in CORPUS.read_text().splitlines():
        entry = json.loads(line)
        kind = entry["expected"].get("event") if isinstance(entry["expected"], dict) else None
        if kind in expected:
            assert advise([], entry["line"]).cause in expected[kind], entry["id"]
            seen += 1
    assert seen >= 5


def test_what_is_an_event_of_the_log_is_a_cause() -> None:
    memory, collective = {Cause.DEVICE_MEMORY, Cause.HOST_MEMORY}, {Cause.COLLECTIVE_TIMEOUT}
    seen = 0
    for entry in map(json.loads, CORPUS.with_name("more_training_log_lines.jsonl").read_text().splitlines()):
        expected = {"out_of_memory": memory, "collective_timeout": collective}.get(entry.get("event", ""))
        if expected is not None and entry["framework"] != "fairseq":  # which goes on without that batch
            assert advise([], entry["line"]).cause in expected, entry["line"]
            seen += 1
    assert seen > 40


def test_a_node_is_never_blamed_for_a_python_exception() -> None:
    log = "\n".join(line for line, *_ in REAL)
    for message in ("ValueError: bad value", "KeyError: 'x'", "AssertionError", "my.module.CustomError: no"):
        for restarts in (0, 1, 3, 10):
            advice = advise([RankFailure(rank=0, exit_code=1, message=message)], log, restart_count=restarts)
            assert advice.decision is not RELAUNCH, advice.reason
    plain = RankFailure(message="division by zero", is_exception=True)
    assert advise([plain], log, restart_count=9).decision is STOP


@given(st.text(max_size=200), st.integers(0, 20))
def test_whatever_an_exception_says_within_words_of_its_own(text: str, restarts: int) -> None:
    advice = advise([RankFailure(message=text, is_exception=True)], restart_count=restarts)
    if advice.cause is Cause.USER_EXCEPTION:
        assert advice.decision is not RELAUNCH


def test_the_rank_that_failed_first_is_the_cause() -> None:
    failures = [
        RankFailure(rank=0, message="torch.distributed.DistBackendError: NCCL error in: x", at=20.0),
        RankFailure(rank=5, message="IndexError: list index out of range", at=10.0),
        RankFailure(rank=6, exit_code=-6, at=21.0),
    ]
    advice = advise(failures)
    assert (advice.cause, advice.rank) == (Cause.USER_EXCEPTION, 5)


def test_statements_are_not_happenings() -> None:
    log = (
        "FAILURE_NODE_ERRORS=GPU is lost#uncorrectable ECC error\n"
        'File "train.py", line 3, in f\n'
        "    raise ValueError('CUDA out of memory')\n"
        "iteration 5 | loss 2\n"
    )
    assert advise([RankFailure(rank=0, exit_code=1)], log).cause is Cause.UNKNOWN


def test_nothing_failed() -> None:
    assert advise([]).decision is Decision.NONE


@given(st.lists(st.builds(RankFailure, message=st.text(), exit_code=st.none() | st.integers(-200, 400))), st.text())
def test_any_input_has_an_answer_with_words(failures: list[RankFailure], log: str) -> None:
    assert advise(failures, log).reason
