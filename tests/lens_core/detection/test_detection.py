from __future__ import annotations

from typing import Any

import pytest

from lens_core import Evidence, Origin
from lens_core.config.loading import load_config
from lens_core.detection.detectors import EvidenceRules, make_detectors
from lens_core.detection.verdict import fuse
from lens_core.plugin_host.host import PluginHost

# Seed 000, appendix A.1.
SEED: dict[str, Any] = {
    "wandb": {
        "project": "my-training",
        "name": "run-001",
        "id": "wandb-run-id",
        "config": {"framework": "primus", "base_framework": "megatron"},
        "tags": ["distributed", "gpu"],
    },
    "environment": {
        "PRIMUS_CONFIG": "/config/primus.yaml",
        "PRIMUS_BACKEND": "megatron",
        "WORLD_SIZE": "8",
        "RANK": "0",
    },
    "pytorch": {
        "available": True,
        "detected_modules": {"deepspeed": False, "megatron": True, "transformers": True, "lightning": False},
    },
    "wrapper_frameworks": {"primus": {"detected": True, "version": "1.0.0", "base_framework": "megatron"}},
    "base_frameworks": {"megatron": {"detected": True, "version": "unknown"}},
}


@pytest.fixture(scope="module")
def rules() -> EvidenceRules:
    return EvidenceRules(make_detectors(load_config(None, PluginHost.load(), {}).detectors))


def found(rules: EvidenceRules, facts: dict[str, Any], source: str = "wandb") -> set[tuple[str, str, float, str]]:
    evidence = Evidence(origin=Origin(workload_uid="w"), source=source, facts=facts)
    return {(item.framework, item.layer, item.confidence, item.method) for item in rules.detect(evidence)}


def test_the_seeds_example_is_primus_on_megatron(rules: EvidenceRules) -> None:
    opinions = rules.detect(Evidence(origin=Origin(workload_uid="abc-123"), source="wandb", facts=SEED))
    verdict = fuse(opinions, rules.relations)
    assert (verdict.wrapper_framework, verdict.base_framework) == ("primus", "megatron")
    assert (verdict.framework, verdict.framework_layer, verdict.confidence) == ("primus", "wrapper", 0.9)
    assert (verdict.method, verdict.status, verdict.workload_type) == ("import_detection", "confirmed", "training")
    assert not verdict.conflicts
    assert {item.workload_uid for item in opinions} == {"abc-123"}


def test_each_method_has_its_confidence(rules: EvidenceRules) -> None:
    assert found(rules, {"modules": {"deepspeed": "0.15.0"}}) == {("deepspeed", "base", 0.90, "import_detection")}
    assert ("jax", "base", 0.80, "env_vars") in found(rules, {"environment": {"JAX_PLATFORMS": "cuda"}})
    assert found(rules, {"environment": {"FRAMEWORK": "Megatron-LM"}}) == {("megatron", "base", 0.75, "env_framework")}
    assert found(rules, {"wandb": {"config": {"framework": "nemo"}}}) == {
        ("nemo", "wrapper", 0.70, "wandb_config_framework")
    }
    assert found(rules, {"pytorch": {"detected_modules": {"megatron": True, "jax": False}}}) == {
        ("megatron", "base", 0.60, "pytorch_modules")
    }
    assert found(rules, {"wandb": {"project": "my-openrlhf-runs"}}) == {
        ("openrlhf", "wrapper", 0.50, "wandb_project_name")
    }
    assert ("primus", "wrapper", 0.40, "image_name") in found(rules, {"image": "rocm/primus:v25.9"}, "image")


def test_the_backend_of_primus_is_a_base(rules: EvidenceRules) -> None:
    assert ("torchtitan", "base", 0.80, "env_vars") in found(rules, {"environment": {"PRIMUS_BACKEND": "torchtitan"}})


def test_loaded_but_not_detected_and_null_settings_are_nothing(rules: EvidenceRules) -> None:
    assert not found(rules, {"base_frameworks": {"jax": {"detected": False}}})
    for value in (None, False, "", "None", "False", "null"):  # MLflow keeps texts alone
        assert not found(rules, {"wandb": {"config": {"deepspeed": value}}})
        assert not found(rules, {"config": {"deepspeed": value}})
    assert found(rules, {"config": {"deepspeed": "ds.json"}})


def test_a_configuration_that_names_no_framework_is_not_one(rules: EvidenceRules) -> None:
    assert not found(rules, {"wandb": {"config": {"framework": "pt"}}, "environment": {"FRAMEWORK": "none"}})


def test_what_a_person_says_comes_in_both_layers(rules: EvidenceRules) -> None:
    said = {"framework": "primus", "wrapper_framework": "primus", "base_framework": "torchtitan"}
    assert found(rules, said, "user") == {("primus", "wrapper", 1.0, "user"), ("torchtitan", "base", 1.0, "user")}
    assert found(rules, {"framework": "House Trainer"}, "user") == {("house_trainer", "base", 1.0, "user")}
    assert found(rules, {"framework": "lightning", "confidence": 0.5}, "user") == {
        ("lightning", "wrapper", 0.5, "user")
    }


def test_a_fat_image_with_everything_loaded_is_still_megatron_under_primus(rules: EvidenceRules) -> None:
    modules = dict.fromkeys(("primus", "megatron", "transformers", "torch", "datasets"), "1.0")
    opinions = rules.detect(Evidence(source="wandb", facts={"modules": modules}))
    verdict = fuse(opinions, rules.relations)
    assert (verdict.wrapper_framework, verdict.base_framework) == ("primus", "megatron")


@pytest.mark.parametrize(
    "facts", [{"wandb": 3}, {"environment": None}, {"modules": []}, {"wandb": {"config": "x", "project": 7}}]
)
def test_facts_of_another_shape_are_no_error(rules: EvidenceRules, facts: dict[str, Any]) -> None:
    assert not found(rules, facts)
