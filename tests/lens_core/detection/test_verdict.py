from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from lens_core import Detection
from lens_core.detection.verdict import Relations, fuse

RELATIONS = Relations(
    {"primus": frozenset({"megatron"}), "megatron_deepspeed": frozenset({"megatron", "deepspeed"})},
    frozenset({"transformers", "transformers_trainer"}),
)


def says(source: str, framework: str, confidence: float, layer: str = "base", method: str = "env_vars") -> Detection:
    return Detection(source=source, framework=framework, layer=layer, confidence=confidence, method=method)


def test_nothing_known_is_unknown() -> None:
    verdict = fuse([])
    assert (verdict.status, verdict.framework, verdict.confidence) == ("unknown", "", 0.0)


def test_one_sure_source_confirms_and_two_verify() -> None:
    one = fuse([says("wandb", "megatron", 0.9)])
    two = fuse([says("wandb", "megatron", 0.9), says("log", "megatron", 0.6)])
    assert (one.status, one.confidence) == ("confirmed", 0.9)
    assert (two.status, two.confidence, two.sources) == ("verified", 1.0, ["log", "wandb"])


def test_statuses_follow_the_confidence() -> None:
    assert fuse([says("wandb", "jax", 0.5)]).status == "suspected"
    assert fuse([says("image", "jax", 0.2)]).status == "unknown"


def test_wrapper_and_base_are_no_conflict() -> None:
    verdict = fuse([says("wandb", "primus", 0.9, "wrapper"), says("log", "megatron", 0.6)], RELATIONS)
    assert (verdict.framework, verdict.wrapper_framework, verdict.base_framework) == ("primus", "primus", "megatron")
    assert verdict.framework_layer == "wrapper"
    assert not verdict.conflicts


def test_two_sources_that_differ_in_a_layer_conflict_once() -> None:
    opinions = [says("wandb", "megatron", 0.8), says("log", "deepspeed", 0.6), says("log", "deepspeed", 0.5)]
    verdict = fuse(opinions, RELATIONS)
    assert (verdict.framework, verdict.status, verdict.confidence) == ("megatron", "conflict", 0.6)
    assert [(conflict.source, conflict.framework) for conflict in verdict.conflicts] == [("log", "deepspeed")]


def test_a_library_gives_way_and_conflicts_with_nobody() -> None:
    opinions = [says("wandb", "transformers", 0.9), says("wandb", "megatron", 0.6), says("log", "megatron", 0.6)]
    verdict = fuse(opinions, RELATIONS)
    assert (verdict.base_framework, verdict.status) == ("megatron", "confirmed")
    assert (
        fuse([says("wandb", "transformers", 0.9), says("log", "megatron", 0.6)], RELATIONS).base_framework == "megatron"
    )


def test_what_is_said_more_exactly_is_no_contradiction() -> None:
    verdict = fuse([says("wandb", "megatron", 0.9), says("log", "megatron_deepspeed", 0.7)], RELATIONS)
    assert (verdict.base_framework, verdict.conflicts) == ("megatron_deepspeed", ())


def test_a_person_decides() -> None:
    verdict = fuse([says("user", "jax", 1.0, method="user"), says("wandb", "megatron", 0.9)], RELATIONS)
    assert (verdict.framework, verdict.status, verdict.confidence, verdict.method) == ("jax", "confirmed", 1.0, "user")
    assert [conflict.framework for conflict in verdict.conflicts] == ["megatron"]


def test_ties_go_by_the_seeds_order() -> None:
    assert fuse([says("wandb", "jax", 0.9), says("wandb", "deepspeed", 0.9)]).framework == "deepspeed"
    assert fuse([says("wandb", "zebra", 0.9), says("wandb", "jax", 0.9)]).framework == "jax"


def test_a_weaker_source_that_comes_later_erases_nothing() -> None:
    before = fuse([says("wandb", "primus", 0.9, "wrapper"), says("wandb", "megatron", 0.9)], RELATIONS)
    after = fuse(
        [says("wandb", "primus", 0.9, "wrapper"), says("wandb", "megatron", 0.9), says("image", "jax", 0.4)], RELATIONS
    )
    assert (after.wrapper_framework, after.base_framework) == (before.wrapper_framework, before.base_framework)


opinions = st.lists(
    st.builds(
        says,
        st.sampled_from(["user", "component", "wandb", "log", "reuse", "image", "house"]),
        st.sampled_from(["megatron", "deepspeed", "jax", "transformers", "megatron_deepspeed", "primus"]),
        st.sampled_from([0.2, 0.5, 0.6, 0.9]),
        st.sampled_from(["wrapper", "base"]),
    ),
    max_size=5,
)


@given(opinions)
def test_the_order_of_opinions_changes_nothing(found: list[Detection]) -> None:
    verdicts = {repr(fuse(order, RELATIONS)) for order in itertools.permutations(found)}
    assert len(verdicts) <= 1


@given(opinions)
def test_a_verdict_is_always_in_its_bounds(found: list[Detection]) -> None:
    verdict = fuse(found, RELATIONS)
    assert 0.0 <= verdict.confidence <= 1.0
    assert verdict.status in {"unknown", "suspected", "confirmed", "verified", "conflict"}
    assert (verdict.status == "conflict") <= bool(verdict.conflicts)
    names = {detection.framework for detection in found}
    assert {verdict.wrapper_framework, verdict.base_framework} - {""} <= names
