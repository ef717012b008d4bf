import assert from "node:assert/strict";
import test from "node:test";

import { heights, leftOf, yTicks } from "./axes.js";

const line = (y) => ({ x: y.map((_, place) => place), y });
const plain = { outliers: true, log: false, range: null };
const random = (() => {
  let seed = 42;
  return () => (seed = (seed * 16807) % 2147483647) / 2147483647;
})();

test("a constant lies in the middle, whatever its size", () => {
  for (const value of [1e-9, 1e-4, 0.1, 1, 64, 1e15, -3e-5]) {
    const [low, high] = heights([line([value, value * (1 + 1e-15), value])], plain);
    assert.ok(low < value && value < high);
    assert.ok(high - low <= 2 * Math.abs(value), `${low} to ${high} for ${value}`);
    assert.ok(Math.abs((low + high) / 2 - value) <= 1e-6 * Math.abs(value));
  }
  assert.deepEqual(heights([line([0, 0])], plain), [-1, 1]);
});

test("only what stands within the shown range decides the height", () => {
  const [low, high] = heights([line([100, 5, 6, 7, 100])], { ...plain, range: [1, 3] });
  assert.ok(low > 4 && high < 8);
});

test("without outliers two in a hundred at each end leave the chart", () => {
  const values = Array.from({ length: 1000 }, (_, place) => (place % 100 === 7 ? 1000 : 2 + (place % 10) / 10));
  const [, high] = heights([line(values)], { ...plain, outliers: false });
  assert.ok(high < 4);
});

test("a log scale is of what it can show", () => {
  const [low, high] = heights([line([0, -5, 0.01, 100])], { ...plain, log: true });
  assert.ok(low < -2 && low > -3 && high > 2 && high < 3);
  assert.equal(heights([line([0, -1, null])], { ...plain, log: true }), null);
});

const SIZES = { k: 1e3, M: 1e6, G: 1e9, T: 1e12 };
const read = (text) => Number(text.replace(/[kMGT]$/, "")) * (SIZES[text.at(-1)] ?? 1);

test("what a mark says is where it stands, and no two say the same", () => {
  for (let round = 0; round < 3000; round += 1) {
    const middle = (random() - 0.5) * 10 ** (random() * 36 - 16);
    const width = Math.abs(middle) * 10 ** (-7 * random()) || 1;
    const marks = yTicks([middle - width / 2, middle + width / 2], random() < 0.5, false);
    assert.ok(marks.length >= 2, `${middle} ± ${width}`);
    assert.equal(new Set(marks.map(([, text]) => text)).size, marks.length, JSON.stringify(marks));
    for (const [at, text] of marks) assert.ok(Math.abs(read(text) - at) <= 1e-3 * width + 1e-9 * Math.abs(at), `${text} at ${at}`);
    assert.ok(leftOf(marks) >= 6 * Math.max(...marks.map(([, text]) => text.length)));
  }
});

test("a log axis has marks in every range", () => {
  for (const [low, high] of [[-8, 2], [0.1, 0.2], [-4.5, -4.4], [3, 3.6]]) {
    const marks = yTicks([low, high], false, true);
    assert.ok(marks.length >= 2, JSON.stringify([low, high, marks]));
    for (const [at, text] of marks) assert.ok(Math.abs(Math.log10(read(text)) - at) < 1e-3, `${text} at ${at}`);
  }
});
