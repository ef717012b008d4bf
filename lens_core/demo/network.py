"""A small network that really learns, in plain Python: two interleaved spirals, one hidden layer, gradient descent."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

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


class Network:
    """Two inputs, `width` tanh units, one logistic output; trained by stochastic gradient descent."""

    def __init__(self, width: int, rng: random.Random) -> None:
        self._hidden = [[rng.gauss(0, 2.0), rng.gauss(0, 2.0), rng.gauss(0, 1.0)] for _ in range(width)]
        self._output = [rng.gauss(0, 1 / math.sqrt(width)) for _ in range(width)]
        self._bias = 0.0

    def forward(self, x: float, y: float) -> tuple[list[float], float]:
        """Activations of the hidden units, and the probability of the second spiral."""
        activations = [math.tanh(a * x + b * y + c) for a, b, c in self._hidden]
        logit = self._bias + sum(w * h for w, h in zip(self._output, activations, strict=True))
        return activations, 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, logit))))

    def train_step(self, batch: list[Point], learning_rate: float) -> dict[str, float]:
        """One step of gradient descent; returns loss, accuracy and the norm of the gradient."""
        loss = correct = bias_gradient = 0.0
        output_gradient = [0.0] * len(self._output)
        hidden_gradient = [[0.0, 0.0, 0.0] for _ in self._hidden]
        for x, y, label in batch:
            activations, probability = self.forward(x, y)
            loss -= math.log(max(1e-12, probability if label else 1 - probability))
            correct += (probability > 0.5) == bool(label)
            error = (probability - label) / len(batch)
            bias_gradient += error
            for unit, activation in enumerate(activations):
                output_gradient[unit] += error * activation
                slope = error * self._output[unit] * (1 - activation * activation)
                for place, value in enumerate((x, y, 1.0)):
                    hidden_gradient[unit][place] += slope * value
        self._descend(output_gradient, hidden_gradient, bias_gradient, learning_rate)
        squares = sum(g * g for g in output_gradient) + sum(g * g for row in hidden_gradient for g in row)
        return {
            "loss": loss / len(batch),
            "accuracy": correct / len(batch),
            "grad_norm": math.sqrt(squares + bias_gradient * bias_gradient),
        }

    def _descend(self, output: list[float], hidden: list[list[float]], bias: float, rate: float) -> None:
        self._bias -= rate * bias
        for unit, gradient in enumerate(output):
            self._output[unit] -= rate * gradient
            for place in range(3):
                self._hidden[unit][place] -= rate * hidden[unit][place]


def training_steps(seed: int, batch_size: int = 64) -> Iterator[dict[str, float]]:
    """Train for as long as somebody asks; each item is what one step gives to log."""
    rng = random.Random(seed)
    points = spirals(2000, rng)
    network = Network(32, rng)
    step = 0
    while True:
        learning_rate = 0.6 / (1 + step / 2000)
        yield {**network.train_step(rng.sample(points, batch_size), learning_rate), "learning_rate": learning_rate}
        step += 1
