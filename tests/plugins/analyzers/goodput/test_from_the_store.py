"""Ledgers out of a store: the same as out of the facts, through the daemon's routes and the command."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lens_plugins.analyzers.goodput.analyzer import Goodput, GoodputSettings
from lens_plugins.analyzers.goodput.drafts import step_in_path
from lens_plugins.analyzers.goodput.ledger import ledger_of
from lens_plugins.analyzers.goodput.row_cache import RowCache
from lens_plugins.analyzers.goodput.spans import seconds_of_span
from lens_plugins.analyzers.goodput.store_facts import facts_of
from lens_plugins.analyzers.goodput.wording import report

from lens_core import (
    BadRequest,
    Event,
    IngestRequest,
    Measurement,
    Origin,
    PodLife,
    PodSpan,
    PointColumns,
    PointQuery,
    Record,
    StepMetrics,
)
from lens_core.cli import cli
from lens_core.testing import LensFactory, MemoryStore, check_analyzer, make_context
from tests.generated import examples
from tests.plugins.analyzers.goodput.test_command import FAILED, loaded, stamped, steps
from tests.plugins.sinks.postgresql.support import Spool, running_store

BEGIN = 1_700_000_000.0
UID = "job-1"


def rows(
    first: int, last: int, begin: float, each: float, session: str, *, rank: int | None = None, run: str = "run-1"
) -> list[Record]:
    return [
        StepMetrics(
            origin=Origin(workload_uid=UID, rank=rank),
            data_source="wandb",
            row_step=step,
            values={"loss": 2.0},
            run_id=run,
            session=session,
            event_time=BEGIN + begin + index * each,
            sequence=step + 1,
        )
        for index, step in enumerate(range(first, last + 1))
    ]


def event(
    kind: str, at: float, session: str, *, run: str = "run-1", rank: int | None = None, **details: object
) -> Event:
    return Event(
        origin=Origin(workload_uid=UID, node="gpu-17", rank=rank),
        type=kind,
        run_id=run,
        session=session,
        data_source="wandb",
        event_time=BEGIN + at,
        iteration=details.pop("iteration", None),  # type: ignore[arg-type]
        details=details,
    )


def started(at: float, session: str, run: str = "run-1") -> Event:
    """A process that began at this second, and told it 20 seconds later."""
    process = {"started_at": BEGIN + at, "world_size": 8}
    return event("training_started", at + 20, session, run=run, process=process)


def example_4() -> list[Record]:
    """Worked example 4 as the hook sends it."""
    return [
        started(0, "s1"),
        *rows(1, 180, 60, 10, "s1"),
        event("training_failed", 1855, "s1", rank=3),
        started(2155, "s2"),
        event("checkpoint_loaded", 2200, "s2", iteration=100),
        *rows(101, 300, 2275, 10, "s2"),
        event("training_ended", 4265, "s2"),
    ]


async def buckets_of(store: MemoryStore) -> dict[str, float]:
    [facts] = await facts_of(store, UID)
    return {name: seconds for name, seconds in ledger_of(facts).buckets.items() if seconds}


async def test_worked_example_4_out_of_a_store(tmp_path: Path) -> None:
    [facts] = await facts_of(MemoryStore(tmp_path, example_4()), UID)
    ledger = ledger_of(facts)
    assert ledger.wall_seconds == 4265
    assert {name: seconds for name, seconds in ledger.buckets.items() if seconds} == {
        "productive": 3000,
        "startup": 160,
        "lost": 805,
        "down": 300,
    }
    [interruption] = ledger.interruptions
    assert (interruption.cause, interruption.node, interruption.rank) == ("training_failed", "gpu-17", 3)
    assert (interruption.seconds, interruption.gpu_hours) == (1215, pytest.approx(2.7))


async def test_a_restart_under_a_new_run_id_is_the_same_job_and_a_clean_end_is_not(tmp_path: Path) -> None:
    restarted = [
        *rows(1, 100, 10, 10, "a", run="first"),
        event("training_failed", 1000, "a", run="first"),
        started(1100, "b", run="second"),
        *rows(81, 200, 1200, 10, "b", run="second"),
    ]
    [facts] = await facts_of(MemoryStore(tmp_path, restarted), UID)
    assert (len(facts.attempts), ledger_of(facts).buckets["lost"]) == (2, 200)
    swept = [
        *rows(1, 100, 10, 10, "a", run="first"),
        event("training_ended", 1000, "a", run="first"),
        *rows(1, 200, 1200, 10, "b", run="second"),
    ]
    found = await facts_of(MemoryStore(tmp_path, swept), UID)
    assert [ledger_of(facts).buckets["lost"] for facts in found] == [0, 0]
    assert [facts.run for facts in found] == ["second", "first"]


def pod(*spans: tuple[float, float | None], name: str = "p-0", gpus: int | None = None) -> PodLife:
    """A pod that held GPUs in these seconds."""
    held = [
        PodSpan(round((BEGIN + begin) * 1000), None if until is None else round((BEGIN + until) * 1000), gpus)
        for begin, until in spans
    ]
    return PodLife(name, "ns", name, "gpu-17", held[0].begin, held[-1].until or held[-1].begin, held)


def preempted() -> list[Record]:
    return [
        *rows(1, 100, 10, 10, "a"),
        event("process_terminated", 1000, "a", signal="SIGTERM"),
        *rows(101, 200, 2010, 10, "b"),
        event("training_ended", 3000, "b"),
    ]


async def test_a_gap_in_which_no_pod_held_gpus_is_queued(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path, preempted())
    assert await buckets_of(store) == {"productive": 1980, "down": 1010}
    store.hold_pods(UID, [pod((0, 1030)), pod((1800, None), name="p-1")])
    assert await buckets_of(store) == {"productive": 2000, "startup": 200, "down": 30, "queued": 770}
    [facts] = await facts_of(store, UID)
    ledger = ledger_of(facts)
    assert ledger.goodput == pytest.approx(2000 / 2230)
    assert ledger.ettr == pytest.approx(2000 / 3000)
    store.hold_pods(UID, [pod((0, None))])  # a container that starts again in its pod
    assert await buckets_of(store) == {"productive": 1990, "down": 1010}


async def test_a_gap_of_which_the_store_knows_only_one_end_is_down(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path, preempted())
    store.hold_pods(UID, [pod((1800, None), name="p-1")])
    assert (await buckets_of(store)).keys() == {"productive", "startup", "down"}


async def test_gpus_are_those_of_the_rows_else_of_the_pods_else_unknown(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path, preempted())
    [facts] = await facts_of(store, UID)
    assert [attempt.gpus for attempt in facts.attempts] == [None, None]
    store.hold_pods(UID, [pod((0, 1030), gpus=8), pod((0, 1030), name="p-1", gpus=4), pod((1800, None), name="p-2")])
    [facts] = await facts_of(store, UID)
    assert [attempt.gpus for attempt in facts.attempts] == [12, None]
    sized = [
        msgspec.structs.replace(one, origin=msgspec.structs.replace(one.origin, world_size=64)) for one in preempted()
    ]
    [facts] = await facts_of(MemoryStore(tmp_path, sized), UID)
    assert [attempt.gpus for attempt in facts.attempts] == [64, 64]
    many = [one for rank in range(4) for one in rows(1, 100, 10, 10, f"s{rank}", rank=rank)]
    [facts] = await facts_of(MemoryStore(tmp_path, many), UID)
    assert facts.attempts[0].gpus == 4
    torn = [one for rank in (0, 8) for one in rows(1, 100, 10, 10, f"s{rank}", rank=rank)]
    [facts] = await facts_of(MemoryStore(tmp_path, torn), UID)
    assert facts.attempts[0].gpus is None


class CountingStore(MemoryStore):
    """Counts the points of rows that it answers."""

    answered = 0

    async def iteration_columns(self, query: PointQuery) -> AsyncIterator[PointColumns]:
        async for piece in super().iteration_columns(query):
            self.answered += len(piece)
            yield piece


async def test_only_the_news_of_a_job_is_read(tmp_path: Path) -> None:
    store, cache = CountingStore(tmp_path, example_4()), RowCache(1_000_000)
    await facts_of(store, UID, cache=cache)
    assert store.answered == 380
    await facts_of(store, UID, cache=cache)
    assert store.answered == 380
    store.hold(rows(301, 310, 4275, 10, "s2"))
    [facts] = await facts_of(store, UID, cache=cache)
    assert store.answered == 380 + 11  # the last row that was known, and ten more
    [anew] = await facts_of(store, UID)
    assert ledger_of(facts) == ledger_of(anew)


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 5000), st.sampled_from("ab")), max_size=40),
    st.lists(st.integers(0, 40), max_size=4),
    st.sampled_from([0, 16 * 10, 10**6]),
)
@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_remembered_rows_give_the_ledger_of_all_rows(
    tmp_path: Path, given_rows: list[tuple[int, int, str]], cuts: list[int], most_bytes: int
) -> None:
    """Rows in any order, late ones among them, in several deliveries with a look after each."""
    records = [one for step, at, session in given_rows for one in rows(step, step, at, 1, session)]
    store, cache = MemoryStore(tmp_path), RowCache(most_bytes)

    async def look_after_each() -> None:
        edges = [0, *sorted(cuts), len(records)]
        for begin, end in itertools.pairwise(edges):
            store.hold(records[begin:end])
            cached = await facts_of(store, UID, BEGIN + 6000, cache)
            fresh = await facts_of(store, UID, BEGIN + 6000)
            assert [ledger_of(one) for one in cached] == [ledger_of(one) for one in fresh]

    asyncio.run(look_after_each())


@pytest.mark.parametrize(
    ("path", "step"),
    [
        ("/ckpt/iter_0000100/mp_rank_00/model_optim_rng.pt", 100),
        ("out/global_step500/zero.pt", 500),
        ("runs/epoch=3-step=1200.ckpt", 1200),
        ("output/checkpoint-40", 40),
        ("./outputs/checkpoint/step-10.", 10),
        ("checkpoints/checkpoint_3_5000.pt", None),
        ("checkpoint3.pt", None),
        ("/data/model-7b.pt", None),
        ("", None),
        ("step-" + "9" * 40, None),
    ],
)
def test_the_step_of_a_resume_stands_in_the_path_of_its_checkpoint(path: str, step: int | None) -> None:
    assert step_in_path(path) == step


async def test_a_resume_whose_step_only_a_path_tells(tmp_path: Path) -> None:
    records = [
        *rows(1, 100, 10, 10, "a"),
        event("training_failed", 1000, "a"),
        event("checkpoint_loaded", 1100, "b", path="/ckpt/iter_0000050"),
        *rows(60, 100, 1200, 10, "b"),
    ]
    [facts] = await facts_of(MemoryStore(tmp_path, records), UID)
    assert facts.attempts[1].resumed_from == 50
    assert ledger_of(facts).buckets["lost"] == 500


def evaluated(*, own_rows: bool) -> list[Record]:
    """Steps of ten seconds; an evaluation of 100 behind each fiftieth, logged at its end."""
    found: list[Record] = []
    for index in range(3):
        begin = 10 + index * 600.0
        part = rows(50 * index + index * own_rows + 1, 50 * index + index * own_rows + 50, begin, 10, "a")
        last = part[-1]
        assert isinstance(last, StepMetrics)
        assert last.event_time is not None
        if own_rows:
            step, at = last.row_step + 1, last.event_time + 100
            values = {"eval/loss": 2.1}
            part.append(msgspec.structs.replace(last, row_step=step, event_time=at, values=values, sequence=step + 1))
        else:
            part[-1] = msgspec.structs.replace(last, values={"loss": 2.0, "eval/loss": 2.1})
        found += part
    return found


@pytest.mark.parametrize("own_rows", [False, True])
async def test_evaluations_that_the_hook_logs_are_evaluation(tmp_path: Path, own_rows: bool) -> None:
    buckets = await buckets_of(MemoryStore(tmp_path, evaluated(own_rows=own_rows)))
    assert buckets["evaluation"] == pytest.approx(270 if own_rows else 200, abs=1)
    assert not {"stalled", "slow", "periodic"} & buckets.keys()


async def test_restarts_of_the_launcher_are_told(tmp_path: Path) -> None:
    begun = event("training_started", 20, "s1", process={"started_at": BEGIN, "world_size": 8, "restart_count": 3})
    [facts] = await facts_of(MemoryStore(tmp_path, [begun, *rows(1, 20, 60, 10, "s1")]), UID)
    assert facts.attempts[0].restarts == 3


async def test_runs_that_overlap_are_no_attempts_of_one_another(tmp_path: Path) -> None:
    both = [*rows(1, 100, 10, 10, "a", run="actor"), *rows(1, 90, 15, 10, "b", run="critic")]
    found = await facts_of(MemoryStore(tmp_path, both), UID)
    assert [(facts.run, len(facts.attempts)) for facts in found] == [("actor", 1), ("critic", 1)]


async def test_rows_of_many_ranks_with_clocks_apart_count_once(tmp_path: Path) -> None:
    alone = await buckets_of(MemoryStore(tmp_path, rows(1, 100, 30, 10, "a", rank=0)))
    skewed = [row for rank in range(4) for row in rows(1, 100, 30 + 3.7 * rank, 10, f"a{rank}", rank=rank)]
    assert await buckets_of(MemoryStore(tmp_path, skewed)) == alone


async def test_rows_in_any_order_twice_and_late_change_nothing(tmp_path: Path) -> None:
    records = example_4()
    store = MemoryStore(tmp_path, [*records[::-1]])
    # Sessions are numbered as they come; a store that numbers them otherwise has the same times.
    [facts] = await facts_of(store, UID)
    assert ledger_of(facts).buckets["productive"] == 3000


async def test_without_a_world_size_gpus_are_unknown(tmp_path: Path) -> None:
    [facts] = await facts_of(MemoryStore(tmp_path, rows(1, 100, 30, 10, "a")), UID)
    ledger = ledger_of(facts)
    assert ledger.gpu_seconds is None
    assert any(note.startswith("gpus: unknown") for note in ledger.notes)


async def test_a_job_is_running_while_its_rows_are_fresh(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path, rows(1, 100, 0, 10, "a"))
    [facts] = await facts_of(store, UID, now=BEGIN + 1000)
    assert facts.now == BEGIN + 1000
    [facts] = await facts_of(store, UID, now=BEGIN + 30 * 86400)
    assert facts.now is None
    store.hold([event("stalled", 1600, "a")])
    [facts] = await facts_of(store, UID, now=BEGIN + 2 * 86400)
    assert ledger_of(facts).buckets["stalled"] == pytest.approx(2 * 86400 - 990 - 10, abs=11)


async def test_the_analyzer_keeps_the_contract(tmp_path: Path) -> None:
    analyzer = Goodput(
        GoodputSettings(longest_rest_seconds=0.0, recent_seconds=1e12), make_context("goodput", tmp_path / "plugin")
    )
    await check_analyzer(analyzer, MemoryStore(tmp_path, example_4()), expects=8)


async def test_series_are_those_of_the_ledger(tmp_path: Path) -> None:
    analyzer = Goodput(GoodputSettings(recent_seconds=1e12), make_context("goodput", tmp_path / "plugin"))
    analyzer.store = MemoryStore(tmp_path, example_4())
    await analyzer.start()
    found = await analyzer.analyze([UID])
    await analyzer.stop()
    series = {(one.name, *one.tags.values()): one.value for one in found if isinstance(one, Measurement)}
    assert series["lens_job_seconds_total", "lost"] == 805
    assert series["lens_job_gpu_seconds_total", "down"] == 2400
    assert series["lens_job_goodput_ratio", "all"] == pytest.approx(3000 / 4265)
    assert series["lens_job_interruptions_total", "training_failed"] == 1
    assert series["lens_job_step_seconds", "best"] == 10


async def test_jobs_of_long_ago_are_booked_without_series(tmp_path: Path) -> None:
    analyzer = Goodput(GoodputSettings(), make_context("goodput", tmp_path / "plugin"))
    analyzer.store = MemoryStore(tmp_path, example_4())
    await analyzer.start()
    assert not await analyzer.analyze([UID])
    [route] = [route for route in analyzer.routes() if route.paths == ["/goodput"]]
    query = {"since": str(round(BEGIN * 1000) - 1000), "by": "node"}
    request = IngestRequest(body=b"", path="/goodput", method="GET", headers={}, query=query)
    assert (await route.handler(request)).body["jobs"] == 1
    await analyzer.stop()


async def test_the_same_out_of_postgresql(tmp_path: Path, postgres_dsn: str) -> None:
    async with running_store(tmp_path, postgres_dsn) as store:
        await Spool(store).deliver(*example_4())
        changed, _ = await store.changed_workloads("")
        assert changed == [UID]
        [facts] = await facts_of(store, UID)
        assert ledger_of(facts).buckets["lost"] == 805
        skewed = [row for rank in range(3) for row in rows(1, 100, 30 + 3.7 * rank, 10, f"r{rank}", rank=rank, run="r")]
        await Spool(store, "other").deliver(*skewed)
        found = await facts_of(store, UID)
        [many] = [facts for facts in found if facts.run == "r"]
        assert [len(columns.steps) for columns in many.attempts[0].columns] == [100]


async def test_waits_for_data_and_the_batch_size_out_of_postgresql(tmp_path: Path, postgres_dsn: str) -> None:
    """Example: a pause of 40 s of which 35 were waiting for data, and batches that double."""

    def waiting(first: int, begin: float, each: float, session: str, batch: float) -> list[Record]:
        return [
            StepMetrics(
                origin=Origin(workload_uid=UID),
                data_source="log",
                row_step=step,
                values={"data_loading_time_ms": 36_000.0 if step == 51 else 1000.0, "global_batch_size": batch},
                session=session,
                event_time=BEGIN + begin + (step - first) * each + 40.0 * (step > 50),
            )
            for step in range(first, first + 100)
        ]

    records = [*waiting(1, 10, 10, "a", 512.0), *waiting(101, 2000, 20, "b", 1024.0)]
    records += waiting(201, 4020, 40, "b", 2048.0)
    async with running_store(tmp_path, postgres_dsn) as store:
        await Spool(store).deliver(*records)
        [facts] = await facts_of(store, UID)
    assert [attempt.configuration for attempt in facts.attempts] == ["512", "2048"]
    assert facts.attempts[1].configurations == [(101, "1024"), (201, "2048")]
    buckets = ledger_of(facts).buckets
    assert (buckets["data"], buckets["slow"]) == (
        35,
        5,
    )  # and nothing of the second attempt is slow: its batches are larger


async def answers_of(lens: LensFactory, dsn: str, records: Sequence[Record]) -> tuple[str, dict[str, Any]]:
    config = {
        "sinks": {"store": {"type": "postgresql", "dsn": dsn}},
        "analyzers": {"goodput": {"interval_seconds": 0.2, "longest_rest_seconds": 0, "recent_seconds": 1e12}},
    }
    running = await lens(config=config)
    await running.send(records)
    await running.wait_for_records(8, Measurement)
    return running.url, await running.get_json(f"/workloads/{UID}/goodput")


async def test_routes_and_the_command_answer_from_a_daemon(
    lens: LensFactory, postgres_dsn: str, tmp_path: Path
) -> None:
    url, answer = await answers_of(lens, postgres_dsn, example_4())
    (run,) = answer["runs"]
    assert run["buckets"]["productive"] == 3000
    assert run["goodput"] == 0.7034
    assert run["interruptions"] == [
        {"cause": "training_failed", "node": "gpu-17", "rank": 3, "seconds": 1215, "gpu_hours": pytest.approx(2.7)}
    ]
    assert run["sentence"].startswith("70.3% of 9.5 GPU-hours (1 h 11 min) made progress")
    assert [attempt["ended"] for attempt in run["attempts"]] == ["training_failed", "cleanly"]
    assert sum(run["timeline"]["buckets"]["lost"]) == pytest.approx(805, abs=0.2)

    import asyncio

    def run_command(*arguments: str) -> str:
        result = CliRunner().invoke(cli, ["goodput", *arguments, "--url", url])
        assert result.exit_code == 0, result.output
        return result.output

    assert json.loads(await asyncio.to_thread(run_command, UID, "--json"))["runs"][0]["run"] == "run-1"
    lines = [(0, "launching"), *steps(1, 180, 60, 10), (1855, FAILED), (2155, "launching")]
    lines += [(2200, loaded(100)), *steps(101, 300, 2275, 10)]
    log = tmp_path / "train.log"
    log.write_text(stamped(lines))
    result = CliRunner().invoke(cli, ["goodput", "--file", str(log), "--json"])
    (of_file,) = json.loads(result.output)["runs"]
    assert of_file["buckets"] == run["buckets"]
    assert of_file["interruptions"][0].keys() == run["interruptions"][0].keys()
    assert {name for name in of_file if type(of_file[name]) is not type(run.get(name))} == set()
    text = await asyncio.to_thread(run_command, UID)
    assert "training_failed" in text
    assert "2.70" in text
    old = str(round(BEGIN * 1000) - 1000)
    fleet = json.loads(await asyncio.to_thread(run_command, "--since", old, "--by", "node", "--json"))
    assert fleet["jobs"] == 1
    assert fleet["buckets"]["lost"] == pytest.approx(805)
    assert fleet["groups"][0]["name"] == "gpu-17"
    assert "wandb" not in await asyncio.to_thread(run_command, "--since", old, "--by", "name")
    assert "no job has a ledger" in await asyncio.to_thread(run_command, "--since", "1d")


def test_spans_are_read_and_nonsense_is_refused() -> None:
    assert seconds_of_span("7d") == 7 * 86400
    assert seconds_of_span("90m") == 5400
    assert seconds_of_span(str(round(time.time() * 1000) - 60_000)) == pytest.approx(60, abs=2)
    for text in ("", "yesterday", "7", "-1d", "1e9d", "7 d", "٧d"):
        with pytest.raises(BadRequest, match="since is"):
            seconds_of_span(text)


def test_options_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("x\n")
    for arguments in (["job", "--file", str(log)], ["job", "--by", "node"], ["--times", str(log)]):
        result = CliRunner().invoke(cli, ["goodput", *arguments])
        assert result.exit_code == 2, result.output


@pytest.mark.parametrize(("paces", "effective"), [([10, 5, 10, 10], 0.5), ([10, 20, 20, 20], 1.0), ([10, 5, 5], None)])
async def test_the_effective_goodput_is_that_at_the_pace_of_the_fastest_sibling(
    tmp_path: Path, paces: list[int], effective: float | None
) -> None:
    """Each number is the seconds per step of a job; the first is the one that is asked about."""
    records = [
        msgspec.structs.replace(row, origin=Origin(workload_uid=f"llama-run{number}"))
        for number, each in enumerate(paces)
        for row in rows(1, 100, each, each, "s")
    ]
    analyzer = Goodput(GoodputSettings(), make_context("goodput", tmp_path / "plugin"))
    analyzer.store = MemoryStore(tmp_path, records)
    [route] = [route for route in analyzer.routes() if route.paths != ["/goodput"]]
    parameters = {"uid": "llama-run0"}
    request = IngestRequest(body=b"", path="/", method="GET", headers={}, query={}, path_parameters=parameters)
    answer = (await route.handler(request)).body
    assert isinstance(answer, dict)
    [run] = answer["runs"]
    assert run["goodput"] == 1
    assert run["effective_goodput"] == effective
    assert ("the fastest job like this one" in report(run)) == (effective is not None)


async def test_money_stands_beside_gpu_hours_only_where_a_price_is_given(tmp_path: Path) -> None:
    price = 2.5
    answers = {}
    for given_price in (None, price):
        analyzer = Goodput(GoodputSettings(price_per_gpu_hour=given_price), make_context("goodput", tmp_path))
        analyzer.store = MemoryStore(tmp_path / "store", example_4())
        await analyzer.start()
        await analyzer.analyze([UID])
        routes = {route.paths[0]: route.handler for route in analyzer.routes()}

        async def ask(path: str, query: dict[str, str], routes: dict[str, Any] = routes) -> dict[str, Any]:
            request = IngestRequest(
                body=b"", path="/", method="GET", headers={}, query=query, path_parameters={"uid": UID}
            )
            body = (await routes[path](request)).body
            assert isinstance(body, dict)
            return body

        [run] = (await ask("/workloads/{uid:path}/goodput", {}))["runs"]
        answers[given_price] = (run, await ask("/goodput", {"since": str(round(BEGIN * 1000))}))
        await analyzer.stop()
    for plain, priced in zip(answers[None], answers[price], strict=True):
        assert "price_per_gpu_hour" not in plain
        assert priced["price_per_gpu_hour"] == price
        assert sum(priced["costs"].values()) == pytest.approx(
            sum(plain["gpu_seconds"].values()) / 3600 * price, abs=0.1
        )
        [one] = priced["interruptions"]
        assert one["cost"] == pytest.approx(2.7 * price)
        assert {name: value for name, value in one.items() if name != "cost"} == plain["interruptions"][0]
    assert "6.75" in report(answers[price][0])
    assert "PRICE" not in report(answers[None][0])


def test_without_gpu_hours_a_price_makes_no_money(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(stamped([*steps(1, 50, 10, 10), (520, FAILED), *steps(41, 90, 800, 10)]))
    asked = ["goodput", "--file", str(log), "--price-per-gpu-hour", "3"]
    [run] = json.loads(CliRunner().invoke(cli, [*asked, "--json"]).stdout)["runs"]
    assert [one["cost"] for one in run["interruptions"]] == [None]
    assert "costs" not in run
    assert "PRICE" in CliRunner().invoke(cli, asked).stdout
