import assert from "node:assert/strict";
import test from "node:test";

import { heights, leftOf, widened, xTicks, yTicks } from "./axes.js";
import { elapsed } from "./ticks.js";

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
    const width = Math.abs(middle) * 10 ** (-13 * random()) || 1;
    const marks = yTicks([middle - width / 2, middle + width / 2], random() < 0.5, false);
    assert.ok(marks.length >= 2, `${middle} ± ${width}`);
    assert.equal(new Set(marks.map(([, text]) => text)).size, marks.length, JSON.stringify(marks));
    for (const [at, text] of marks) assert.ok(Math.abs(read(text) - at) <= 1e-3 * width + 1e-15 * Math.abs(at), `${text} at ${at}`);
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

test("marks of every x axis stand within it, in order and apart", () => {
  for (const [axis, logX, range] of [
    ["iteration", false, [0, 599]], ["iteration", true, [1, 1e6]], ["iteration", true, [3, 4]], ["metric:tokens", false, [0, 4.9e7]],
    ["time", false, [1.7e12, 1.7e12 + 12e6]], ["relative", false, [0, 12e6]], ["relative", false, [0, 3]], ["relative", false, [5, 40 * 86400e3]],
    ["relative", true, [1e3, 6e5]], ["metric:memory", false, [61.51, 62.49]],
  ]) {
    for (const pixels of [150, 320, 1200]) {
      const marks = xTicks(range, pixels, { axis, logX });
      assert.ok(marks.length >= 1 && marks.length <= pixels / 25, `${axis} ${pixels}: ${JSON.stringify(marks)}`);
      marks.forEach(([at], place) => {
        assert.ok(at >= range[0] * 0.999 && at <= range[1] * 1.001, `${axis}: ${at} of ${range}`);
        assert.ok(place === 0 || at > marks[place - 1][0]);
      });
      assert.equal(new Set(marks.map(([, text]) => text)).size, marks.length, JSON.stringify(marks));
    }
  }
});

test("steps of any size have texts that differ and have room", () => {
  for (const first of [0, 1e6, 1e12, 1e15, 9e15, -1e15]) {
    for (const many of [3, 99, 5000]) {
      for (const pixels of [150, 320, 1200]) {
        const marks = xTicks([first, first + many], pixels, { axis: "iteration", logX: false });
        const texts = marks.map(([, text]) => text);
        assert.equal(new Set(texts).size, texts.length, texts.join());
        assert.ok(texts.length === 1 || texts.join("").length * 6.4 <= pixels, texts.join());
      }
    }
  }
});

test("a log axis of what has passed is read in seconds", () => {
  assert.deepEqual(xTicks([1e3, 6e5], 320, { axis: "relative", logX: true }), [[1e3, "1 s"], [1e4, "10 s"], [1e5, "100 s"]]);
});

test("a linear axis has more than one mark", () => {
  assert.deepEqual(xTicks([61.51, 62.49], 317, { axis: "metric:memory", logX: false }).map(([, text]) => text), ["61.6", "61.8", "62", "62.2", "62.4"]);
});

test("what has passed since a beginning is read at a glance", () => {
  const seconds = (value) => elapsed(value * 1000);
  assert.deepEqual([0, 30, 90, 3600, 5400, 5430, 86400, 180000].map(seconds), ["0", "0:30 min", "1:30 min", "1:00 h", "1:30 h", "1:30:30 h", "1 d", "2 d 2:00"]);
  assert.equal(seconds(-90), "−1:30 min");
});

test("an axis of x has a width around a single place, on every scale", () => {
  const axes = [{ axis: "iteration", logX: false }, { axis: "time", logX: false }, { axis: "relative", logX: true }, { axis: "metric:m", logX: false }];
  for (const options of axes) {
    for (const place of [0, 1, 7, 1e6, 1.7e12].filter((place) => place > 0 || !options.logX)) {
      const [left, right] = widened([place, place], options);
      assert.ok(left < place && place < right && (!options.logX || left > 0));
    }
    const none = widened(null, options);
    assert.ok(none[0] < none[1] && (!options.logX || none[0] > 0));
    assert.deepEqual(widened([3, 4], options), [3, 4]);
  }
});
