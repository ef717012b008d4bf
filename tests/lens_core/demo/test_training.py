from __future__ import annotations

import math
import random
import socket
import threading

import pytest

from lens_core.demo.faults import LONG_STALL_SECONDS, Planned, is_finite, plan_for
from lens_core.demo.network import PlainNetwork
from lens_core.demo.ranks import Peer
from lens_core.demo.spirals import Point, spirals
from lens_core.demo.vector import VectorNetwork


@pytest.mark.parametrize("kind", [PlainNetwork, VectorNetwork])
def test_it_really_learns(kind: type[PlainNetwork] | type[VectorNetwork]) -> None:
    rng = random.Random(1)
    points = spirals(200, rng)
    network = kind(16, rng)
    losses = []
    for _ in range(300):
        gradient, loss, _ = network.gradient(points)
        network.descend(gradient, 0.5)
        losses.append(loss)
    assert losses[-1] < 0.8 * losses[0]
    assert len(network.weights()) == 16 * 4 + 1


def test_both_kinds_compute_the_same_gradient() -> None:
    points = spirals(50, random.Random(2))
    plain, vector = PlainNetwork(8, random.Random(3)), VectorNetwork(8, random.Random(4))
    here = plain.weights()
    # descending along the difference of the weights makes both networks equal
    vector.descend([mine - wanted for mine, wanted in zip(vector.weights(), here, strict=True)], 1.0)
    one, two = plain.gradient(points), vector.gradient(points)
    assert one[0] == pytest.approx(two[0])
    assert one[1:] == pytest.approx(two[1:])


def test_everything_that_is_planned_happens_once() -> None:
    planned = Planned(plan_for(600.0))
    batch: list[Point] = [(0.1, 0.2, 1), (0.3, 0.4, 0)]
    spoilt = [planned.spoil(batch, float(second)) for second in range(100)]
    assert sum(one is not batch for one in spoilt) == 2
    assert [planned.stall_seconds(float(second)) for second in range(100)].count(LONG_STALL_SECONDS) == 1
    assert sum(planned.is_checkpoint(float(second)) for second in range(100)) == 3


@pytest.mark.parametrize("kind", [PlainNetwork, VectorNetwork])
def test_a_value_that_is_none_makes_a_loss_that_is_none(kind: type[PlainNetwork] | type[VectorNetwork]) -> None:
    gradient, loss, _ = kind(4, random.Random(5)).gradient([(math.nan, 0.1, 1), (0.2, 0.3, 0)])
    assert math.isnan(loss)
    assert not is_finite(gradient)


def test_two_ranks_average() -> None:
    left, right = socket.socketpair()
    with left, right:
        answers: list[list[float]] = []
        other = threading.Thread(target=lambda: answers.append(Peer(right).average([3.0, 5.0])))
        other.start()
        assert Peer(left).average([1.0, 1.0]) == [2.0, 3.0]
        other.join()
        assert answers == [[2.0, 3.0]]


def test_a_rank_whose_peer_is_gone_ends() -> None:
    left, right = socket.socketpair()
    right.close()
    with left, pytest.raises(ConnectionError):
        Peer(left).average([1.0])
