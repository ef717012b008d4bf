from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lens_core.http.page.tracker_links import MOST_LINKS, TrackerLink, tracker_links


def seen(at: float, **facts: Any) -> dict[str, Any]:
    return {"source": "tracker", "timestamp": at, "facts": facts}


def test_the_newest_runs_come_first_and_nothing_but_pages() -> None:
    url = "https://mlflow.example/#/experiments/1/runs/a"
    evidence = [
        seen(1.0, tracker={"tracker": "mlflow", "name": "old", "url": url}),
        seen(3.0, tracker={"tracker": "mlflow", "name": "new", "url": url}),
        seen(2.0, wandb={"id": "r1", "url": "https://wandb.example/p/runs/r1"}),
        seen(4.0, tracker={"tracker": "x", "url": "javascript:alert(1)"}, wandb={"url": "file:///etc/passwd"}),
        seen(5.0, tracker={"tracker": "x", "url": 7}),
        {"facts": None},
    ]
    assert tracker_links(evidence) == [
        TrackerLink("mlflow", "new", url),
        TrackerLink("wandb", "r1", "https://wandb.example/p/runs/r1"),
    ]


_FACTS = st.dictionaries(st.sampled_from(["url", "name", "tracker"]), st.text())
_EVIDENCE = st.dictionaries(
    st.just("facts"),
    st.none() | st.text() | st.dictionaries(st.sampled_from(["wandb", "tracker"]), st.none() | st.text() | _FACTS),
)


@given(st.lists(_EVIDENCE, max_size=20))
def test_odd_evidence_makes_no_trouble(evidence: list[dict[str, Any]]) -> None:
    found = tracker_links([{**one, "timestamp": 1.0} for one in evidence])
    assert len(found) <= MOST_LINKS
    assert all(link.url.lower().startswith(("http://", "https://")) for link in found)
