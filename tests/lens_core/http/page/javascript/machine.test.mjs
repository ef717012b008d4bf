import assert from "node:assert/strict";
import test from "node:test";

import { heights } from "./axes.js";
import { linesOf } from "./lines.js";
import { curveOf } from "./machine.js";
import { strokeAt } from "./palette.js";

const options = { axis: "time", log: false, logX: false, smooth: 0, outliers: true, range: null, hidden: new Set() };
const looks = { placeAll: () => {}, of: () => strokeAt(0) };
const draw = (curve) => linesOf(new Map([[curve.key, curve]]), null, options, looks)[0];
const measured = (timestamps, values, more = {}) => ({ node: "n1", tags: { gpu: "0" }, timestamps, values, min: values, max: values, ...more });

test("a measurement is a line by time, with a band where its values differ", () => {
  const curve = curveOf(measured([10, 20, 30], [1, 2, 3], { min: [0, 2, 3], max: [4, 2, 3] }));
  assert.equal(curve.label, "n1 gpu 0");
  const line = draw(curve);
  assert.deepEqual([line.x, line.y, line.low, line.high], [[10, 20, 30], [1, 2, 3], [0, 2, 3], [4, 2, 3]]);
  assert.ok(heights([line], options)[1] > 4);
});

test("a machine that was not measured for a while, or measured no number, has no line there", () => {
  const line = draw(curveOf(measured([10, 20, 30, 200, 210], [1, 1, 1, 5, 5])));
  assert.deepEqual([line.x, line.y], [[10, 20, 30, 199, 200, 210], [1, 1, 1, null, 5, 5]]);
  assert.deepEqual(draw(curveOf(measured([10, 20, 30], [1, "NaN", 3]))).y, [1, null, 3]);
  assert.deepEqual(draw(curveOf(measured([10], [7]))).y, [7]);
});
