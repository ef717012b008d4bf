"""One workload of which something cannot be computed hides no other from the list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from lens_core.base.errors import Unavailable
from lens_core.http.query_workloads import _progress_of
from lens_core.plugin_api.store import Store


class OneFails:
    """A store that fails whenever it is asked for the workload w5."""

    async def newest_progress(self, uids: Sequence[str]) -> dict[str, Any]:
        """Whatever, for each."""
        if "w5" in uids:
            raise ValueError("bigint out of range")
        return dict.fromkeys(uids)


class Away:
    """A store that is away."""

    async def newest_progress(self, uids: Sequence[str]) -> dict[str, Any]:
        """Nothing."""
        raise Unavailable("the store is away")


async def test_the_others_are_shown() -> None:
    uids = [f"w{number}" for number in range(20)]
    found = await _progress_of(cast(Store, OneFails()), uids)
    assert set(found) == set(uids) - {"w5"}


async def test_a_store_that_is_away_is_no_empty_answer() -> None:
    with pytest.raises(Unavailable):
        await _progress_of(cast(Store, Away()), ["a", "b"])
