"""What goes wrong in any PyTorch job between and on its devices: collectives, kernels, hardware, mixed precision.

Memory and the ends of processes have files of their own. These lines name no framework.
"""

from __future__ import annotations

from collections.abc import Sequence

from lens_core import Detector, EventPattern, hookimpl


def _timed_out(words: Sequence[str], pattern: str) -> EventPattern:
    return EventPattern(type="collective_timeout", words=words, pattern=pattern)


def _failed(words: Sequence[str], pattern: str) -> EventPattern:
    return EventPattern(type="training_failed", words=words, pattern=pattern)


_WORK = (
    r"Work(?:NCCL|RCCL|HCCL|XCCL)\((?:SeqNum=(?P<sequence>\d+), )?OpType=(?P<operation>\w+)"
    r".*?Timeout\(ms\)=(?P<timeout_ms>\d+)\)"
)
# The wording changed with PyTorch 1.13, 2.2 and 2.5; other backends (RCCL, HCCL, gloo) took it over.
_COLLECTIVES = (
    _timed_out(
        ("caught", "collective", "operation", "timeout"),
        rf"[cC]aught collective operation timeout:(?: {_WORK} ran for (?P<duration_ms>\d+))?",
    ),
    _timed_out(("timed", "out", "in", "blocking", "wait"), rf"(?:{_WORK})? ?timed out in blocking wait"),
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
        r"(?P<reason>watchdog got stuck for \d+ ?\w+)",
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
        r"(?P<reason>Ranks? \d+[\d, ]* failed to pass monitoredBarrier)",
    ),
    _failed(
        ("timeout", "detected", "by", "watchdog"),
        r"(?P<reason>Exception \(either an error or timeout\) detected by watchdog)",
    ),
    _failed(
        ("some", "operations", "have", "failed", "timed", "out"),
        r"(?P<reason>Some (?:NCCL|RCCL|HCCL) operations have failed or timed out)",
    ),
    _failed(("nccl", "communicator", "was", "aborted"), r"(?P<reason>NCCL communicator was aborted on rank \d+)"),
    _failed(
        ("found", "async", "exception", "nccl"), r"(?P<reason>found async exception when checking for NCCL errors)"
    ),
    _failed(("distbackenderror",), r"(?P<reason>DistBackendError: [^\n]{0,80})"),
    _failed(("distnetworkerror",), r"(?P<reason>DistNetworkError: [^\n]{0,120})"),
    _failed(("diststoreerror",), r"(?P<reason>DistStoreError: [^\n]{0,120})"),
    _failed(("runtimeerror", "nccl", "error", "in"), r"RuntimeError: (?P<reason>NCCL error in)"),
    _failed(
        ("runtimeerror", "connection", "closed", "by", "peer"),
        r"RuntimeError: .*(?P<reason>Connection closed by peer)",
    ),
)
_DEVICES = (
    _failed(
        ("cuda", "error"),
        r"(?:RuntimeError|AcceleratorError): (?P<reason>CUDA error: (?!out of memory|CUBLAS_STATUS_ALLOC)[^\n]{0,200})",
    ),
    _failed(
        ("hip", "error"),
        r"(?:RuntimeError|AcceleratorError): (?P<reason>HIP error: (?!out of memory)[^\n]{0,200})",
    ),
    _failed(("memory", "access", "fault", "by", "gpu"), r"(?P<reason>Memory access fault by GPU node-\d+)"),
    _failed(("hw", "exception", "by", "gpu"), r"(?P<reason>HW Exception by GPU node-\d+)"),
    _failed(
        ("nvrm", "xid"),
        r"NVRM: Xid \((?:PCI:)?(?P<device>[\w:.]+)\): (?P<xid>\d+), *(?P<reason>.{0,160})",
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
