"""What `scontrol --oneliner --details show jobs` prints: jobs, the nodes they have, and which GPUs of each.

The format is that of Slurm's documentation of scontrol(1); `--json` is not used, because its shape changes with
Slurm's version and many installations lack the plugin for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

# A job has nodes while it is in one of these.
_HAS_NODES = frozenset({"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT"})
# A name may hold blanks; what stands behind it is always the user.
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
    return [name for number in _numbers(found[1]) for name in _expanded(before + number + after)]


def _numbers(text: str) -> Iterator[str]:
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
    return [int(number) for found in _GPUS.finditer(devices) for number in _numbers(found[1])]
