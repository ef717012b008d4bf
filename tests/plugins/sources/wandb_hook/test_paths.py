"""Every way to log, in every wandb version, held against wandb's own file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.plugins.sources.wandb_hook import wandb_file
from tests.plugins.sources.wandb_hook.environments import Environment
from tests.plugins.sources.wandb_hook.receiver import Receiver

EVERY_PATH = """
    import importlib.util, threading
    importlib.util.find_spec("wandb")          # somebody only asks whether wandb is there
    import numpy as np
    import wandb

    assert wandb._primus_lens_patched is True
    run = wandb.init(project="paths", config={"lr": 0.1})
    wandb.log({"loss": 0.5, "text": "not a metric", "nothing": None})
    run.log({"loss": 0.25})
    wandb.run.log({"loss": 0.125, "flag": True})
    kept = wandb.log
    kept({"kept": 1})
    wandb.log({"a": 1}, commit=False)
    wandb.log({"b": 2}, commit=False)
    wandb.log({"c": 3})                          # a, b and c are one row
    wandb.log({"explicit": 1.5}, step=20)
    wandb.log({"same step": 2.5}, step=20)
    wandb.log({"committed": 1}, step=22, commit=True)
    wandb.log({"implicit": 1})                   # 23
    wandb.log({"numpy32": np.float32(0.5), "numpy64": np.float64(0.25), "int64": np.int64(7), "bool_": np.bool_(True)})
    wandb.log({"zero-d": np.array(2.0), "one": np.array([3.0]), "many": np.arange(3)})
    wandb.log({"nested": {"x": 1, "deep": {"y": 2.0, "s": "text"}}})
    wandb.log({"nan": float("nan"), "inf": float("inf"), "minus": float("-inf")})
    wandb.log({"train/loss,total": 1, "val.acc": 2, "verlust-ß-损失": 3, "with space": 4})
    wandb.log({"page": wandb.Html("<p>x</p>"), "histogram": wandb.Histogram([1, 2, 3])})
    wandb.log({f"m{i}": i for i in range(10_000)})
    run._log({"private": 1})
    wandb.finish()

    with wandb.init(project="paths") as second:
        second.log({"in with": 1})
        wandb.log({"in with, globally": 2})

    third = wandb.init(project="paths")
    third.log({"third": 1})
    for wrong in ({1: 2}, "no mapping"):
        try:
            third.log(wrong)
        except Exception:
            pass
    third.log({"after an error": 1})
    third.log({"no finish": 1})
"""


def test_every_path_gives_what_wandb_recorded(each_wandb: Environment, receiver: Receiver, tmp_path: Path) -> None:
    done = each_wandb.run(EVERY_PATH, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url})
    assert "lens-hook" not in done.stderr
    files = wandb_file.by_run(tmp_path)
    assert len(files) == 3
    for run_id, path in files.items():
        seen = [
            (row["row_step"], name, value)
            for row in receiver.rows()
            if row["run_id"] == run_id
            for name, value in row["values"].items()
        ]
        assert Counter(seen) == Counter(wandb_file.points(path))


def test_sequences_rise_and_sessions_differ(newest: Environment, receiver: Receiver, tmp_path: Path) -> None:
    script = """
        import wandb
        for _ in range(2):
            run = wandb.init(project="p", id="same", reinit=True)
            for _ in range(50):
                run.log({"loss": 1.0})
            run.finish()
    """
    newest.run(script, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url})
    rows = receiver.rows()
    sequences = [row["sequence"] for row in rows]
    assert sequences == sorted(set(sequences))
    assert len(sequences) == 100
    assert {row["run_id"] for row in rows} == {"same"}
    assert len({row["session"] for row in rows}) == 2


def test_backward_steps_are_kept_and_marked(each_wandb: Environment, receiver: Receiver, tmp_path: Path) -> None:
    script = """
        import wandb
        wandb.init(project="p")
        wandb.log({"loss": 1.0}, step=10)
        wandb.log({"late": 2.0}, step=4)
        wandb.log({"loss": 3.0}, step=11)
    """
    each_wandb.run(script, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url})
    rows = {row["row_step"]: row for row in receiver.rows()}
    assert sorted(rows) == [4, 10, 11]
    assert rows[4]["tags"] == {"late": {"wandb": "dropped"}}
    assert "tags" not in rows[11]


ANY_STEPS = """
    import random
    import wandb
    dice = random.Random(7)
    run = wandb.init(project="p", id="as-in-the-issue")
    run.log({"a": 1}); run.log({"a": 2}); run.log({"b": 1}, step=0, commit=True); run.log({"a": 3})
    run.finish()
    for number in range(6):
        run = wandb.init(project="p", id=f"run-{number}")
        for call in range(60):
            step = dice.choice([None, None, None, dice.randrange(40), dice.randrange(90)])
            run.log({f"m{call}": call}, step=step, commit=dice.choice([None, None, True, False]))
        run.finish()
"""


def test_the_stored_step_is_wandbs_own(each_wandb: Environment, receiver: Receiver, tmp_path: Path) -> None:
    """Calls of every kind in any order, rows among them that wandb drops."""
    each_wandb.run(ANY_STEPS, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url})
    for run_id, path in wandb_file.by_run(tmp_path).items():
        rows = [row for row in receiver.rows() if row["run_id"] == run_id]
        kept = [row for row in rows if "tags" not in row]
        seen = [(row["row_step"], name, value) for row in kept for name, value in row["values"].items()]
        assert Counter(seen) == Counter(wandb_file.points(path))
        assert len(kept) < len(rows), "some were dropped"


def test_the_iteration_is_the_axis_that_a_row_carries(
    each_wandb: Environment, receiver: Receiver, tmp_path: Path
) -> None:
    script = """
        import wandb
        run = wandb.init(project="p")
        run.define_metric("eval/*", step_metric="eval/round")
        run.log({"eval/acc": 0.5, "eval/round": 7})
        run.log({"train/loss": 0.5, "train/global_step": 300})
        run.log({"loss": 1.0, "trainer/global_step": 40.0})
        run.log({"loss": 1.0})
        run.log({"eval/acc": 0.5, "eval/round": 7.5})
    """
    each_wandb.run(script, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url})
    rows = receiver.rows()
    assert [(row["row_step"], row["iteration"]) for row in rows] == [(0, 7), (1, 300), (2, 40), (3, 3), (4, 4)]


CARRIED = """
    import numpy as np
    import wandb
    run = wandb.init(project="p")
    run.define_metric("val/*", step_metric="epoch")
    run.define_metric("exact", step_metric="exact_step", step_sync=False)
    run.log({"epoch": 3})
    run.log({"val/loss": 0.5})
    run.log({"other": 1})
    run.log({"exact_step": 5})
    run.log({"exact": 1})
    run.log({"epoch": 4}, commit=False)
    run.log({"val/acc": 0.75})
    run.log({"val/acc": 0.5}, step=2)       # dropped
    run.log({"epoch": 9, "val/acc": 0.875, "train": 1})
    run.log({"k" * 5000: 1})
    run.log({"wide": np.longdouble("0.5")})
    run.finish()
"""


def test_the_axis_that_wandb_carries_on_is_in_the_row(
    each_wandb: Environment, receiver: Receiver, tmp_path: Path
) -> None:
    done = each_wandb.run(CARRIED, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url})
    (path,) = wandb_file.by_run(tmp_path).values()
    kept = [row for row in receiver.rows() if "tags" not in row]
    seen = [(row["row_step"], name[:900], value) for row in kept for name, value in row["values"].items()]
    assert Counter(seen) == Counter((step, name[:900], value) for step, name, value in wandb_file.points(path))
    found = {(name[:5], row["iteration"]) for row in kept for name in row["values"] if name[:4] in ("val/", "trai")}
    assert found == {("val/l", 3), ("val/a", 4), ("val/a", 9), ("train", 6)}
    long = [name for row in kept for name in row["values"] if name.startswith("kkk")]
    assert [len(name.encode()) for name in long] == [1021]
    assert done.stderr.count("a metric's name of 5000 bytes is cut") == 1


def test_what_is_set_on_the_summary_arrives(each_wandb: Environment, receiver: Receiver, tmp_path: Path) -> None:
    script = """
        import wandb
        run = wandb.init(project="p")
        run.summary["parameters"] = 124
        for step in range(3):
            run.log({"loss": 1.0 / (step + 1)})
        run.summary["best"] = 0.9
        run.summary["test"] = {"acc": 0.5, "deep": {"f1": 0.25}, "text": "no number"}
        wandb.summary.update({"updated": 3})
        run.summary["loss"] = 0.125        # of a curve: its points stay what they are
        run.finish()
    """
    each_wandb.run(script, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url})
    summary = [row for row in receiver.rows() if "tags" in row]
    assert {(row["row_step"], name, value) for row in summary for name, value in row["values"].items()} == {
        (0, "parameters", 124),
        (2, "best", 0.9),
        (2, "test.acc", 0.5),
        (2, "test.deep.f1", 0.25),
        (2, "updated", 3),
        (2, "summary/loss", 0.125),
    }
    assert all(row["tags"] == {name: {"wandb": "summary"} for name in row["values"]} for row in summary)
    curve = [row for row in receiver.rows() if "tags" not in row]
    assert [row["values"] for row in curve] == [{"loss": 1.0 / (step + 1)} for step in range(3)]


def test_one_call_per_scalar_is_one_row(each_wandb: Environment, receiver: Receiver, tmp_path: Path) -> None:
    script = """
        import wandb
        wandb.init(project="p")
        for iteration in range(1, 21):
            for index in range(30):
                wandb.log({f"metric-{index}": iteration + index / 100}, iteration)
    """
    variables = {"PRIMUS_LENS_API_BASE_URL": receiver.url, "PRIMUS_LENS_FLUSH_INTERVAL_SECONDS": "5"}
    each_wandb.run(script, tmp_path, variables)
    rows = receiver.rows()
    assert [row["iteration"] for row in rows] == list(range(1, 21))
    assert all(len(row["values"]) == 30 for row in rows)


def test_threads_lose_no_row_and_share_no_step(each_wandb: Environment, receiver: Receiver, tmp_path: Path) -> None:
    script = """
        import threading
        import wandb
        run = wandb.init(project="p")
        def work(number):
            for index in range(20):
                run.log({f"t{number}": index})
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    """
    each_wandb.run(script, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url})
    expected = {(f"t{number}", index) for number in range(4) for index in range(20)}
    assert {(name, value) for _, name, value in receiver.points()} == expected
    steps = [row["row_step"] for row in receiver.rows()]
    assert len(set(steps)) == len(steps)


def test_disabled_wandb_still_reports(each_wandb: Environment, receiver: Receiver, tmp_path: Path) -> None:
    script = """
        import wandb
        run = wandb.init(project="p", config={"lr": 1})
        wandb.log({"loss": 0.5})
        run.log({"loss": 0.25})
        wandb.log({"a": 1}, commit=False)
        run.log({"b": 2}, step=9)
        run.log({7: 3, ("a", "b"): 4})
        wandb.finish()
    """
    each_wandb.run(script, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url, "WANDB_MODE": "disabled"})
    seen = [(0, "loss", 0.5), (1, "loss", 0.25), (2, "a", 1), (9, "b", 2), (9, "7", 3), (9, "('a', 'b')", 4)]
    assert receiver.points() == seen
    assert receiver.records("evidence")[0]["facts"]["wandb"]["config"] == {"lr": 1}


def test_an_offline_run_that_is_resumed_by_its_id(each_wandb: Environment, receiver: Receiver, tmp_path: Path) -> None:
    script = """
        import wandb
        run = wandb.init(project="p", id="again", resume="allow")
        for step in range(3):
            run.log({"loss": step})
    """
    for _ in range(2):
        each_wandb.run(script, tmp_path, {"PRIMUS_LENS_API_BASE_URL": receiver.url})
    by_session: dict[str, list[int]] = {}
    for row in receiver.rows():
        assert row["run_id"] == "again"
        by_session.setdefault(row["session"], []).append(row["row_step"])
    # Offline nobody knows where the first part ended, so wandb counts from 0 again: a second attempt of one run.
    assert list(by_session.values()) == [[0, 1, 2], [0, 1, 2]]
