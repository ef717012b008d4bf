"""A plugin's sys.exit ends its own call or task, and nothing else."""

from __future__ import annotations

import asyncio
import sys

import pytest
import uvloop

from lens_core import LensError
from lens_core.base.exits import run_until_complete, without_exit


async def leave(code: int | str) -> None:
    await asyncio.sleep(0)
    sys.exit(code)


async def test_an_exit_is_an_error_of_its_call() -> None:
    with pytest.raises(LensError, match=r"called sys\.exit\(4\)"):
        await without_exit(leave(4))


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_task_that_exits_ends_alone(new_loop: object, caplog: pytest.LogCaptureFixture) -> None:
    done: list[int] = []

    async def main() -> str:
        first = asyncio.ensure_future(leave(7))
        for number in range(3):
            await asyncio.sleep(0.01)
            done.append(number)
        second = asyncio.ensure_future(leave("again"))
        found = await asyncio.gather(first, second, return_exceptions=True)
        assert [type(one) for one in found] == [SystemExit, SystemExit]
        return "the end"

    assert callable(new_loop)
    assert run_until_complete(new_loop(), main()) == "the end"
    assert done == [0, 1, 2]
    assert [record.getMessage().split(" and ended")[0] for record in caplog.records] == [
        "A task called sys.exit(7)",
        "A task called sys.exit('again')",
    ]


def test_what_is_left_is_cancelled_at_the_end() -> None:
    seen: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cancelled")

    async def main() -> None:
        seen.append("main")
        asyncio.get_running_loop().call_soon(lambda: None)
        seen.append(str(asyncio.ensure_future(waits()) is not None))
        await asyncio.sleep(0)

    run_until_complete(asyncio.new_event_loop(), main())
    assert seen == ["main", "True", "cancelled"]


def test_the_exit_of_the_main_task_is_everybodys() -> None:
    with pytest.raises(SystemExit):
        run_until_complete(asyncio.new_event_loop(), leave(3))
