"""Two clusters at the same NATS servers by mistake, and daemons of one cluster with different configurations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.sinks.postgresql.address import destination_of
from psycopg.conninfo import make_conninfo

from lens_core.base.errors import LensError
from lens_core.cluster.members import Likeness, Member
from lens_core.cluster.strangers import Differences
from lens_core.testing import until
from lens_core.testing.running import RunningLens
from tests.lens_core.cluster.conftest import Daemons
from tests.lens_core.cluster.test_cluster_road import row


def with_database(dsn: str) -> dict[str, Any]:
    return {"sinks": {"store": {"type": "postgresql", "dsn": dsn}}, "store": "store"}


def shared_of(lens: RunningLens) -> Mapping[str, Any]:
    assert lens.daemon.assembly is not None
    assert lens.daemon.assembly.cluster is not None
    return lens.daemon.assembly.cluster.cluster_status()


async def test_a_daemon_of_another_cluster_is_refused(daemons: Daemons, postgres_dsn: str) -> None:
    first = await daemons(with_database(postgres_dsn))
    elsewhere = make_conninfo(postgres_dsn, dbname="production", password="hunter2-hunter2")
    with pytest.raises(LensError) as refused:
        await daemons(with_database(elsewhere))
    assert "cluster.name" in str(refused.value)
    assert "/production" in str(refused.value)
    assert first.url in str(refused.value)
    assert "hunter2" not in str(refused.value)
    other_name = {**with_database(postgres_dsn), "server": {"listen": "127.0.0.1:0", "cluster_name": "b"}}
    with pytest.raises(LensError, match=r"server\.cluster_name is 'default', and this one's is 'b'"):
        await daemons(other_name)
    await first.stop()
    second = await daemons(with_database(elsewhere))  # the store has moved, and nobody works for the old one
    assert second.daemon.state == "running"


async def test_another_configuration_is_named_until_all_have_it(daemons: Daemons) -> None:
    more = {"sinks": {"latest": {"type": "prometheus"}}}
    both = [await daemons(), await daemons(more)]
    await until(lambda: all(shared_of(lens)["difference"] for lens in both), "each names the other")
    assert both[1].url in shared_of(both[0])["difference"]
    for step in range(8):
        await both[step % 2].send([row(f"job-{step}", step)])
    await until(lambda: sum(len(lens.records) for lens in both) >= 8, "they work all the same")
    await both[0].stop()
    await until(lambda: not shared_of(both[1])["difference"], "nobody differs any more")


def test_members_of_an_earlier_version_are_not_compared() -> None:
    differences = Differences(Likeness("default", "db/lens", "abc"))
    old = Member(name="lens", url="http://a", version="0.0.9", started_at=0.0)
    differences.notice_members([old])
    assert differences.text == ""


@given(st.sampled_from(["lens", "lens:pw-pw-pw"]), st.sampled_from(["db", "db:5432", "db.example:6000"]))
def test_a_destination_is_the_same_however_it_is_written(who: str, host: str) -> None:
    name, _, port = host.partition(":")
    user, _, password = who.partition(":")
    parts = {"host": name, "dbname": "lens", "user": user, **({"port": port} if port else {})}
    written = make_conninfo("", **parts, **({"password": password} if password else {}))
    assert destination_of(f"postgresql://{who}@{host}/lens?sslmode=require") == destination_of(written)
    assert "pw" not in destination_of(written)


def test_hosts_of_a_destination_have_no_order(tmp_path: Path) -> None:
    assert destination_of("host=a,b port=1,2 dbname=x") == destination_of("postgresql://b:2,a:1/x") == "a:1,b:2/x"
