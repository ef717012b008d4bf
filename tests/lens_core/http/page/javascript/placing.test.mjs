import assert from "node:assert/strict";
import test from "node:test";

import { placed } from "./placing.js";

const run = (id, first, last, since, until) => ({ run_id: id, first_iteration: first, last_iteration: last, first_seen: since, last_seen: until });
const event = (timestamp, iteration = null, id = "") => ({ type: "training_failed", timestamp, iteration, run_id: id });

test("an event without an iteration stands where its job was by then", () => {
  const runs = [run("a", 0, 100, 1000, 2000), run("a", 80, 180, 3000, 4000), run("b", 0, 10, 1000, 9000)];
  const at = (...all) => placed(all, runs).map((one) => one.iteration);
  assert.deepEqual(at(event(1500, null, "a"), event(2500, null, "a"), event(3500, null, "a"), event(9999, null, "a")), [50, 100, 130, 180]);
  assert.deepEqual(at(event(1500, 7, "a"), event(500, null, "a")), [7, 0]);
  assert.deepEqual(placed([event(5)], []).map((one) => one.iteration), [null]);
});
