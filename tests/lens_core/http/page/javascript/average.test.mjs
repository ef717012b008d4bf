import assert from "node:assert/strict";
import test from "node:test";

import { begun, smoothOn } from "./points.js";

const random = (() => {
  let seed = 7;
  return () => (seed = (seed * 16807) % 2147483647) / 2147483647;
})();
const close = (one, other) => assert.ok(Math.abs(one - other) <= 1e-9 * Math.max(1, Math.abs(other)), `${one} is not ${other}`);
const point = (x, y, more = {}) => ({ x, t: x, y, low: y, high: y, last: y, steps: 1, count: 1, bad: 0, special: null, ...more });

// The definition of docs/http.md, step by step.
function expected(values, weight) {
  let mean = 0;
  let steps = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = weight * mean + (1 - weight) * value;
    steps += 1;
    return mean / (1 - weight ** steps);
  });
}

test("the average goes on where it stood, over gaps and pieces of any length", () => {
  for (const weight of [0.3, 0.9, 0.99]) {
    const values = Array.from({ length: 500 }, () => (random() < 0.05 ? null : random() * 10 ** (random() * 4)));
    const state = begun(weight);
    const points = values.map((value, x) => point(x, value));
    for (let first = 0; first < points.length; ) {
      const size = 1 + Math.floor(random() * 40);
      smoothOn(state, points.slice(first, first + size));
      first += size;
    }
    expected(values, weight).forEach((value, place) => (value === null ? assert.equal(points[place].s, null) : close(points[place].s, value)));
  }
});

test("a constant stays the constant that it is", () => {
  const points = Array.from({ length: 3000 }, (_, x) => point(x, 1e-4));
  smoothOn(begun(0.97), points);
  assert.ok(points.every((one) => one.s === 1e-4));
});
