"""What the nodes of a job ask and are answered, message by message."""

from __future__ import annotations

from typing import Any

import pytest

from lens_core import LensError
from lens_core.dlrover import Wire, dump, load
from plugins.sources.dlrover_master.jobs import Job, Jobs

TRAINING = {"rdzv_name": "elastic-training"}


def asked(job: Job, name: str, **fields: Any) -> dict[str, Any]:
    """The answer's fields, over the wire and back."""
    answer = job.answer(load(dump(Wire(name, fields))))
    assert answer is not None
    return load(dump(answer)).fields


def told(job: Job, name: str, **fields: Any) -> bool:
    return job.take(load(dump(Wire(name, fields))))


@pytest.fixture
def job() -> Job:
    made = Job()
    assert told(made, "RendezvousParams", min_nodes=2, max_nodes=2, waiting_timeout=30, node_unit=1, join_timeout=600)
    return made


def test_two_nodes_meet(job: Job) -> None:
    assert asked(job, "JoinRendezvousRequest", node_id=5, node_rank=0, local_world_size=8, **TRAINING)["round"] == 0
    assert asked(job, "CommWorldRequest", node_id=0, **TRAINING)["world"] == {}
    # Old agents name no rank: their number is it.
    asked(job, "JoinRendezvousRequest", node_id=1, node_rank=-1, local_world_size=4, **TRAINING)
    world = asked(job, "CommWorldRequest", node_id=1, **TRAINING)
    assert (world["world"], world["round"], world["group"]) == ({0: 8, 1: 4}, 1, 0)
    assert asked(job, "WaitingNodeNumRequest", **TRAINING)["waiting_num"] == 0
    assert asked(job, "WaitingNodeNumRequest", rdzv_name="network-check")["waiting_num"] == 0


def test_keys(job: Job) -> None:
    assert told(job, "KeyValuePair", key="address", value=b"10.0.0.1", op="set")
    assert told(job, "KeyValuePairs", kvs={"port": b"29500"}, op="set")
    assert asked(job, "KeyValuePair", key="address", op="get")["value"] == b"10.0.0.1"
    assert asked(job, "KeyValuePairs", kvs={"address": b"", "port": b""})["kvs"] == {
        "address": b"10.0.0.1",
        "port": b"29500",
    }
    assert [asked(job, "KeyValuePair", key="n", value=2, op="add")["value"] for _ in range(2)] == [2, 4]


def test_what_is_no_value_is_refused_and_other_messages_are_left_to_others(job: Job) -> None:
    with pytest.raises(LensError):
        told(job, "KeyValuePair", key="a", value={"b": 1})
    assert not told(job, "GlobalStep", step=1)
    assert job.answer(Wire("HeartBeat", {})) is None


def test_jobs_are_apart_and_the_one_that_is_asked_for_least_makes_room() -> None:
    jobs = Jobs()
    for name in ("one", "two"):
        told(jobs.job(name), "KeyValuePair", key="name", value=name.encode())
    for number in range(1023):
        jobs.job(str(number))
        assert asked(jobs.job("one"), "KeyValuePair", key="name")["value"] == b"one"
    assert asked(jobs.job("two"), "KeyValuePair", key="name")["value"] == b""
