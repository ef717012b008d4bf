// The heat map of ranks: every value in one cell, the slowest rank first.

import assert from "node:assert/strict";
import test from "node:test";

import { mapOf } from "./ranks.js";

const random = (() => {
  let seed = 27;
  return () => (seed = (seed * 16807) % 2147483647) / 2147483647;
})();

// values: [iteration, value, count] of each bucket; a value that is null is of a bucket without a number
function curve(rank, values, more = {}) {
  const column = (of) => values.map(of);
  return {
    rank: column(() => rank), attempt: 1, run_id: "r", data_source: "wandb", iteration: column(([x]) => x), timestamp: column(([x]) => 1000 * x),
    value: column(([, y]) => y), count: column(([, , many = 1]) => many), not_finite: column(([, y, many = 1]) => (y === null ? many : 0)), ...more,
  };
}

test("ranks are in the order of their means, whichever is the slow end", () => {
  const curves = [curve(0, [[1, 2], [2, 2]]), curve(1, [[1, 9], [2, null]]), curve(2, [[1, 1], [2, 5]])];
  const slow = mapOf(curves, false);
  assert.deepEqual([slow.ranks, slow.means, slow.edges], [[1, 2, 0], [9, 3, 2], [1, 2]]);
  assert.deepEqual(slow.cells, [[9, null], [1, 5], [2, 2]]);
  assert.deepEqual([slow.low, slow.high], [1, 9]);
  assert.deepEqual(mapOf(curves, true).ranks, [0, 2, 1]);
});

test("every value is in a cell, wherever the buckets of a rank end", () => {
  for (let round = 0; round < 200; round += 1) {
    const curves = Array.from({ length: 1 + Math.floor(4 * random()) }, (_, rank) => {
      let x = Math.floor(5 * random());
      return curve(rank, Array.from({ length: 1 + Math.floor(9 * random()) }, () => [(x += 1 + Math.floor(4 * random())), random(), 1 + Math.floor(3 * random())]));
    });
    const map = mapOf(curves, false);
    assert.equal(map.ranks.length, curves.length);
    assert.ok(map.edges.every((edge, place) => place === 0 || edge > map.edges[place - 1]));
    map.ranks.forEach((rank, line) => {
      const { value, count, iteration } = curves[rank];
      const mean = value.reduce((sum, one, place) => sum + one * count[place], 0) / count.reduce((sum, one) => sum + one, 0);
      assert.ok(Math.abs(map.means[line] - mean) < 1e-12);
      const filled = new Set(iteration.map((x) => map.edges.findIndex((edge) => edge >= x)));
      map.cells[line].forEach((cell, column) => assert.equal(cell !== null, filled.has(column)));
    });
    assert.ok(map.means.every((mean, line) => line === 0 || mean <= map.means[line - 1]));
  }
});

test("of several attempts the newest is shown, and of rows without a rank nothing", () => {
  const old = curve(0, [[1, 7]]);
  const now = { attempt: 2, run_id: "s" };
  const map = mapOf([old, curve(0, [[5, 1]], now), curve(1, [[4, 2]], now), curve(null, [[6, 3]], now)], false);
  assert.deepEqual([map.ranks, map.means], [[1, 0], [2, 1]]);
  assert.deepEqual(mapOf([], false).ranks, []);
});
