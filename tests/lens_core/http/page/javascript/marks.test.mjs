import assert from "node:assert/strict";
import test from "node:test";

import { alarmShapes } from "./marks.js";

const marks = (type, iterations) => iterations.map((x) => ({ type, x }));

test("each of a few alarms has its line", () => {
  const shapes = alarmShapes([...marks("out_of_memory", [3]), ...marks("stalled", [9, 5])]);
  assert.deepEqual(shapes.map((shape) => [shape.type, shape.x0]), [["line", 3], ["line", 9], ["line", 5]]);
});

test("five hundred of a kind are one band over all of them", () => {
  const shapes = alarmShapes(marks("loss_not_finite", Array.from({ length: 500 }, (_, place) => 600 - place)));
  assert.deepEqual(shapes.map((shape) => [shape.type, shape.x0, shape.x1]), [["rect", 101, 600]]);
});

test("what went well has no line", () => {
  assert.deepEqual(alarmShapes(marks("checkpoint_saved", [1, 2])), []);
});
