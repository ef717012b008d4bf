from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.collectors.slurm import Place, gpus_of, jobs_of, nodes_of

LINE = (
    "JobId={id} {array}JobName={name} UserId=ada(1000) GroupId=ada(1000) MCS_label=N/A Priority=1 "
    "JobState={state} Reason=None Requeue=1 Partition=train NodeList=gpu[01-02] BatchHost=gpu01 NumNodes=2 "
    "TRES=cpu=16,node=2,gres/gpu=6   JOB_GRES=gpu:h100:6   "
    "  Nodes=gpu01 CPU_IDs=0-7 Mem=1024 GRES=gpu:h100:4(IDX:0-3)   "
    "  Nodes=gpu02 CPU_IDs=0-7 Mem=1024 GRES=gpu:h100:2(IDX:1,3),nic:2(IDX:0-1)   Command=/run.sh StdOut=/o/%j.out"
)


def test_a_job_its_nodes_and_their_gpus() -> None:
    text = LINE.format(id=17, array="", name="llama UserId 7b", state="RUNNING")
    (job,) = jobs_of(f"\n{text}\nslurm_load_jobs error\n{LINE.format(id=18, array='', name='x', state='PENDING')}\n")
    assert (job.number, job.name, job.user, job.partition) == ("17", "llama UserId 7b", "ada", "train")
    assert job.places == [Place("gpu01", [0, 1, 2, 3]), Place("gpu02", [1, 3])]


@pytest.mark.parametrize(("array", "number"), [("16 ArrayTaskId=4 ", "16_4"), ("16 ArrayTaskId=5-9%2 ", "17")])
def test_a_task_of_an_array_is_called_as_squeue_calls_it(array: str, number: str) -> None:
    (job,) = jobs_of(LINE.format(id=17, array=f"ArrayJobId={array}", name="sweep", state="RUNNING"))
    assert job.number == number


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu[01-03,7],login", ["gpu01", "gpu02", "gpu03", "gpu7", "login"]),
        ("rack[1-2]node[09-10]", ["rack1node09", "rack1node10", "rack2node09", "rack2node10"]),
        ("a", ["a"]),
        ("(null)", []),
        ("", []),
    ],
)
def test_host_lists(text: str, names: list[str]) -> None:
    assert nodes_of(text) == names


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("gpu:2(IDX:0-1)", [0, 1]),
        ("gpu:a100:3(IDX:0,2-3)", [0, 2, 3]),
        ("gpu:a100:1(IDX:0),gpu:h100:1(IDX:4),nic:1(IDX:7)", [0, 4]),
        ("gpu:a100:0(IDX:N/A)", []),
        ("", []),
    ],
)
def test_gpus(text: str, numbers: list[int]) -> None:
    assert gpus_of(text) == numbers


@given(st.text())
def test_nothing_that_is_printed_breaks_it(text: str) -> None:
    assert list(jobs_of(f"JobId=1 {text}")) is not None
