import assert from "node:assert/strict";
import test from "node:test";

import { begun, smoothOn } from "./average.js";
import { heights } from "./axes.js";
import { Palette, traces } from "./series.js";

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

const options = { axis: "iteration", log: false, smooth: 0, range: null, outliers: true, hidden: new Set() };

test("buckets are a line with a band, and the axis reaches to its ends", () => {
  const points = [point(0, 2), point(500, 2.5, { low: 1, high: 900, count: 499 }), point(1000, 3)];
  const one = { key: "k", uid: "u", run: "r", attempt: 1, source: "wandb", points, figures: { count: 501, p2: 1.5, p98: 3, min: 1, max: 900 } };
  const draw = (more) => traces(new Map([["k", one]]), null, { ...options, ...more }, new Palette(new Map([["u", "u"]])));
  const found = draw({});
  assert.deepEqual(found.map((trace) => trace.y), [[2, 1, 3], [2, 900, 3], [2, 2.5, 3]]);
  assert.equal(found[1].fill, "tonexty");
  assert.ok(heights(found, options)[1] > 900);
  // Without outliers the axis goes by the percentiles of all points, not by those of what is drawn.
  const [low, high] = heights(draw({ outliers: false }), { ...options, outliers: false });
  assert.ok(low > 1.3 && low < 1.5 && high > 3 && high < 3.2);
  // A smoothed line is what the server made of all points.
  points.forEach((bucket, place) => (bucket.s = [2, 2.1, 2.2][place]));
  assert.deepEqual(draw({ smooth: 0.9 }).at(-1).y, [2, 2.1, 2.2]);
});

test("on a log scale a band ends at what the scale can show", () => {
  const points = [point(0, 1), point(9, 5, { low: -1, high: 9, count: 8 }), point(10, 0.1)];
  const one = { key: "k", uid: "u", run: "r", attempt: 1, source: "wandb", points, figures: {} };
  const found = traces(new Map([["k", one]]), null, { ...options, log: true }, new Palette(new Map([["u", "u"]])));
  assert.ok(found[0].y.every((value) => value > 0));
});
