"""Pods, tokens and logins that one daemon learns are known to all."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from lens_core import Origin, Pod, StepMetrics
from lens_core.cli import cli
from lens_core.cluster.shared_files import _merge_changes
from lens_core.testing import until
from lens_core.testing.running import RunningLens
from tests.lens_core.cluster.conftest import Daemons
from tests.waiting import until_answer

POD = Pod(uid="pod-1", name="trainer-0", namespace="team", node="n1")


async def run_command(lens: RunningLens, *arguments: str) -> str:
    data_dir = str(lens.daemon.config.data_dir)
    done = await asyncio.to_thread(CliRunner().invoke, cli, [*arguments, "--data-dir", data_dir])
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


def role_at(lens: RunningLens, token: str) -> str | None:
    return lens.daemon._tokens.role_of(token)


async def test_a_pod_that_one_daemon_was_told_of_completes_rows_at_the_other(daemons: Daemons) -> None:
    both = [await daemons(), await daemons()]
    await both[0].send([POD])
    await until(lambda: bool(both[1].daemon.directory.pods()), "the other knows the pod")
    named = Origin(pod_name="trainer-0", namespace="team")
    for step, lens in enumerate(both):
        row = StepMetrics(origin=named, data_source="w", row_step=step, sequence=step + 1, values={"x": 1.0})
        await lens.send([row])

    def rows() -> list[StepMetrics]:
        return [one for lens in both for one in lens.records if isinstance(one, StepMetrics)]

    await until(lambda: len(rows()) == 2, "both rows")
    assert {one.origin.pod_uid for one in rows()} == {"pod-1"}
    late = await daemons()
    assert [pod.uid for pod in late.daemon.directory.pods()] == ["pod-1"], "known before it owns anything"
    both[0].daemon.directory.forget(["pod-1"])
    both[0].daemon.directory.replace([], "records")
    await until(lambda: not late.daemon.directory.pods("records"), "the pod is forgotten everywhere")


async def test_a_token_holds_at_all_daemons_and_so_does_its_revocation(daemons: Daemons) -> None:
    both = [await daemons(), await daemons()]
    token = await run_command(both[0], "token", "create", "--role", "read", "alice")
    await until(lambda: role_at(both[1], token) == "read", "the other knows the token")
    other = await run_command(both[1], "token", "create", "--role", "admin", "bob")
    await until(lambda: role_at(both[0], other) == "admin", "the second token, too")
    await run_command(both[1], "token", "revoke", "alice")
    await until(lambda: role_at(both[0], token) is None, "it is revoked everywhere")
    assert role_at(both[0], other) == role_at(both[1], other) == "admin"


async def test_a_login_at_one_daemon_is_one_at_the_other(daemons: Daemons) -> None:
    both = [await daemons(), await daemons()]
    token = await run_command(both[0], "token", "create", "--role", "read", "alice")
    await until(lambda: role_at(both[1], token) == "read", "the other knows the token")
    async with httpx.AsyncClient(timeout=30) as client:
        answer = await client.post(
            f"{both[0].url}/login", data={"token": token}, headers={"Origin": both[0].url}, follow_redirects=False
        )
        assert answer.status_code == 303, answer.text
        cookie = answer.headers["set-cookie"].partition(";")[0]

        async def is_logged_in() -> bool:
            session = await client.get(f"{both[1].url}/api/v1/session", headers={"Cookie": cookie})
            return session.status_code == 200 and "read" in session.text

        await until_answer(is_logged_in, bool)


changes = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3))


@given(base=changes, local=changes, remote=changes)
def test_changes_of_both_sides_are_kept(base: dict[str, Any], local: dict[str, Any], remote: dict[str, Any]) -> None:
    merged = _merge_changes(base, local, remote)
    for name in {*base, *local, *remote}:
        if local.get(name) != base.get(name) and name in local:
            assert merged[name] == local[name], "changed or added here"
        elif name in base and name not in local:
            assert name not in merged, "removed here"
        else:
            assert merged.get(name) == remote.get(name), "as the others have it"


def test_a_token_that_was_revoked_while_no_daemon_ran_stays_revoked(tmp_path: Path) -> None:
    token = {"name": "alice"}
    assert _merge_changes({"alice": token}, {}, {"alice": token}) == {}
