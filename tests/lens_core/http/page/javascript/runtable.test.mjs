import assert from "node:assert/strict";
import test from "node:test";

import { difference, differing } from "./runtable.js";

test("a difference is in per cent of the baseline", () => {
  assert.equal(difference(2.2, 2), "+10.0 %");
  assert.equal(difference(-3, -2), "-50.0 %");
  assert.equal(difference(2, 2), "±0 %");
  assert.equal(difference(2.00001, 2), "±0 %");
  assert.equal(difference(1e9, 1), "+100 G %");
  for (const [value, base] of [[1, 0], ["NaN", 1], [1, undefined], [1e308, -1e-308]]) assert.equal(difference(value, base), "");
});

test("settings that are the same in all runs are no columns", () => {
  const runs = [{ config: { lr: 1, width: 2, same: [1] } }, { config: { lr: 2, same: [1] } }];
  assert.deepEqual(differing(runs), ["lr", "width"]);
});
