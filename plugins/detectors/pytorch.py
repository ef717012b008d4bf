"""Failures of any PyTorch job between and on its devices: collectives, kernels, hardware, mixed precision.

Memory and the ends of processes have files of their own. These lines name no framework.
"""

from __future__ import annotations

from collections.abc import Sequence

from lens_core import Detector, EventPattern, hookimpl


def _timed_out(words: Sequence[str], pattern: str) -> EventPattern:
    return EventPattern(type="collective_timeout", words=words, pattern=pattern)


def _failure_pattern(words: Sequence[str], pattern: str) -> EventPattern:
    return EventPattern(type="training_failed", words=words, pattern=pattern)


def _corrected_error(words: Sequence[str], pattern: str) -> EventPattern:
    return EventPattern(type="device_error", words=words, pattern=pattern)


_WORK = (
    r"Work(?:NCCL|RCCL|HCCL|XCCL)\((?:SeqNum=(?P<sequence>\d+), )?OpType=(?P<operation>\w+),"
    r"[^()]{0,200}?Timeout\(ms\)=(?P<timeout_ms>\d+)\)"
)
# The wording changed with PyTorch 1.13, 2.2 and 2.5; other backends (RCCL, HCCL, gloo) took it over.
_COLLECTIVES = (
    _timed_out(
        ("caught", "collective", "operation", "timeout"),
        rf"[cC]aught collective operation timeout:(?: {_WORK} ran for (?P<duration_ms>\d+))?",
    ),
    _timed_out(("timed", "out", "in", "blocking", "wait"), rf"{_WORK} ?timed out in blocking wait"),
    _timed_out(("timed", "out", "in", "blocking", "wait"), r"(?<!\)) ?timed out in blocking wait"),
    _timed_out(
        ("timeout", "at", "nccl", "work"),
        r"Timeout at NCCL work: (?P<sequence>\d+), last enqueued NCCL work: (?P<last_enqueued>-?\d+),"
        r" last completed NCCL work: (?P<last_completed>-?\d+)",
    ),
    _timed_out(
        ("dump", "signal", "collective", "timeout"),
        r"(?P<reason>[rR]eceived a (?:global )?(?:dump|timeout) signal due to a collective timeout)",
    ),
    _timed_out(
        ("watchdog", "got", "stuck"),
        r"(?P<reason>watchdog got stuck for \d+ ?[a-z]+)",
    ),
    _timed_out(
        ("timed", "out", "store", "based", "barrier"),
        r"(?P<reason>Timed out initializing process group in store based barrier)",
    ),
    _timed_out(
        ("timed", "out", "waiting", "for", "operation"),
        r"Timed out waiting (?P<timeout_ms>\d+)ms for (?P<operation>\w+) operation",
    ),
    _timed_out(("barrier", "timed", "out"), r"(?P<reason>DEADLINE_EXCEEDED: Barrier timed out)"),
    _timed_out(
        ("monitoredbarrier", "failed"),
        r"(?P<reason>Ranks? \d[\d, ]{0,160} failed to pass monitoredBarrier)",
    ),
    _failure_pattern(
        ("timeout", "detected", "by", "watchdog"),
        r"(?P<reason>Exception \(either an error or timeout\) detected by watchdog)",
    ),
    _failure_pattern(
        ("some", "operations", "have", "failed", "timed", "out"),
        r"(?P<reason>Some (?:NCCL|RCCL|HCCL) operations have failed or timed out)",
    ),
    _failure_pattern(
        ("nccl", "communicator", "was", "aborted"), r"(?P<reason>NCCL communicator was aborted on rank \d+)"
    ),
    _failure_pattern(
        ("found", "async", "exception", "nccl"), r"(?P<reason>found async exception when checking for NCCL errors)"
    ),
    _failure_pattern(("distbackenderror",), r"(?P<reason>DistBackendError: [^\n]{0,80})"),
    _failure_pattern(("distnetworkerror",), r"(?P<reason>DistNetworkError: [^\n]{0,120})"),
    _failure_pattern(("diststoreerror",), r"(?P<reason>DistStoreError: [^\n]{0,120})"),
    _failure_pattern(("runtimeerror", "nccl", "error", "in"), r"RuntimeError: (?P<reason>NCCL error in)"),
    _failure_pattern(  # the exception itself may be a timeout, which has events of its own
        ("watchdog", "thread", "terminated", "with", "exception"),
        r"[wW]atchdog thread terminated with exception: (?!.*collective operation timeout)(?P<reason>[^\n]{1,200})",
    ),
    _failure_pattern(  # XLA
        ("nccl", "operation", "failed"), r"(?P<reason>NCCL operation \w+(?:\([^)\n]{0,80}\))? failed: [^\n]{0,120})"
    ),
    _failure_pattern(
        ("runtimeerror", "connection", "closed", "by", "peer"),
        r"RuntimeError: .*(?P<reason>Connection closed by peer)",
    ),
)
# As Python raises them, as C++ says before it aborts (`what():`), and as XLA and NCCL print them.
_HOST = r"^(?:\S{1,64} ){0,5}?(?P<node>[\w.-]{1,253}) kernel: (?:\[ *[\d.]{1,20}\] )?"
# Xid numbers of errors that were corrected: training goes on.
_CORRECTED = "(?:63|92|93|121|125|156)"
# NVLink reports what it has corrected by the same numbers.
_XID = (
    rf"NVRM: Xid \((?:PCI:)?(?P<device>[\w:.]+)\): (?!{_CORRECTED},)(?P<xid>\d+),(?! *\w+ Nonfatal\b)"
    r" *(?P<reason>.{0,160})"
)
_CORRECTED_XID = rf"NVRM: Xid \((?:PCI:)?(?P<device>[\w:.]+)\): (?P<xid>{_CORRECTED}), *(?P<reason>.{{0,160}})"
_DEVICES = (
    _failure_pattern(
        ("cuda", "error"),
        r"(?P<reason>\bCUDA error: (?!out of memory|CUBLAS_STATUS_ALLOC|.*CUDA_ERROR_OUT_OF_MEMORY)[^\n]{1,200})",
    ),
    _failure_pattern(("hip", "error"), r"(?P<reason>\bHIP error: (?!out of memory)[^\n]{1,200})"),
    _failure_pattern(("cudnn", "error"), r"(?P<reason>\bcuDNN error: (?!CUDNN_STATUS_ALLOC_FAILED)[^\n]{1,200})"),
    *(
        _failure_pattern((f"cuda_error_{name.lower()}",), rf"(?P<reason>\bCUDA_ERROR_{name}\b[^\n]{{0,120}})")
        for name in (
            "ILLEGAL_ADDRESS",
            "ILLEGAL_INSTRUCTION",
            "MISALIGNED_ADDRESS",
            "LAUNCH_FAILED",
            "LAUNCH_TIMEOUT",
            "HARDWARE_STACK_ERROR",
            "ECC_UNCORRECTABLE",
            "NVLINK_UNCORRECTABLE",
            "ASSERT",
        )
    ),
    _failure_pattern(
        ("nccl", "warn", "cuda", "failure"),
        r"NCCL WARN (?P<reason>Cuda failure (?!(?:\d+ )?'?out of memory)[^\n]{1,120})",
    ),
    _failure_pattern(
        ("block", "thread", "assertion", "failed"),
        r"block: \[[\d,]+\], thread: \[[\d,]+\] (?P<reason>Assertion [^\n]{1,160} failed)",
    ),
    _failure_pattern(("aborting", "with", "error"), r"aborting with error : (?P<reason>HSA_STATUS_ERROR_[^\n]{1,160})"),
    _failure_pattern(("memory", "access", "fault", "by", "gpu"), r"(?P<reason>Memory access fault by GPU node-\d+)"),
    _failure_pattern(("hw", "exception", "by", "gpu"), r"(?P<reason>HW Exception by GPU node-\d+)"),
    _failure_pattern(
        ("amdgpu", "gpu", "reset", "begin"),
        r"amdgpu (?P<device>[\da-f:.]+): (?:amdgpu: )?(?P<reason>GPU reset begin!)",
    ),
    # With the host that syslog prints before the kernel's lines, and without.
    _failure_pattern(("kernel", "nvrm", "xid"), _HOST + _XID),
    _failure_pattern(("nvrm", "xid"), _XID),
    _corrected_error(("kernel", "nvrm", "xid"), _HOST + _CORRECTED_XID),
    _corrected_error(("nvrm", "xid"), _CORRECTED_XID),
    _failure_pattern(
        ("nvrm", "gpu", "has", "fallen", "off", "the", "bus"),
        r"NVRM: GPU (?P<device>[\w:.]+): (?P<reason>GPU has fallen off the bus)",
    ),
    _failure_pattern(
        ("sxid", "fatal"),
        r"SXid \((?:PCI:)?(?P<device>[\w:.]+)\): (?P<sxid>\d+), *(?P<reason>Fatal\b.{0,160})",
    ),
)
_PRECISION = (
    EventPattern(
        type="step_skipped",
        words=("gradient", "overflow", "skipping", "step", "loss", "scaler"),
        pattern=r"Gradient overflow\.\s+Skipping step, loss scaler \d+ reducing loss scale to"
        r" (?P<loss_scale>[\d.e+-]+)",
    ),
)


class PyTorch(Detector):
    """Failures of collectives and devices that any PyTorch job prints."""

    name = "pytorch"
    layer = ""
    events = (*_COLLECTIVES, *_DEVICES, *_PRECISION)


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [PyTorch]
