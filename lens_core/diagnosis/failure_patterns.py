"""The words by which failures are known, in messages and in the last lines of a training log.

Names of NVIDIA's Xid errors: those that its documentation answers with a reset or a replacement of the device.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple


class Cause(Enum):
    """Why a job failed, as far as its traces tell."""

    HARDWARE = "hardware"
    DEVICE_MISSING = "device_missing"
    DEVICE_FAULT = "device_fault"
    DEVICE_MEMORY = "device_memory"
    HOST_MEMORY = "host_memory"
    DISK_FULL = "disk_full"
    COLLECTIVE_TIMEOUT = "collective_timeout"
    PEER_LOST = "peer_lost"
    USER_EXCEPTION = "user_exception"
    MISTAKE = "mistake"
    NATIVE_CRASH = "native_crash"
    KILLED = "killed"
    TERMINATED = "terminated"
    UNKNOWN = "unknown"


class Match(NamedTuple):
    """A cause and the line that tells it."""

    cause: Cause
    line: str


_XIDS = "|".join(map(str, (48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 110, 119, 120, 136, 140, 143, 149, 151, 154, 155)))
_PATTERNS = (
    (
        Cause.HARDWARE,
        rf"NVRM: Xid \(.*?\): (?:{_XIDS})\b(?!, *\w+ Nonfatal)|\bXid(?: error)?[ :=]+(?:{_XIDS})\b(?!, *\w+ Nonfatal)"
        r"|\bSXid \(.*?\): \d+, *Fatal|uncorrectable ECC|double[- ]bit ECC|CUDA_ERROR_(?:ECC|NVLINK)_UNCORRECTABLE"
        r"|fallen off the bus|GPU is lost|GPU has been lost|row remap\w* fail|NVLink.*(?:fatal|uncorrect|error count)"
        r"|hardware error|HW Exception by GPU node|GPU reset (?:begin|required)"
        r"|RAS.*uncorrect|Machine check (?:event|exception)|mlx5_core.*(?:health|fatal)",
    ),
    (
        Cause.DEVICE_MISSING,
        r"no CUDA-capable device|No HIP GPUs are available|no ROCm-capable device|CUDA driver initialization failed"
        r"|NVML: Driver/library version mismatch|couldn't communicate with the NVIDIA driver"
        r"|CUDA-capable device\(s\) is/are busy or unavailable|Unable to determine the device handle for GPU"
        r"|system not yet initialized.*fabric|error 802",
    ),
    (Cause.DISK_FULL, r"No space left on device|Disk quota exceeded"),
    (
        Cause.DEVICE_MEMORY,
        r"(?:CUDA|HIP|XPU|NPU|MPS backend)(?: error:)? out of memory|(?<!ray\.exceptions\.)OutOfMemoryError"
        r"|RESOURCE_EXHAUSTED: (?:.*?out of memory|Attempting to (?:allocate|reserve)|Failed to allocate)"
        r"|OOM when allocating tensor|(?:Cuda|HIP) failure (?:\d+ )?'?out of memory|CUDA_ERROR_OUT_OF_MEMORY"
        r"|\b(?:CUDA|GPU|HIP|NPU|device) OOM\b"
        r"|hipErrorOutOfMemory|CUBLAS_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation",
    ),
    (
        Cause.HOST_MEMORY,
        r"oom[-_ ]?kill|OOMKilled|Out of memory: Killed process|Cannot allocate memory|^MemoryError\b"
        r"|DefaultCPUAllocator: (?:not enough|can't allocate) memory|bus error.*shared memory"
        r"|DataLoader worker .*Bus error|Memory cgroup out of memory|_ArrayMemoryError|srun: error: .*: Out Of Memory"
        r"|ray\.exceptions\.OutOfMemoryError|killed due to memory pressure|node running low on memory",
    ),
    (
        Cause.DEVICE_FAULT,
        r"illegal memory access|unspecified launch failure|Memory access fault by GPU|hipErrorIllegalAddress"
        r"|misaligned address|CUBLAS_STATUS_EXECUTION_FAILED|CUDNN_STATUS_EXECUTION_FAILED"
        r"|(?:CUDA|HIP) error: (?:an illegal instruction|unknown error|initialization error)|unhandled cuda error"
        r"|ncclUnhandledCudaError|HSA_STATUS_ERROR_\w+|CUDA_ERROR_(?:ILLEGAL_\w+|MISALIGNED_ADDRESS|LAUNCH_\w+)"
        r"|\*ERROR\* ring \w+ timeout|cuDNN error: CUDNN_STATUS_(?!ALLOC_FAILED|NOT_SUPPORTED|BAD_PARAM)",
    ),
    (
        Cause.USER_EXCEPTION,
        r"device-side assert triggered|thread: \[[\d,]+\] Assertion|^Assertion .* failed$|CUDA_ERROR_ASSERT\b",
    ),
    (
        Cause.COLLECTIVE_TIMEOUT,
        r"Watchdog caught collective operation timeout|collective operation timeout|Timed? ?out waiting \d+ ?ms for"
        r"|monitored ?barrier.*(?:failed|timed? out)|failed to pass monitoredBarrier|Timeout\(ms\)=\d+\) ran for"
        r"|wait timeout after \d+ ?ms|Timeout at NCCL work|due to a collective timeout|watchdog got stuck"
        r"|Timed out initializing process group|Barrier timed out"
        # In somebody's own words, where a line says no more than that it happened.
        r"|\b(?:[NRHO]CCL|Gloo|collective|all[-_ ]?(?:reduce|gather|to[-_ ]?all)|reduce[-_ ]?scatter|watchdog)"
        r"(?: (?:operation|collective|communication|call|watchdog))? (?:has |was )?time(?:d[- ])?[- ]?out"
        r"(?:$|[.,:;!)]| (?:error|after|exceeded|expired|occurred|in|on|during|while|waiting|at)\b)",
    ),
    (
        Cause.PEER_LOST,
        r"NCCL (?:error|WARN)|ncclSystemError|ncclRemoteError|ncclInternalError|unhandled system error"
        r"|Connection (?:reset|closed) by (?:remote )?peer|remote process exited|Broken pipe"
        r"|DistBackendError|DistNetworkError|DistStoreError|Connection refused"
        r"|RayActorError|ActorDiedError|WorkerCrashedError|worker died or was killed"
        r"|heartbeat monitor.*timed? out|Gloo connectFullMesh failed|RendezvousConnectionError",
    ),
    (
        Cause.MISTAKE,
        r"^(?:\w+Error: )?(?:ModuleNotFoundError|ImportError|SyntaxError|IndentationError)\b"
        r"|error: unrecognized arguments|error: the following arguments are required|can't open file .*No such file"
        r"|error: argument \S+: (?:invalid|expected)",
    ),
    (
        Cause.NATIVE_CRASH,
        r"Segmentation fault|segfault|general protection|SIG(?:SEGV|ABRT|BUS|ILL)|terminate called after throwing"
        r"|Fatal Python error|\bBus error(?: \(|$| {5,})|^Aborted$|^Illegal instruction$"
        r"|(?:exitcode:|return code =) -(?:4|6|7|8|11)\b|(?:Aborted|Bus error|Illegal instruction) *\(core dumped\)",
    ),
    (
        Cause.TERMINATED,
        r"Received (?:15|(?:Signals\.)?SIGTERM)\b|^(?:Signals\.)?SIGTERM$|received signal 15\b"
        r"|CANCELLED AT|DUE TO (?:PREEMPTION|TIME LIMIT)|got signal: 15|(?:exitcode:|return code =) -15\b"
        r"|srun: error: .*: Terminated",
    ),
    (
        Cause.KILLED,
        r"\bSIGKILL\b|(?:exitcode:|return code =) -9\b|^Killed$|\bKilled {5,}|^zsh: killed|srun: error: .*: Killed"
        r"|exited on signal 9\b|exit code (?:is )?137\b"
        r"|DataLoader worker .*(?:killed by signal: Killed|exited unexpectedly)",
    ),
    (
        Cause.USER_EXCEPTION,
        r"^(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Warning|Interrupt|Iteration)(?:: |$)|^Exception: ",
    ),
)
_COMPILED = tuple(
    (cause, re.compile(pattern, re.IGNORECASE if cause is not Cause.USER_EXCEPTION else 0))
    for cause, pattern in _PATTERNS
)
# Prefixes of launchers and ranks before the lines of a traceback.
_PREFIX = re.compile(
    r"^(?:\[?rank\s?\d+\]?:?|\[default\d+\]:|\S+/\d+:|\d+:|\(\S+ pid=\d+\)|stderr:|[\d\-]+[T ][\d:.,]+\S*"
    r"|\[[^\]]*\]|[EWF]\d{4} [\d:.]+ \d+|\||\s)+\s*"
)
# Lines that state what is looked for, not what happened: configurations and usage of this very diagnosis.
_STATEMENT = re.compile(
    r"FAILURE_NODE_ERRORS|node_errors|error_codes?\s*[=:]|diagnos(?:is|e)|^\s*--\w|\bexcept\b|\bif\b.*\bin\b"
)
_FRAME_LINE = re.compile(r'^File "|^\s*\^+\s*$|^(?:raise|return) ')
_ELASTIC = re.compile(
    r"^torch\.distributed\.elastic\.multiprocessing\.errors\.ChildFailedError|^subprocess\.CalledProcessError"
)


def search_causes(text: str) -> list[Match]:
    """Find the causes in the lines of a text, in their order; a line has at most one."""
    found = []
    for raw in text.splitlines():
        line = _PREFIX.sub("", raw).strip()
        if not line or _FRAME_LINE.match(line) or _STATEMENT.search(line) or _ELASTIC.match(line):
            continue
        cause = next((cause for cause, pattern in _COMPILED if pattern.search(line)), None)
        if cause is not None:
            found.append(Match(cause, line[:300]))
    return found
