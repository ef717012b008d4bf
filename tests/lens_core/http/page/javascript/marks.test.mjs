import assert from "node:assert/strict";
import test from "node:test";

import { alarmSpans, eventMarks, lookOf, symbolPath } from "./marks.js";

const marks = (type, iterations) => iterations.map((x) => ({ type, x }));

test("each of a few alarms has its line", () => {
  const spans = alarmSpans([...marks("out_of_memory", [3]), ...marks("stalled", [9, 5])]);
  assert.deepEqual(spans, [3, 9, 5].map((x) => ({ from: x, to: x })));
});

test("five hundred of a kind are one band over all of them", () => {
  const spans = alarmSpans(marks("loss_not_finite", Array.from({ length: 500 }, (_, place) => 600 - place)));
  assert.deepEqual(spans, [{ from: 101, to: 600 }]);
});

test("what went well has no line", () => {
  assert.deepEqual(alarmSpans(marks("checkpoint_saved", [1, 2])), []);
});

test("every kind of event has a symbol, and an axis that says nothing of it has none", () => {
  for (const type of ["checkpoint_saved", "checkpoint_saving", "evaluation", "loss_not_finite", "training_started", "training_ended", "loss_spike", "out_of_memory", "custom"]) {
    const [symbol, colour] = lookOf(type);
    assert.match(symbolPath(symbol, 10, 20, 8), /^M[-0-9. LMaZ]+$/);
    assert.match(colour, /^#/);
  }
  const events = [{ type: "custom", timestamp: 5000, iteration: 7 }, { type: "custom", timestamp: 6000, iteration: null }, { type: "custom", timestamp: 1, iteration: 0 }];
  const places = (axis, logX = false) => eventMarks(events, { events: true, axis, logX }).map((mark) => mark.x);
  assert.deepEqual(places("iteration"), [7, 0]);
  assert.deepEqual(places("iteration", true), [7]);
  assert.deepEqual(places("time"), [5000, 6000, 1]);
  assert.deepEqual([places("relative"), places("metric:loss")], [[], []]);
});
