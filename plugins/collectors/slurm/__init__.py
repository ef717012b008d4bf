"""Which jobs of Slurm run where, and which GPUs they hold: what Kubernetes says of pods, for clusters without it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lens_core import Collector, Context, Device, LensError, Pod, Record, WorkloadReference, hookimpl

from .jobs import Job, jobs_of

_ARGUMENTS = ("--oneliner", "--details", "show", "jobs")
_SHOWN_ERROR = 300


class SlurmSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How Slurm is asked."""

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
        return [pod for uid, pod in self._found.items() if self._stored.get(uid) != pod]

    async def stored(self) -> None:
        """What was handed over is stored."""
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
