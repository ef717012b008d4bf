"""The processes of a machine that belong to the caller's job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from lens_plugins.collectors.diagnosis.processes import find_ranks

_WAIT = "import sys; print('here', flush=True); sys.stdin.read()"
# Asks from a process of its own, so that the processes of this test are no children of the caller.
_ASK = """
import json, os
from lens_plugins.collectors.diagnosis.processes import find_ranks
print(json.dumps([[rank.pid, rank.rank] for rank in find_ranks(os.environ)] + [os.getpid()]))
"""
JOBLESS = {name: value for name, value in os.environ.items() if name not in ("RANK", "LOCAL_RANK", "MASTER_ADDR")}


@contextmanager
def waiting(environment: dict[str, str], *, user: int | None = None, session: bool = False) -> Iterator[int]:
    """A process that waits; its pid."""
    # A user's own Python may be where other users may not look.
    command = [sys.executable if user is None else "/usr/bin/python3", "-c", _WAIT]
    with subprocess.Popen(
        command,
        env={**JOBLESS, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=session,
        user=user,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid


def ask(environment: dict[str, str]) -> tuple[list[int], int]:
    """The pids that a caller with this environment finds, and its own."""
    done = subprocess.run(
        [sys.executable, "-c", _ASK], env={**JOBLESS, **environment}, capture_output=True, text=True, check=True
    )
    *found, own = json.loads(done.stdout)
    return [pid for pid, _ in found], own


def test_without_ranks_the_training_is_the_process_itself() -> None:
    found, own = ask({})
    assert found == [own]


@pytest.mark.parametrize("job", [{}, {"TORCHELASTIC_RUN_ID": "none"}, {"MASTER_ADDR": "127.0.0.1"}])
def test_ranks_of_another_session_are_never_seen(job: dict[str, str]) -> None:
    with waiting({"RANK": "0", **job}, session=True) as stranger:
        found, own = ask(job)
        assert found == [own]
        found, _ = ask({"RANK": "1", **job})
        assert stranger not in found


@pytest.mark.skipif(
    os.geteuid() != 0 or not os.access("/usr/bin/python3", os.X_OK),
    reason="does not apply: only root can start processes of other users",
)
def test_processes_of_another_user_are_never_seen() -> None:
    job = {"WORKLOAD_UID": "job-1"}
    with waiting({"RANK": "0", **job}, user=65534) as stranger:
        found, _ = ask({"RANK": "1", **job})
        assert stranger not in found


def test_ranks_of_the_same_job_are_seen_in_other_sessions() -> None:
    job = {"WORKLOAD_UID": "job-1"}
    with waiting({"RANK": "0", **job}, session=True) as rank, waiting({"RANK": "0", "WORKLOAD_UID": "other"}) as other:
        found, _ = ask({"RANK": "1", **job})
        assert rank in found
        assert other not in found


def test_ranks_of_the_own_session_are_seen() -> None:
    with waiting({"RANK": "0"}) as rank:
        assert rank in ask({"RANK": "1"})[0]
        assert rank in {found.pid for found in find_ranks()}
