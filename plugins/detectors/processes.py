"""Processes that fail, are killed or end, as launchers, schedulers, shells and operating systems say it.

torchrun and its elastic agent, Slurm, MPI, Ray, Kubernetes, shells, data loaders. These lines name no framework.
"""

from __future__ import annotations

from collections.abc import Sequence

from lens_core import Detector, EventPattern, hookimpl


def _failure_pattern(words: Sequence[str], pattern: str) -> EventPattern:
    return EventPattern(type="training_failed", words=words, pattern=pattern)


def _terminated(words: Sequence[str], pattern: str) -> EventPattern:
    return EventPattern(type="process_terminated", words=words, pattern=pattern)


_ELASTIC = (
    EventPattern(
        type="training_started",
        words=("starting", "worker", "group"),
        pattern=r"\bStarting worker group\s*$",
    ),
    EventPattern(
        type="training_ended",
        words=("worker", "group", "successfully", "finished"),
        pattern=r"\bworker group successfully finished\b",
    ),
    EventPattern(
        type="training_ended",
        words=("worker", "group", "finished", "workerstate", "succeeded"),
        pattern=r"\bworker group finished \(WorkerState\.SUCCEEDED\)",
    ),
    _failure_pattern(
        ("exitcode", "local_rank", "failed"),
        r"\bfailed \(exitcode: (?P<exit_code>-?\d+)\) local_rank: (?P<local_rank>\d+)",
    ),
    _failure_pattern(("worker", "group", "failed"), r"(?P<reason>[wW]orker group FAILED)\b"),
    _failure_pattern(("childfailederror",), r"\b(?P<reason>ChildFailedError)\b"),
    _failure_pattern(
        ("calledprocesserror", "exit", "status"),
        r"\bCalledProcessError: Command .* returned non-zero exit status (?P<exit_code>-?\d+)",
    ),
    _terminated(
        ("calledprocesserror", "died", "with"),
        r"\bCalledProcessError: Command .* died with <Signals\.(?P<signal>SIG\w{1,12}): \d+>",
    ),
    _terminated(
        ("sending", "process", "closing", "signal"),
        r"Sending process (?P<pid>\d+) closing signal (?P<signal>\w+)",
    ),
    _terminated(("process", "got", "signal"), r"\bProcess (?P<pid>\d+) got signal: (?P<number>\d+)"),
    _terminated(
        ("signal", "received", "by", "pid"),
        r"\bSignal (?P<number>\d+) \((?P<signal>SIG\w{1,12})\) received by PID (?P<pid>\d+)",
    ),
    _terminated(("received", "death", "signal"), r"Received (?P<signal>\d+|(?:Signals\.)?SIG\w+) death signal"),
    _terminated(("received", "signal"), r"\b[rR]eceived signal (?P<number>\d+)\b"),
    _terminated(("killing", "subprocess"), r"Killing subprocess (?P<pid>\d+)"),
)
_SCHEDULERS = (
    _terminated(("srun", "job", "step", "aborted"), r"srun: (?:error: .*)?(?P<reason>Job step aborted)"),
    _terminated(("slurmstepd", "cancelled"), r"slurmstepd: error: .{0,200}?(?P<reason>CANCELLED AT .*)"),
    _terminated(("srun", "error", "terminated"), r"srun: error: \S+: tasks? [\d,-]+: (?P<reason>Terminated)"),
    _failure_pattern(
        ("srun", "error", "exited"),
        r"srun: error: \S+: tasks? [\d,-]+: (?P<reason>(?:Exited|Killed|Aborted|Segmentation).*)",
    ),
    _terminated(
        ("mpirun", "process", "rank", "exited", "on", "signal"),
        r"process rank (?P<rank>\d+) with PID (?P<pid>\d+) on node .* exited on signal (?P<number>\d+)",
    ),
    _failure_pattern(("mpi_abort", "was", "invoked", "rank"), r"(?P<reason>MPI_ABORT was invoked on rank \d+)"),
    _terminated(
        ("terminated", "with", "exit", "code"),
        r"\bterminated with exit code (?P<exit_code>1(?:29|3\d|4[0-3]))\b",
    ),
    _terminated(
        ("container", "killed", "on", "request", "exit", "code"),
        r"Container killed on request\. Exit code is (?P<exit_code>\d+)",
    ),
    _failure_pattern(
        ("worker", "died", "or", "was", "killed", "unexpected"),
        r"(?P<reason>worker died or was killed while executing a task by an unexpected system error)",
    ),
    _failure_pattern(
        ("actor", "died", "unexpectedly"), r"(?P<reason>The actor died unexpectedly before finishing this task)"
    ),
    _failure_pattern(
        ("worker", "died", "unexpectedly"), r"(?P<reason>The worker died unexpectedly while executing this task)"
    ),
)
# A signal's name as bash, Slurm and Open MPI print it; bash pads it to a column before the command.
_OF_SHELL = r"\(core dumped\)|\(signal| {5}"
_SYSTEM = (
    _failure_pattern(
        ("terminate", "called", "after", "throwing"),
        r"terminate called after throwing an instance of '(?P<reason>[^']+)'",
    ),
    _failure_pattern(
        ("segmentation", "fault"),
        rf"(?P<reason>Segmentation fault)(?: {{0,4}}(?:{_OF_SHELL}|encountered|$)| \(\d+\))",
    ),
    _failure_pattern(("bus", "error"), rf"(?P<reason>Bus error)(?: {{0,4}}(?:{_OF_SHELL}|$)| \(\d+\))"),
    _failure_pattern(("aborted",), rf"(?P<reason>Aborted)(?: {{0,4}}(?:{_OF_SHELL})| \(6\))"),
    _failure_pattern(
        ("illegal", "instruction"), rf"(?P<reason>Illegal instruction)(?: {{0,4}}(?:{_OF_SHELL}|$)| \(\d+\))"
    ),
    *(  # which prints it before the command
        _failure_pattern(("zsh", *text.split()), rf"\bzsh: (?P<reason>{text})\b")
        for text in ("segmentation fault", "bus error", "abort", "illegal hardware instruction")
    ),
    _terminated(("zsh", "killed"), r"\bzsh: (?P<reason>killed)\b"),
    _failure_pattern(("fatal", "python", "error"), r"(?P<reason>Fatal Python error: [^\n]{0,100})"),
    _failure_pattern(  # the kernel
        ("segfault", "at", "ip", "sp", "error"),
        r"(?P<process>[\w./:-]{1,15})\[(?P<pid>\d+)\]: (?P<reason>segfault at [\da-f]+)",
    ),
    _failure_pattern(
        ("traps", "general", "protection", "ip"),
        r"traps: (?P<process>[\w./:-]{1,15})\[(?P<pid>\d+)\] (?P<reason>general protection)",
    ),
    _terminated(  # glog
        ("received", "by", "pid", "stack", "trace"),
        r"\*{3} (?P<signal>SIG\w{1,12}) \(@\w+\) received by PID (?P<pid>\d+)",
    ),
    _failure_pattern(
        ("bus", "error", "shared", "memory"),
        r"(?P<reason>Unexpected bus error encountered in worker)",
    ),
    _failure_pattern(
        ("dataloader", "worker", "exited", "unexpectedly"),
        r"(?P<reason>DataLoader worker \(pid\(?s?\)?[ \d,]*\) exited unexpectedly)",
    ),
    _terminated(
        ("dataloader", "worker", "killed", "by", "signal"),
        r"DataLoader worker \(pid (?P<pid>\d+)\) is killed by signal: (?P<signal>[\w ]+)",
    ),
    _terminated(("killed",), r"(?<![\w-])(?P<reason>Killed)(?:\s*$| {5,})"),
    _terminated(
        ("keyboardinterrupt",), r"^(?:.{0,400}?(?:[\])>:|]|ERROR|INFO)\s{0,8})?(?P<reason>KeyboardInterrupt)\s*$"
    ),
)


class Processes(Detector):
    """The ends of processes, by launchers, schedulers, shells and the system."""

    name = "processes"
    layer = ""
    events = (*_ELASTIC, *_SCHEDULERS, *_SYSTEM)


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [Processes]
