"""The same network with numpy, many points at once: used where numpy is installed."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy

from .spirals import Point


class VectorNetwork:
    """Two inputs, `width` tanh units, one logistic output; gradients as one flat list, for whoever averages them."""

    def __init__(self, width: int, rng: random.Random) -> None:
        source = numpy.random.default_rng(rng.randrange(2**32))
        self._hidden: Any = source.normal(0, [2.0, 2.0, 1.0], (width, 3))
        self._output: Any = source.normal(0, 1 / math.sqrt(width), width)
        self._bias = 0.0

    def gradient(self, batch: Sequence[Point]) -> tuple[list[float], float, float]:
        """The gradient of a batch, its loss and its accuracy."""
        points = numpy.array(batch, dtype=float)
        inputs = numpy.column_stack((points[:, :2], numpy.ones(len(points))))
        labels = points[:, 2]
        with numpy.errstate(all="ignore"):
            activations = numpy.tanh(inputs @ self._hidden.T)
            logits = numpy.clip(activations @ self._output + self._bias, -30, 30)
            probability = 1 / (1 + numpy.exp(-logits))
            likely = numpy.where(labels > 0, probability, 1 - probability)
            loss = float(-numpy.log(numpy.maximum(likely, 1e-12)).mean())
            error = (probability - labels) / len(points)
            slopes = error[:, None] * self._output * (1 - activations**2)
            parts = ((slopes.T @ inputs).ravel(), error @ activations, [error.sum()])
        accuracy = float(((probability > 0.5) == (labels > 0)).mean())
        return [float(number) for number in numpy.concatenate(parts)], loss, accuracy

    def descend(self, gradient: Sequence[float], rate: float) -> None:
        """One step against the gradient."""
        flat = numpy.array(gradient) * rate
        size = self._hidden.size
        self._hidden -= flat[:size].reshape(self._hidden.shape)
        self._output -= flat[size:-1]
        self._bias -= float(flat[-1])

    def weights(self) -> list[float]:
        """All weights, for a checkpoint."""
        return [*map(float, self._hidden.ravel()), *map(float, self._output), self._bias]
