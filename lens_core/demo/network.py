"""A small network that really learns: one hidden layer, gradient descent in plain Python."""

from __future__ import annotations

import importlib.util
import math
import random
from collections.abc import Sequence
from typing import Protocol

from .spirals import Point


class Network(Protocol):
    """A small network; its gradient is one flat list, so that ranks can average it."""

    def gradient(self, batch: Sequence[Point]) -> tuple[list[float], float, float]:
        """The gradient of a batch, its loss and its accuracy."""
        ...

    def descend(self, gradient: Sequence[float], rate: float) -> None:
        """One step against the gradient."""
        ...

    def weights(self) -> list[float]:
        """All weights, for a checkpoint."""
        ...


def make_network(width: int, rng: random.Random) -> Network:
    """With numpy where it is installed, else in plain Python; every rank makes the same from the same seed."""
    if importlib.util.find_spec("numpy") is not None:
        from .vector import VectorNetwork

        return VectorNetwork(width, rng)
    return PlainNetwork(width, rng)


class PlainNetwork:
    """Two inputs, `width` tanh units, one logistic output."""

    def __init__(self, width: int, rng: random.Random) -> None:
        self._hidden = [[rng.gauss(0, 2.0), rng.gauss(0, 2.0), rng.gauss(0, 1.0)] for _ in range(width)]
        self._output = [rng.gauss(0, 1 / math.sqrt(width)) for _ in range(width)]
        self._bias = 0.0

    def gradient(self, batch: Sequence[Point]) -> tuple[list[float], float, float]:
        """The gradient of a batch, its loss and its accuracy."""
        loss = correct = bias = 0.0
        output = [0.0] * len(self._output)
        hidden = [[0.0, 0.0, 0.0] for _ in self._hidden]
        for x, y, label in batch:
            activations, probability = self._forward(x, y)
            likely = probability if label else 1 - probability
            loss -= math.log(max(1e-12, likely)) if likely == likely else math.nan
            correct += (probability > 0.5) == bool(label)
            error = (probability - label) / len(batch)
            bias += error
            for unit, activation in enumerate(activations):
                output[unit] += error * activation
                slope = error * self._output[unit] * (1 - activation * activation)
                for place, value in enumerate((x, y, 1.0)):
                    hidden[unit][place] += slope * value
        flat = [number for row in hidden for number in row]
        return [*flat, *output, bias], loss / len(batch), correct / len(batch)

    def _forward(self, x: float, y: float) -> tuple[list[float], float]:
        activations = [math.tanh(a * x + b * y + c) for a, b, c in self._hidden]
        logit = self._bias + sum(w * h for w, h in zip(self._output, activations, strict=True))
        bounded = logit if logit != logit else max(-30.0, min(30.0, logit))
        return activations, 1.0 / (1.0 + math.exp(-bounded))

    def descend(self, gradient: Sequence[float], rate: float) -> None:
        """One step against the gradient."""
        units = len(self._hidden)
        for unit in range(units):
            self._output[unit] -= rate * gradient[3 * units + unit]
            for place in range(3):
                self._hidden[unit][place] -= rate * gradient[3 * unit + place]
        self._bias -= rate * gradient[-1]

    def weights(self) -> list[float]:
        """All weights, for a checkpoint."""
        return [*(number for row in self._hidden for number in row), *self._output, self._bias]
