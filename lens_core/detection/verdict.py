"""Fusing what all detectors say about a workload into one verdict: two layers, all sources, always from everything.

Deterministic: the same opinions give the same verdict in whatever order they came. Nothing is ever taken from an
earlier verdict, so a weak source that speaks later erases nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from ..model.processing import Conflict, Verdict
from ..model.records import Detection

# The order of precedence of sources (contract, section 5); a source that is not here comes last.
SOURCES: Mapping[str, int] = {"user": 100, "component": 80, "wandb": 70, "log": 60, "reuse": 50, "image": 40}
OTHER_SOURCE = 20
# Seed 000, appendix C: who wins a tie.
ORDER = ("primus", "lightning", "transformers_trainer", "megatron", "deepspeed", "jax", "transformers")
LAYERS = ("wrapper", "base")
AGREEMENT = 0.1
CONFLICT = 0.2
SUSPECTED, CONFIRMED, VERIFIED = 0.3, 0.6, 0.85
WORKLOAD_TYPE = "training"


class Relations(msgspec.Struct, frozen=True):
    """Relations of frameworks: the `bases` that each needs anyway, and libraries that anybody uses."""

    bases: Mapping[str, frozenset[str]] = {}
    libraries: frozenset[str] = frozenset()

    def needs(self, framework: str, other: str) -> bool:
        """Whether the other is there because this one needs it."""
        return other in self.bases.get(framework, frozenset())


class _Layer(msgspec.Struct, frozen=True):
    framework: str
    confidence: float
    method: str
    source: str
    agreeing: frozenset[str]
    conflicts: tuple[Conflict, ...]


def fuse(detections: Iterable[Detection], relations: Relations | None = None) -> Verdict:
    """The verdict over all opinions about one workload."""
    relations = relations or Relations()
    strongest = _strongest(detections)
    layers = {layer: _decide(layer, strongest, relations) for layer in LAYERS}
    wrapper, base = layers["wrapper"], layers["base"]
    first = wrapper or base
    if first is None:
        return Verdict()
    conflicts = tuple(conflict for found in (wrapper, base) if found is not None for conflict in found.conflicts)
    open_conflicts = [conflict for conflict in conflicts if conflict.winning_source != "user"]
    return Verdict(
        framework=first.framework,
        framework_layer="wrapper" if wrapper is not None else "base",
        wrapper_framework=wrapper.framework if wrapper is not None else "",
        base_framework=base.framework if base is not None else "",
        confidence=first.confidence,
        method=first.method,
        workload_type=WORKLOAD_TYPE,
        status="conflict" if open_conflicts else _status(first),
        sources=sorted({source for found in (wrapper, base) if found is not None for source in found.agreeing}),
        conflicts=conflicts,
    )


def _strongest(detections: Iterable[Detection]) -> dict[tuple[str, str, str], Detection]:
    """Of several opinions of one source about one framework the strongest; ties by method."""
    strongest: dict[tuple[str, str, str], Detection] = {}
    for detection in detections:
        key = (detection.layer, detection.source, detection.framework)
        known = strongest.get(key)
        if known is None or (-detection.confidence, detection.method) < (-known.confidence, known.method):
            strongest[key] = detection
    return strongest


def _decide(layer: str, strongest: Mapping[tuple[str, str, str], Detection], relations: Relations) -> _Layer | None:
    by_source: dict[str, dict[str, Detection]] = {}
    for (of_layer, source, framework), detection in strongest.items():
        if of_layer == layer and detection.confidence > 0.0:
            by_source.setdefault(source, {})[framework] = detection
    if not by_source:
        return None
    picks = {source: _pick(found, relations) for source, found in by_source.items()}
    winner = _winner(picks, relations)
    agreeing = [source for source, found in by_source.items() if winner.framework in found]
    best = max(by_source[source][winner.framework].confidence for source in agreeing)
    conflicts = tuple(_conflicts(picks, by_source, winner, relations))
    penalty = CONFLICT if conflicts and winner.source != "user" else 0.0
    confidence = min(1.0, best + AGREEMENT * (len(agreeing) - 1)) - penalty
    return _Layer(
        winner.framework, round(max(0.0, confidence), 4), winner.method, winner.source, frozenset(agreeing), conflicts
    )


def _pick(found: Mapping[str, Detection], relations: Relations) -> Detection:
    """Pick the opinion of one source: never a base of another of its frameworks, then by confidence, then by order."""
    names = set(found)
    specific = {name for name in names if not any(relations.needs(other, name) for other in names - {name})} or names
    proper = {name for name in specific if name not in relations.libraries} or specific
    return min((found[name] for name in proper), key=lambda item: (-item.confidence, *_precedence(item.framework)))


def _winner(picks: Mapping[str, Detection], relations: Relations) -> Detection:
    """The pick of the source that ranks first; a library only if nobody names anything better, a person always."""
    proper = {
        source: pick for source, pick in picks.items() if source == "user" or pick.framework not in relations.libraries
    } or picks
    first = min(
        proper.values(),
        key=lambda pick: (-_source_precedence(pick.source), -pick.confidence, *_precedence(pick.framework)),
    )
    if first.source == "user":
        return first
    # The same thing said more exactly (Megatron-DeepSpeed, where the first source says Megatron) is no contradiction.
    finer = [pick for pick in proper.values() if relations.needs(pick.framework, first.framework)]
    return (
        min(finer, key=lambda pick: (-_source_precedence(pick.source), *_precedence(pick.framework)))
        if finer
        else first
    )


def _conflicts(
    picks: Mapping[str, Detection],
    by_source: Mapping[str, Mapping[str, Detection]],
    winner: Detection,
    relations: Relations,
) -> Iterable[Conflict]:
    for source in sorted(picks):
        pick = picks[source]
        other = pick.framework
        related = relations.needs(winner.framework, other) or relations.needs(other, winner.framework)
        if winner.framework in by_source[source] or related or other in relations.libraries:
            continue
        yield Conflict(winner.layer, source, other, pick.confidence, winner.framework, winner.source)


def _status(layer: _Layer) -> str:
    if layer.confidence >= VERIFIED and len(layer.agreeing) >= 2:
        return "verified"
    if layer.confidence >= CONFIRMED:
        return "confirmed"
    return "suspected" if layer.confidence >= SUSPECTED else "unknown"


def _source_precedence(source: str) -> int:
    return SOURCES.get(source, OTHER_SOURCE)


def _precedence(framework: str) -> tuple[int, str]:
    return (ORDER.index(framework) if framework in ORDER else len(ORDER), framework)
