"""Runs that are online: resumed from where the server knows they ended, and shared by several processes."""

from __future__ import annotations

from pathlib import Path

from tests.plugins.sources.wandb_hook.environments import Environment
from tests.plugins.sources.wandb_hook.receiver import Receiver
from tests.plugins.sources.wandb_hook.wandb_server import serving


def test_a_run_that_the_server_resumes_goes_on_counting(
    each_wandb: Environment, receiver: Receiver, tmp_path: Path
) -> None:
    script = """
        import wandb
        run = wandb.init(project="p", id="again", resume="must")
        run.log({"loss": 1})
        run.log({"loss": 2})
        run.log({"other": 3}, step=50)
        run.log({"loss": 4})
        run.finish()
    """
    with serving(last_step=39) as server:
        each_wandb.run(script, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url, **server.variables})
    assert receiver.points() == [(40, "loss", 1), (41, "loss", 2), (50, "other", 3), (50, "loss", 4)]


def test_processes_that_share_a_run_count_for_themselves(
    newest: Environment, receiver: Receiver, tmp_path: Path
) -> None:
    script = """
        import multiprocessing, os
        import wandb

        def work(rank):
            os.environ["RANK"] = str(rank)
            settings = wandb.Settings(mode="shared", x_label=f"rank-{rank}", x_primary=rank == 0)
            run = wandb.init(project="p", id="one-run", settings=settings)
            for step in range(3):
                run.log({"loss": rank})
            run.finish()

        if __name__ == "__main__":
            context = multiprocessing.get_context("spawn")
            ranks = [context.Process(target=work, args=(rank,)) for rank in range(2)]
            [process.start() for process in ranks]
            [process.join() for process in ranks]
            assert [process.exitcode for process in ranks] == [0, 0]
    """
    with serving() as server:
        newest.run(script, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url, **server.variables})
    seen = sorted((row["origin"]["rank"], row["row_step"], row["values"]["loss"]) for row in receiver.rows())
    assert seen == [(rank, step, rank) for rank in range(2) for step in range(3)]
    assert {row["run_id"] for row in receiver.rows()} == {"one-run"}
    assert len({row["session"] for row in receiver.rows()}) == 2
