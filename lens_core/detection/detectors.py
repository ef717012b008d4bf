"""Detectors at work: made from the configuration, and their declared rules run over evidence.

The methods, and how sure each makes, are the contract's (section 5): import 0.90, environment 0.80 (a variable that
names the framework 0.75), the run's configuration 0.70 (a key or a trainer's name 0.65), PyTorch modules 0.60,
project name 0.50, image name 0.40.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from ..base.self_metrics import SelfMetrics
from ..model.records import Detection, Evidence
from ..plugin_api.components import Context, Detector
from ..plugin_api.instance import ComponentConfig
from .verdict import LAYERS, Relations

logger = logging.getLogger("lens.detection")

_ALIASES = {
    "megatron_lm": "megatron",
    "megatron_core": "megatron",
    "pytorch_lightning": "lightning",
    "hf_transformers": "transformers",
    "huggingface": "transformers",
    "trainer": "transformers_trainer",
    "hf_trainer": "transformers_trainer",
    "neox": "gpt_neox",
}


class Opinion(NamedTuple):
    """One rule's hit."""

    framework: str
    layer: str
    confidence: float
    method: str
    facts: dict[str, Any]


def make_detectors(
    configured: Mapping[str, ComponentConfig], metrics: SelfMetrics | None = None, cluster: str = "default"
) -> list[Detector]:
    """The configured detectors, by name; raises what a detector's constructor raises."""
    metrics = metrics or SelfMetrics()
    made = []
    for name, component in sorted(configured.items()):
        context = Context(
            name=name,
            logger=logging.getLogger(f"lens.detector.{name}"),
            data_dir=Path(),
            metrics=metrics,
            cluster=cluster,
        )
        made.append(cast(Detector, component.plugin(component.settings, context)))
    return made


class EvidenceRules:
    """Runs what detectors declare over evidence; knows how frameworks relate."""

    def __init__(self, detectors: Iterable[Detector]) -> None:
        self._detectors = [detector for detector in detectors if detector.layer in LAYERS]
        self._layers = {_detector_name(detector): detector.layer for detector in self._detectors}
        bases: dict[str, frozenset[str]] = {}
        for detector in self._detectors:
            bases[_detector_name(detector)] = bases.get(_detector_name(detector), frozenset()) | frozenset(
                detector.bases
            )
        self.relations = Relations(
            bases, frozenset(_detector_name(item) for item in self._detectors if item.is_library)
        )

    def knows(self, framework: str) -> bool:
        """Whether a detector of this framework is installed."""
        return framework in self._layers

    def layer_of(self, framework: str) -> str:
        """The layer of a framework by its detector; base for one that nobody knows."""
        return self._layers.get(framework, "base")

    def detect(self, evidence: Evidence) -> list[Detection]:
        """All opinions that a piece of evidence gives, the strongest of each method and framework."""
        strongest: dict[tuple[str, str, str], Opinion] = {}
        for opinion in self._opinions(evidence.source, evidence.facts):
            key = (opinion.framework, opinion.layer, opinion.method)
            if key not in strongest or strongest[key].confidence < opinion.confidence:
                strongest[key] = opinion
        return [
            Detection(
                origin=evidence.origin,
                workload_uid=evidence.origin.workload_uid,
                source=evidence.source,
                framework=opinion.framework,
                layer=opinion.layer,
                confidence=opinion.confidence,
                method=opinion.method,
                facts=opinion.facts,
                event_time=evidence.event_time,
            )
            for opinion in strongest.values()
        ]

    def _opinions(self, source: str, facts: Mapping[str, Any]) -> Iterator[Opinion]:
        if source == "user":
            yield from self._stated_opinions(facts)
            return
        yield from self._imported(facts)
        yield from self._environment(_as_mapping(facts.get("environment")))
        wandb = _as_mapping(facts.get("wandb"))
        yield from self._configured({**_as_mapping(facts.get("config")), **_as_mapping(wandb.get("config"))})
        yield from self._torch_modules(_as_mapping(_as_mapping(facts.get("pytorch")).get("detected_modules")))
        yield from self._keywords(wandb.get("project") or facts.get("project"), 0.50, "wandb_project_name")
        yield from self._keywords(facts.get("image"), 0.40, "image_name")

    def _stated_opinions(self, facts: Mapping[str, Any]) -> Iterator[Opinion]:
        """Yield the opinions that a person stated; the fields are those of the answer of the detection route."""
        given = facts.get("confidence")
        confidence = float(given) if isinstance(given, int | float) and 0.0 < given <= 1.0 else 1.0
        layered = {"wrapper": facts.get("wrapper_framework"), "base": facts.get("base_framework")}
        plain = _spelled(facts.get("framework"))
        if plain and plain not in map(_spelled, layered.values()):
            layer = facts.get("framework_layer")
            layered[layer if layer in LAYERS else self.layer_of(plain)] = plain
        for layer, name in layered.items():
            if _spelled(name):
                yield Opinion(_spelled(name), layer, confidence, "user", {})

    def _imported(self, facts: Mapping[str, Any]) -> Iterator[Opinion]:
        for layer in LAYERS:
            for name, found in _as_mapping(facts.get(f"{layer}_frameworks")).items():
                known = _as_mapping(found)
                if known.get("detected") is not True:
                    continue
                yield self._known_opinion(name, layer, 0.90, "import_detection", {"version": known.get("version")})
                if _spelled(known.get("base_framework")):
                    yield self._known_opinion(known["base_framework"], "base", 0.90, "import_detection", {})
        modules = _as_mapping(facts.get("modules"))
        for detector in self._detectors:
            for module in detector.modules:
                if module in modules:
                    yield _make_opinion(
                        detector, 0.90, "import_detection", _version_facts(detector, module, modules[module])
                    )

    def _environment(self, environment: Mapping[str, Any]) -> Iterator[Opinion]:
        for detector in self._detectors:
            for item in detector.environment:
                name, equals, value = item.partition("=")
                if name in environment and (not equals or str(environment[name]) == value):
                    yield _make_opinion(detector, 0.80, "env_vars", {"variable": name})
        backend = _spelled(environment.get("PRIMUS_BACKEND"))
        if backend in self._layers:
            yield Opinion(backend, "base", 0.80, "env_vars", {"variable": "PRIMUS_BACKEND"})
        for name in ("FRAMEWORK", "TRAINING_FRAMEWORK"):
            if _spelled(environment.get(name)) in self._layers:
                yield self._known_opinion(environment[name], "", 0.75, "env_framework", {"variable": name})

    def _configured(self, config: Mapping[str, Any]) -> Iterator[Opinion]:
        for key in ("framework", "base_framework", "wrapper_framework"):
            if _spelled(config.get(key)) in self._layers:
                layer = key.removesuffix("framework").rstrip("_")
                yield self._known_opinion(config[key], layer, 0.70, f"wandb_config_{key}", {"key": key})
        trainer = str(config.get("trainer", "")).lower()
        for name in ("deepspeed", "megatron"):
            if name in trainer and name in self._layers:
                yield self._known_opinion(name, "", 0.65, "wandb_config_trainer", {"key": "trainer"})
        for detector in self._detectors:
            for item in detector.config_keys:
                key, equals, value = item.partition("=")
                wanted = key.split("+")
                if all(_is_set(config.get(name)) for name in wanted) and (not equals or config[key] == value):
                    yield _make_opinion(detector, 0.65, "wandb_config_key", {"key": item})

    def _torch_modules(self, modules: Mapping[str, Any]) -> Iterator[Opinion]:
        for name, loaded in modules.items():
            if loaded is True and _spelled(name) in self._layers:
                confidence = 0.55 if _spelled(name) in self.relations.libraries else 0.60
                yield self._known_opinion(name, "", confidence, "pytorch_modules", {"module": name})

    def _keywords(self, text: Any, confidence: float, method: str) -> Iterator[Opinion]:
        if not isinstance(text, str):
            return
        lowered = text.lower()
        for detector in self._detectors:
            if any(keyword in lowered for keyword in detector.project_keywords):
                yield _make_opinion(detector, confidence, method, {})

    def _known_opinion(self, name: Any, layer: str, confidence: float, method: str, facts: dict[str, Any]) -> Opinion:
        spelled = _spelled(name)
        return Opinion(spelled, layer or self.layer_of(spelled), confidence, method, _without_none(facts))


def _detector_name(detector: Detector) -> str:
    return detector.framework or detector.name


def _make_opinion(detector: Detector, confidence: float, method: str, facts: dict[str, Any]) -> Opinion:
    return Opinion(_detector_name(detector), detector.layer, confidence, method, _without_none(facts))


def _spelled(name: Any) -> str:
    """A framework's name as Lens spells it; empty for what is no name."""
    if not isinstance(name, str):
        return ""
    plain = name.strip().lower().replace("-", "_").replace(" ", "_")[:100]
    return _ALIASES.get(plain, plain)


def _is_set(value: Any) -> bool:
    """Whether a setting says anything; trackers that keep texts alone have `None` and `False` as those."""
    return value is not None and value is not False and str(value).lower() not in ("", "none", "null", "false")


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _without_none(facts: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if value is not None}


def _version_facts(detector: Detector, module: str, version: Any) -> dict[str, Any]:
    """The loaded version, and whether the detector knows it; a loaded module shows the framework either way."""
    if not isinstance(version, str):
        return {"module": module}
    facts: dict[str, Any] = {"module": module, "version": version}
    known = _knows(detector.distributions, module, version)
    return facts if known is None else {**facts, "version_known": known}


def _knows(distributions: Sequence[str], module: str, version: str) -> bool | None:
    for text in distributions:
        try:
            requirement, found = Requirement(text), Version(version)
        except (InvalidRequirement, InvalidVersion):
            continue
        if requirement.name.replace("-", "_").startswith(module):
            return requirement.specifier.contains(found, prereleases=True)
    return None
