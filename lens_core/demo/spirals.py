"""Points of two spirals, which the demo learns to tell apart."""

from __future__ import annotations

import math
import random

Point = tuple[float, float, int]


def spirals(count: int, rng: random.Random) -> list[Point]:
    """Points of two spirals: x, y, which one."""
    points = []
    for index in range(count):
        label = index % 2
        angle = 3.0 * math.pi * math.sqrt(rng.random())
        radius = angle / (3.0 * math.pi)
        turn = angle + label * math.pi
        noise = rng.gauss(0, 0.03)
        points.append((radius * math.cos(turn) + noise, radius * math.sin(turn) + noise, label))
    return points
