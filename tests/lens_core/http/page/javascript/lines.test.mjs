import assert from "node:assert/strict";
import test from "node:test";

import { heights } from "./axes.js";
import { timesOf, steered, zoomedAt } from "./gridtools.js";
import { aligned, extentOf, hiddenText, leftOutText, linesOf, merge, nearest, specialsOf } from "./lines.js";
import { Palette } from "./palette.js";

const random = (() => {
  let seed = 11;
  return () => (seed = (seed * 16807) % 2147483647) / 2147483647;
})();
const whole = (most) => Math.floor(random() * most);
const point = (x, y, more = {}) => ({ x, t: 1000 * x, y, low: y, high: y, last: y, steps: 1, count: 1, bad: 0, special: null, ...more });
const series = (points, key = "k", figures = {}) => ({ key, uid: "u", run: key, attempt: 1, source: "wandb", points, figures });
const options = { axis: "iteration", log: false, logX: false, smooth: 0, range: null, outliers: true, hidden: new Set() };
const palette = () => new Palette(new Map([["u", "u"]]));
const draw = (all, more = {}, along = null, colours = palette()) => linesOf(new Map(all.map((one) => [one.key, one])), null, { ...options, ...more }, colours, along);

test("buckets are a line with a band, and the axis reaches to its ends", () => {
  const points = [point(0, 2), point(500, 2.5, { low: 1, high: 900, count: 499 }), point(1000, 3)];
  const one = series(points, "k", { count: 501, p2: 1.5, p98: 3, min: 1, max: 900 });
  const [line] = draw([one]);
  assert.deepEqual([line.y, line.low, line.high, line.faint], [[2, 2.5, 3], [2, 1, 3], [2, 900, 3], null]);
  assert.ok(heights([line], options)[1] > 900);
  // Without outliers the axis goes by the percentiles of all points, not by those of what is drawn.
  const [low, high] = heights(draw([one]), { ...options, outliers: false });
  assert.ok(low > 1.3 && low < 1.5 && high > 3 && high < 3.2);
  // A smoothed line is what the server made of all points.
  points.forEach((bucket, place) => (bucket.s = [2, 2.1, 2.2][place]));
  const [smoothed] = draw([one], { smooth: 0.9 });
  assert.deepEqual([smoothed.y, smoothed.faint], [[2, 2.1, 2.2], [2, 2.5, 3]]);
});

test("a single iteration beside means of many is no stroke at the end of a line", () => {
  const many = { steps: 8, count: 8, low: 0, high: 9 };
  const points = [point(0, 9), point(8, 2, many), point(16, 3, many), point(17, 0)];
  points.forEach((one) => (one.s = 2));
  const drawn = (more) => {
    const { series: curves, columns } = aligned(draw([series(points)], more));
    return Object.fromEntries(curves.map(({ role }, place) => [role, columns[place + 1]]));
  };
  assert.deepEqual(drawn().y, [null, 2, 3, null]);
  assert.deepEqual(drawn().high, [9, 9, 9, 0]);
  assert.deepEqual([drawn({ smooth: 0.5 }).faint, drawn({ smooth: 0.5 }).y], [[null, 2, 3, null], [2, 2, 2, 2]]);
  assert.deepEqual(draw([series(points)])[0].y, [9, 2, 3, 0]); // which the cursor tells
  const few = points.map((one) => ({ ...one, steps: 1 }));
  assert.deepEqual(aligned(draw([series(few)])).columns[1 + 2], [9, 2, 3, 0]);
});

test("log scales show what they can and say what they cannot", () => {
  const points = [point(0, 1), point(1, 0), point(9, 5, { low: -1, high: 9, count: 8 }), point(10, 0.1)];
  const lines = draw([series(points)], { log: true, logX: true });
  assert.deepEqual(lines[0].x, [1, 9, 10]);
  assert.deepEqual(lines[0].y, [null, 5, 0.1]);
  assert.ok(lines[0].low.every((value) => value === null || value > 0));
  assert.equal(hiddenText(lines), "1 point at or below 0 not shown, 1 point at or left of 0 not shown");
  assert.equal(hiddenText(draw([series(points)])), "");
  const nowhere = draw([series(points)]).map((line) => ({ ...line, x: [] }));
  assert.equal(hiddenText(nowhere), "No point has a place on this axis");
});

test("every axis finds a place for a point", () => {
  const points = [point(5, 1), point(10, 2), point(20, 3)];
  const x = (axis, along) => draw([series(points)], { axis }, along)[0].x;
  assert.deepEqual(x("iteration"), [5, 10, 20]);
  assert.deepEqual(x("time"), [5000, 10000, 20000]);
  assert.deepEqual(x("relative"), [0, 5000, 15000]);
  const settled = palette();
  settled.settle([{ uid: "u", run: "k", attempt: 1, source: "wandb", since: 4000 }]);
  assert.deepEqual(draw([series(points)], { axis: "relative" }, null, settled)[0].x, [1000, 6000, 16000]);
  // Of the metric that is the axis there may be other points; before the first one nothing is known.
  const along = (...values) => new Map([["k", series(values)]]);
  assert.deepEqual(x("metric:tokens", along(point(0, 0), point(10, 100), point(20, 300))), [50, 100, 300]);
  assert.deepEqual(x("metric:tokens", along(point(8, 80), point(12, 120))), [100]);
  assert.deepEqual(x("metric:tokens", along()), []);
  assert.deepEqual(x("metric:tokens", null), []);
});

test("where the metric that is the axis goes back, points are not connected", () => {
  const along = new Map([["k", series([point(0, 1), point(1, 3), point(2, 2)])]]);
  const [line] = draw([series([point(0, 10), point(1, 11), point(2, 12)])], { axis: "metric:m" }, along);
  assert.deepEqual([line.x, line.y, line.isScattered], [[1, 2, 3], [10, 12, 11], true]);
});

test("finer points stand in for the coarse ones of their time", () => {
  const coarse = [0, 10, 20, 30].map((x) => point(x, x));
  const fine = { times: [10_000, 20_000], points: [10, 12, 14, 20].map((x) => point(x, x)) };
  assert.deepEqual(merge(coarse, fine).map((one) => one.x), [0, 10, 12, 14, 20, 30]);
  assert.equal(merge(coarse, undefined), coarse);
  assert.deepEqual(timesOf(draw([series(coarse)]), [12, 18]), [10_000, 20_000]);
  assert.equal(timesOf(draw([series(coarse)]), [40, 50]), null);
});

// Each line must be found again, in its order, in the columns that it shares with the others.
test("columns hold every point of every line once, and no gap that is none", () => {
  for (let round = 0; round < 300; round += 1) {
    const all = Array.from({ length: 1 + whole(5) }, (_, place) => {
      const xs = Array.from({ length: whole(12) + 1 }, () => whole(15)).sort((one, other) => one - other);
      return series(xs.map((x) => point(x, random() < 0.2 ? null : random(), { count: 2 })), `k${place}`);
    });
    const lines = draw(all, { smooth: random() < 0.5 ? 0.5 : 0 });
    const { series: curves, columns } = aligned(lines);
    assert.equal(columns.length, curves.length + 1);
    assert.ok(columns[0].every((x, row) => row === 0 || x >= columns[0][row - 1]));
    curves.forEach(({ line, role }, place) => {
      const column = columns[place + 1];
      const rows = [...column.keys()].filter((row) => column[row] !== undefined || (lines.length === 1 && row < column.length));
      assert.deepEqual(rows.map((row) => [columns[0][row], column[row]]), line.x.map((x, at) => [x, line[role][at]]).filter(([, value]) => lines.length === 1 || value !== undefined));
    });
  }
});

test("the nearest point is the nearest", () => {
  for (let round = 0; round < 500; round += 1) {
    const x = Array.from({ length: 1 + whole(20) }, () => random() * 100).sort((one, other) => one - other);
    const at = random() * 120 - 10;
    const best = Math.min(...x.map((one) => Math.abs(one - at)));
    assert.equal(Math.abs(x[nearest({ x }, at)] - at), best);
  }
  assert.equal(nearest({ x: [] }, 3), -1);
});

test("all lines have one extent, and what is no number is told with its place", () => {
  const lines = draw([series([point(3, 1), point(8, null, { special: "NaN" })], "a"), series([point(1, 1), point(5, 1)], "b")]);
  assert.deepEqual(extentOf(lines), [1, 8]);
  assert.equal(extentOf([]), null);
  assert.deepEqual(specialsOf(lines).map(({ x, text }) => [x, text]), [[8, "NaN at iteration 8"]]);
});

test("a range never leaves the whole, and the whole is no range", () => {
  for (let round = 0; round < 500; round += 1) {
    const all = [1 + random(), 2 + random() * 1000];
    const isLog = random() < 0.5;
    let range = null;
    for (let step = 0; step < 20; step += 1) {
      const key = ["+", "-", "ArrowLeft", "ArrowRight"][whole(4)];
      range = random() < 0.5 ? steered(range, all, key, isLog) : zoomedAt(range, all, random(), random() < 0.5 ? 0.8 : 1.25);
      if (range) assert.ok(range[0] >= all[0] * (1 - 1e-12) && range[1] <= all[1] * (1 + 1e-12) && range[0] < range[1], JSON.stringify([range, all]));
    }
  }
  assert.equal(steered(null, [0, 1], "x"), undefined);
  assert.deepEqual(steered(null, [1, 1e4], "+", true).map((end) => Math.round(end)), [10, 1000]);
});

test("what an answer leaves out is said", () => {
  assert.equal(leftOutText([]), "");
  assert.equal(leftOutText([{ echo_of: "t", data_source: "wandb", left_out: ["mlflow"] }]), "Not shown: rows of mlflow that repeat those of wandb");
  const two = [{ data_source: "wandb", left_out: ["tensorflow", "log"] }, { data_source: "wandb", left_out: ["log"] }, { data_source: "mlflow", left_out: ["otlp"] }, { data_source: "x", left_out: [] }];
  assert.equal(leftOutText(two), "Not shown: rows of log, tensorflow that repeat those of wandb; rows of otlp that repeat those of mlflow");
});

test("a place on the x axis that cannot be drawn is counted, and hides no other", () => {
  const along = new Map([["k", series([point(0, 1.7e308), point(1, -1.7e308), point(2, 3)])]]);
  const lines = draw([series([point(0, 1), point(1, 2), point(2, 3)])], { axis: "metric:m" }, along);
  assert.deepEqual(lines[0].x, [3]);
  assert.match(hiddenText(lines), /^2 points beyond .2\.25e307 of x not shown$/);
});
