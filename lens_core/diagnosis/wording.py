"""Reports by node, and how nodes and ranks are called in reasons."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ..model.records import Diagnosis
from .facts import Facts, Limits

# Type, and rank or (where that is unknown) id: a node that was replaced keeps its rank.
Node = tuple[str, int, int]


def by_node(facts: Facts, data_type: str, limits: Limits) -> dict[Node, list[Diagnosis]]:
    """Reports of one type by node, oldest first, as far as the window reaches."""
    found: dict[Node, list[Diagnosis]] = defaultdict(list)
    for diagnosis in sorted(facts.diagnoses, key=lambda item: item.timestamp):
        if diagnosis.data_type == data_type and facts.now - diagnosis.timestamp <= limits.window_seconds:
            known = diagnosis.node_rank >= 0
            node = (diagnosis.node_type, diagnosis.node_rank, -1 if known else diagnosis.node_id)
            found[node].append(diagnosis)
    return found


def node_name(node: Node) -> str:
    """Return the name of a node: its rank, else its id."""
    return str(node[1] if node[1] >= 0 else node[2])


def verb(names: Sequence[str] | Mapping[str, object], word: str) -> str:
    """The verb in the number of its subject."""
    return f"{word}s" if len(names) == 1 else word


def ranks_of(names: Iterable[object]) -> str:
    """`rank 2`, `ranks 0, 1, 3`."""
    known = list(names)
    return f"{'rank' if len(known) == 1 else 'ranks'} {listed(known)}"


def ordered(names: Mapping[str, float]) -> list[str]:
    """Names of ranks in the order of their numbers."""
    return sorted(names, key=lambda name: (len(name), name))


def listed(names: Iterable[object]) -> str:
    """At most 16 names, and how many more."""
    ordered = sorted((str(name) for name in names), key=lambda name: (len(name), name))
    return ", ".join(ordered[:16]) + (f" and {len(ordered) - 16} more" if len(ordered) > 16 else "")
