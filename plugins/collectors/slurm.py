"""Jobs of Slurm, their nodes and GPUs: the counterpart of Kubernetes' pods, for clusters without it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from lens_core import Collector, Context, Device, LensError, Pod, Record, WorkloadReference, hookimpl

# A job has nodes while it is in one of these.
_HAS_NODES = frozenset({"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT"})
# A name may hold blanks; what comes after it is always the user.
_NAME = re.compile(r" JobName=(.*?) UserId=")
_WORD = re.compile(r"(?:^| )(\w[\w:/]*)=(\S*)")
_PLACE = re.compile(r" Nodes=(\S+) CPU_IDs=\S* Mem=\d+\S* GRES=(\S*)")
_GPUS = re.compile(r"(?:^|,)(?:gres/)?gpu(?::[^,()]+)*\(IDX:([\d,-]+)\)")
_PART = re.compile(r"(?:\[[^\]]*\]|[^,\[\]])+")
_RANGE = re.compile(r"\[([^\]]*)\]")


class Place(NamedTuple):
    """A node of a job, and the numbers of the GPUs that the job has there."""

    node: str
    gpus: list[int]


class Job(NamedTuple):
    """A job that has nodes; `number` is 17, or 17_4 for a task of an array."""

    number: str
    name: str
    state: str
    user: str
    partition: str
    places: list[Place]


def jobs_of(text: str) -> Iterator[Job]:
    """The jobs of an output that have nodes now; what is not a job's line is passed over."""
    for line in text.splitlines():
        words = dict(_WORD.findall(line))
        if "JobId" in words and words.get("JobState") in _HAS_NODES:
            yield _job(line, words)


def _job(line: str, words: dict[str, str]) -> Job:
    array, task = words.get("ArrayJobId"), words.get("ArrayTaskId", "")
    name = _NAME.search(line)
    places = [Place(node, gpus_of(devices)) for nodes, devices in _PLACE.findall(line) for node in nodes_of(nodes)] or [
        Place(node, []) for node in nodes_of(words.get("NodeList", ""))
    ]
    return Job(
        number=f"{array}_{task}" if array and task.isdigit() else words["JobId"],
        name=name[1] if name else "",
        state=words["JobState"],
        user=words.get("UserId", "").partition("(")[0],
        partition=words.get("Partition", ""),
        places=places,
    )


def nodes_of(text: str) -> list[str]:
    """The names of a host list: gpu[01-03,7],login → gpu01, gpu02, gpu03, gpu7, login."""
    if text in ("", "(null)", "None"):
        return []
    return [name for part in _PART.finditer(text) for name in _expanded(part[0])]


def _expanded(pattern: str) -> list[str]:
    found = _RANGE.search(pattern)
    if found is None:
        return [pattern]
    before, after = pattern[: found.start()], pattern[found.end() :]
    return [name for number in _expand_numbers(found[1]) for name in _expanded(before + number + after)]


def _expand_numbers(text: str) -> Iterator[str]:
    """The numbers of 01-03,7, as wide as they are written."""
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not dash:
            yield first
            continue
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))


def gpus_of(devices: str) -> list[int]:
    """The numbers of gpu:a100:2(IDX:0-1); other devices are passed over."""
    return [int(number) for found in _GPUS.finditer(devices) for number in _expand_numbers(found[1])]


_ARGUMENTS = ("--oneliner", "--details", "show", "jobs")
_SHOWN_ERROR = 300


class SlurmSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Access to Slurm."""

    scontrol: Annotated[str, Meta(min_length=1, description="the program, if it is not in PATH")] = "scontrol"
    command_timeout_seconds: Annotated[float, Meta(gt=0, description="how long one answer may take")] = 20.0


class Slurm(Collector):
    """Jobs of Slurm as workloads, each with its name, its nodes and the GPUs that it holds there."""

    name = "slurm"
    Settings = SlurmSettings
    interval_seconds = 15.0
    timeout_seconds = 30.0

    settings: SlurmSettings

    def __init__(self, settings: Any, context: Context) -> None:
        super().__init__(settings, context)
        self._found: dict[str, Pod] = {}
        self._stored: dict[str, Pod] = {}

    async def check(self) -> None:
        """Ask once."""
        await self._jobs()

    async def collect(self) -> Sequence[Record]:
        """Tell the directory; what is new goes to the store for good. Raises LensError that says what Slurm said."""
        self._found = {pod.uid: pod for job in jobs_of(await self._jobs()) for pod in pods_of(job)}
        self.context.directory.replace(self._found.values(), self.context.name)
        gone = [
            msgspec.structs.replace(pod, phase="Deleted") for uid, pod in self._stored.items() if uid not in self._found
        ]
        return [*(pod for uid, pod in self._found.items() if self._stored.get(uid) != pod), *gone]

    async def stored(self) -> None:
        """Mark the records that were handed over as stored."""
        self._stored = self._found

    async def _jobs(self) -> str:
        try:
            process = await asyncio.create_subprocess_exec(
                self.settings.scontrol, *_ARGUMENTS, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
        except OSError as error:
            raise LensError(f"{self.settings.scontrol} cannot be run: {error.strerror}") from None
        try:
            said, complaint = await asyncio.wait_for(process.communicate(), self.settings.command_timeout_seconds)
        except asyncio.TimeoutError:
            raise LensError(f"scontrol gave no answer in {self.settings.command_timeout_seconds:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            text = " ".join(complaint.decode(errors="replace").split())
            raise LensError(f"scontrol ended with {process.returncode}: {text[:_SHOWN_ERROR]}")
        return said.decode(errors="replace")


def pods_of(job: Job) -> list[Pod]:
    """A job's part of each node, as the directory knows pods; the workload is called as the hook calls it."""
    uid = f"slurm-{job.number}"
    workload = WorkloadReference(uid=uid, name=job.name or uid, kind="SlurmJob", namespace=job.partition)
    return [
        Pod(
            uid=f"{uid}/{place.node}",
            name=f"{uid}-{place.node}",
            namespace=job.partition,
            node=place.node,
            phase="Running",
            labels={"user": job.user} if job.user else {},
            workloads=[workload],
            devices=[Device(kind="gpu_id", id=str(number)) for number in place.gpus],
        )
        for place in job.places
    ]


@hookimpl
def lens_collectors() -> Sequence[type[Collector]]:
    """Announce the collector."""
    return [Slurm]
