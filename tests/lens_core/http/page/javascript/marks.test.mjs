import assert from "node:assert/strict";
import test from "node:test";

import { alarmSpans, eventMarks, lookOf, placed, symbolPath } from "./marks.js";

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

const run = (id, first, last, since, until) => ({ run_id: id, first_iteration: first, last_iteration: last, first_seen: since, last_seen: until });
const event = (timestamp, iteration = null, id = "") => ({ type: "training_failed", timestamp, iteration, run_id: id });

test("an event without an iteration stands where its job was by then", () => {
  const runs = [run("a", 0, 100, 1000, 2000), run("a", 80, 180, 3000, 4000), run("b", 0, 10, 1000, 9000)];
  const at = (...all) => placed(all, runs).map((one) => one.iteration);
  assert.deepEqual(at(event(1500, null, "a"), event(2500, null, "a"), event(3500, null, "a"), event(9999, null, "a")), [50, 100, 130, 180]);
  assert.deepEqual(at(event(1500, 7, "a"), event(500, null, "a")), [7, 0]);
  assert.deepEqual(placed([event(5)], []).map((one) => one.iteration), [null]);
});
