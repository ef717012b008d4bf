// Values at the ends of what a number can hold: curves, axes, averages and maps of them are finite and in their place.

import assert from "node:assert/strict";
import test from "node:test";

import { begun, smoothOn } from "./points.js";
import { heights, yTicks } from "./axes.js";
import { Chart } from "./chart.js";
import { extentOf, linesOf, lonely } from "./lines.js";
import { Palette } from "./palette.js";
import { mapOf } from "./ranks.js";

const random = (() => {
  let seed = 29;
  return () => (seed = (seed * 16807) % 2147483647) / 2147483647;
})();
const chosen = (all) => all[Math.floor(random() * all.length)];
const SIZES = [0, 5e-324, 1e-323, 2.2e-308, 1e-300, 1e-20, 1e-4, 1, 3.7e9, 1e15, 1e100, 1e300, 1e308, Number.MAX_VALUE];
const extreme = () => (random() < 0.5 ? -1 : 1) * chosen(SIZES) * (random() < 0.5 ? 1 : random());
const point = (x, y) => ({ x, t: 1000 * x, y, low: y, high: y, last: y, steps: 1, count: 1, bad: 0, special: null });
const draw = (points, more) => {
  const series = new Map([["k", { key: "k", uid: "u", run: "r", attempt: 1, source: "s", points, figures: {} }]]);
  return linesOf(series, null, { axis: "iteration", log: false, logX: false, smooth: 0, range: null, outliers: true, hidden: new Set(), ...more }, new Palette(new Map([["u", "u"]])));
};

// Where a chart hands its values to the library, without a library.
function drawnBy(lines, { log }) {
  const picture = { lines, series: [], columns: [lines[0].x, lines[0].y], log, logX: false, range: [0, 1], heights: heights(lines, { log, outliers: true, range: null }), isTall: false, isSketch: false };
  const scales = {};
  const chart = Object.create(Chart.prototype);
  Object.assign(chart, { build: () => {}, u: { batch: (run) => run(), setScale: (key, ends) => (scales[key] = ends), setData: () => {} } });
  chart.show(picture);
  return { chart, picture, scale: scales.y };
}

test("every value has a place within its chart, smoothed or not, on both scales", () => {
  for (let round = 0; round < 4000; round += 1) {
    const points = Array.from({ length: 1 + Math.floor(random() * 12) }, (_, x) => point(x, extreme()));
    const [log, smooth] = [random() < 0.5, random() < 0.5 ? 0.9 : 0];
    smoothOn(begun(0.9), points);
    const lines = draw(points, { log, smooth });
    const values = lines[0].y.filter((value) => value !== null);
    assert.equal(values.length, points.filter((one) => !log || (smooth ? one.s : one.y) > 0).length);
    const { chart, picture, scale } = drawnBy(lines, { log });
    if (picture.heights === null) continue;
    const said = JSON.stringify([log, lines[0].y, picture.heights, scale]);
    const width = scale.max - scale.min;
    assert.ok(Number.isFinite(width) && width > 1e-16, said);
    for (const value of values) {
      const share = (chart.drawn(value) - scale.min) / width;
      assert.ok(share >= 0 && share <= 1, said);
    }
    const marks = yTicks(picture.heights, random() < 0.5, log);
    for (const [at, text] of marks) {
      const share = (at * chart.factor - scale.min) / width;
      assert.ok(share >= -1e-6 && share <= 1 + 1e-6 && !/NaN|Infinity|undefined/.test(text), `${at} ${text} ${said}`);
    }
    assert.ok(extentOf(lines).every(Number.isFinite));
  }
});

test("a constant of any size stands in the middle", () => {
  for (const size of SIZES.slice(1, -1)) {
    for (const value of [size, -size]) {
      const { chart, scale } = drawnBy(draw([point(0, value), point(1, value)]), { log: false });
      const share = (chart.drawn(value) - scale.min) / (scale.max - scale.min);
      assert.ok(share > 0.3 && share < 0.7, `${value}: ${share}`);
    }
  }
});

test("plus and minus the largest have a line, also smoothed on a log scale", () => {
  const points = Array.from({ length: 50 }, (_, x) => point(x, x % 2 ? -1e308 : 1e308));
  smoothOn(begun(0.6), points);
  assert.ok(draw(points)[0].y.every((value) => Math.abs(value) === 1e308));
  const [line] = draw(points, { log: true, smooth: 0.6 });
  assert.ok(line.y.filter((value) => value > 0).length >= 20);
  assert.ok(line.faint.filter((value) => value === 1e308).length === 25);
});

test("an average stays within what was seen, and finds back from any height", () => {
  for (let round = 0; round < 500; round += 1) {
    const weight = chosen([0.1, 0.6, 0.9, 0.99]);
    const values = Array.from({ length: 40 }, extreme);
    const points = [...values, ...Array(8000).fill(1)].map((value, x) => point(x, value));
    smoothOn(begun(weight), points);
    const [low, high] = [Math.min(...values, 1), Math.max(...values, 1)];
    assert.ok(points.every(({ s }) => s >= low && s <= high), JSON.stringify([weight, values]));
    if (weight <= 0.9) assert.ok(Math.abs(points.at(-1).s - 1) < 1e-6);
  }
});

test("a map of ranks is of finite means", () => {
  for (let round = 0; round < 500; round += 1) {
    const curve = (rank) => {
      const value = Array.from({ length: 9 }, extreme);
      const ones = Array(9).fill(1);
      return { rank: Array(9).fill(rank), attempt: 1, data_source: "s", iteration: value.map((_, at) => at), timestamp: value.map((_, at) => at), value, count: ones.map(() => 1 + Math.floor(random() * 9)), not_finite: ones.map(() => 0) };
    };
    const { means, cells, low, high } = mapOf([curve(0), curve(1), { ...curve(2), iteration: [0, 1, 2, 3, 4, 5, 6, 7, 30] }], false);
    for (const value of [...means, ...cells.flat().filter((one) => one !== null), low, high]) assert.ok(Number.isFinite(value));
  }
});

test("a value between two that have no place is a dot", () => {
  assert.deepEqual(lonely([1, null, 2, undefined, null, 3, 4, null, 5]), [0, 2, 8]);
  assert.deepEqual(lonely([1, undefined, 2, null, undefined, 3]), [5]);
  assert.deepEqual(lonely([null, undefined]), []);
});
