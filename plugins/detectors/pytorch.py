"""What goes wrong in any PyTorch job: memory, collectives, processes that die, and the launchers that say so.

These lines name no framework.
"""

from __future__ import annotations

from lens_core import Detector, EventPattern, hookimpl


class PyTorch(Detector):
    """Failures that any PyTorch job, its launcher or its scheduler prints."""

    name = "pytorch"
    layer = ""
    events = (
        EventPattern(
            type="out_of_memory",
            words=("out", "of", "memory", "tried", "allocate"),
            pattern=r"(?P<reason>(?:CUDA|HIP|XPU|NPU|MPS backend)? ?out of memory)\."
            r" Tried to allocate (?P<wanted>[\d.]+ \w+)",
        ),
        EventPattern(
            type="out_of_memory",
            words=("cuda", "error", "out", "of", "memory"),
            pattern=r"(?P<reason>CUDA error: out of memory)",
        ),
        EventPattern(
            type="out_of_memory",
            words=("killed", "by", "oom", "killer"),
            pattern=r"(?P<reason>killed by (?:SIGKILL by )?(?:the )?OOM killer)",
        ),
        EventPattern(
            type="out_of_memory",
            words=("resource_exhausted", "out", "of", "memory"),
            pattern=r"(?P<reason>RESOURCE_EXHAUSTED: Out of memory)",
        ),
        EventPattern(
            type="out_of_memory",
            words=("oom", "kill", "event"),
            pattern=r"(?P<reason>oom-kill event)",
        ),
        EventPattern(type="out_of_memory", words=("oom_kill",), pattern=r"(?P<reason>oom_kill event)"),
        EventPattern(type="out_of_memory", words=("oomkilled",), pattern=r"\b(?P<reason>OOMKilled)\b"),
        EventPattern(
            type="out_of_memory",
            words=("ray", "exceptions", "outofmemoryerror"),
            pattern=r"(?P<reason>ray\.exceptions\.OutOfMemoryError)",
        ),
        EventPattern(
            type="collective_timeout",
            words=("watchdog", "caught", "collective", "timeout"),
            pattern=r"Watchdog caught collective operation timeout:(?: WorkNCCL\((?:SeqNum=(?P<sequence>\d+), )?"
            r"OpType=(?P<operation>\w+).*?Timeout\(ms\)=(?P<timeout_ms>\d+)\) ran for (?P<duration_ms>\d+))?",
        ),
        EventPattern(
            type="training_failed",
            words=("exitcode", "local_rank", "failed"),
            pattern=r"\bfailed \(exitcode: (?P<exit_code>-?\d+)\) local_rank: (?P<local_rank>\d+)",
        ),
        EventPattern(type="training_failed", words=("childfailederror",), pattern=r"\b(?P<reason>ChildFailedError)\b"),
        EventPattern(
            type="training_failed",
            words=("terminate", "called", "after", "throwing"),
            pattern=r"terminate called after throwing an instance of '(?P<reason>[^']+)'",
        ),
        EventPattern(
            type="training_failed",
            words=("timeout", "detected", "by", "watchdog"),
            pattern=r"(?P<reason>Exception \(either an error or timeout\) detected by watchdog)",
        ),
        EventPattern(
            type="training_failed",
            words=("segmentation", "fault"),
            pattern=r"(?P<reason>Segmentation fault) ?(?:\(core dumped\)|encountered|\(signal|$)",
        ),
        EventPattern(
            type="process_terminated",
            words=("sending", "process", "closing", "signal"),
            pattern=r"Sending process (?P<pid>\d+) closing signal (?P<signal>\w+)",
        ),
        EventPattern(
            type="training_failed",
            words=("distbackenderror",),
            pattern=r"(?P<reason>DistBackendError: NCCL error in)",
        ),
        EventPattern(
            type="training_failed",
            words=("runtimeerror", "cuda", "error"),
            pattern=r"RuntimeError: (?P<reason>CUDA error: (?!out of memory)[^\n]{0,200})",
        ),
        EventPattern(
            type="training_failed",
            words=("runtimeerror", "hip", "error"),
            pattern=r"RuntimeError: (?P<reason>HIP error: (?!out of memory)[^\n]{0,200})",
        ),
        EventPattern(
            type="training_failed",
            words=("nccl", "communicator", "was", "aborted"),
            pattern=r"(?P<reason>NCCL communicator was aborted on rank \d+)",
        ),
        EventPattern(
            type="training_failed",
            words=("worker", "died", "or", "was", "killed", "unexpected"),
            pattern=r"(?P<reason>worker died or was killed while executing a task by an unexpected system error)",
        ),
        EventPattern(
            type="process_terminated",
            words=("signal", "received", "by", "pid"),
            pattern=r"\bSignal (?P<number>\d+) \((?P<signal>SIG\w+)\) received by PID (?P<pid>\d+)",
        ),
        EventPattern(
            type="training_started",
            words=("starting", "worker", "group"),
            pattern=r"\bStarting worker group\s*$",
        ),
        EventPattern(
            type="process_terminated",
            words=("killing", "subprocess"),
            pattern=r"Killing subprocess (?P<pid>\d+)",
        ),
        EventPattern(
            type="process_terminated",
            words=("received", "death", "signal"),
            pattern=r"Received (?P<signal>\d+|(?:Signals\.)?SIG\w+) death signal",
        ),
        EventPattern(
            type="process_terminated",
            words=("srun", "job", "step", "aborted"),
            pattern=r"srun: (?:error: .*)?(?P<reason>Job step aborted)",
        ),
        EventPattern(
            type="process_terminated",
            words=("slurmstepd", "cancelled"),
            pattern=r"slurmstepd: error: .*(?P<reason>CANCELLED AT .*)",
        ),
        EventPattern(
            type="training_failed",
            words=("srun", "error", "exited"),
            pattern=r"srun: error: \S+: tasks? [\d,-]+: (?P<reason>(?:Exited|Killed|Aborted|Segmentation).*)",
        ),
        EventPattern(
            type="process_terminated",
            words=("killed",),
            pattern=r"(?<![\w-])(?P<reason>Killed)(?:\s*$| {5,})",
        ),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [PyTorch]
