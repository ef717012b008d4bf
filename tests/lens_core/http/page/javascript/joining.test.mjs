import assert from "node:assert/strict";
import test from "node:test";

import { beginsOf, hasAttempts, hasOtherRanks, joinAttempts, lowestRanks, rankGroups } from "./joining.js";

const point = (x, attempt) => ({ x, t: 1000 * (x + 1000 * attempt), y: x, attempt, count: 1 });
const curve = (attempt, from, to, more = {}) => ({
  key: `${more.run ?? "r"}${attempt}`, uid: "u", source: "wandb", run: "r", attempt, figures: {},
  points: Array.from({ length: to - from }, (_, place) => point(from + place, attempt)), ...more,
});
const mapped = (...all) => new Map(all.map((one) => [one.key, one]));
const only = (series) => [...series.values()][0];

test("a later attempt replaces the steps that it repeated", () => {
  const { points, begins, attempt } = only(joinAttempts(mapped(curve(2, 3, 7), curve(1, 0, 5), curve(3, 5, 9))));
  assert.deepEqual(points.map((one) => [one.x, one.attempt]), [[0, 1], [1, 1], [2, 1], [3, 2], [4, 2], [5, 3], [6, 3], [7, 3], [8, 3]]);
  assert.deepEqual(begins.map((one) => [one.x, one.attempt]), [[3, 2], [5, 3]]);
  assert.equal(attempt, null);
});

test("joined lines go forward, hold every iteration once, and the newest attempt is whole, whatever attempts there are", () => {
  let seed = 7;
  const whole = (most) => (seed = (seed * 16807) % 2147483647) % most;
  for (let round = 0; round < 300; round += 1) {
    const curves = Array.from({ length: 1 + whole(6) }, (_, place) => {
      const from = whole(30);
      return curve(place + 1, from, from + whole(20));
    });
    const filled = curves.filter((one) => one.points.length);
    if (!filled.length) continue;
    const { points } = only(joinAttempts(mapped(...filled)));
    const xs = points.map((one) => one.x);
    assert.deepEqual(xs, [...new Set(xs)].sort((a, b) => a - b));
    const newest = filled.at(-1).points.map((one) => one.x);
    assert.deepEqual(points.filter((one) => one.attempt === filled.at(-1).attempt).map((one) => one.x), newest);
    for (const one of points) assert.ok(!filled.some((later) => later.attempt > one.attempt && later.points[0].x <= one.x));
  }
});

test("a part of a run is joined where the whole one is", () => {
  const all = mapped(curve(1, 0, 100), curve(2, 50, 150));
  const part = mapped(curve(1, 20, 90));
  assert.deepEqual(only(joinAttempts(part, beginsOf(all))).points.length, 70);
  const both = mapped(curve(1, 20, 90), curve(2, 60, 90));
  assert.deepEqual(only(joinAttempts(both, beginsOf(all))).points.map((one) => one.attempt), [...Array(30).fill(1), ...Array(30).fill(2)]);
});

test("runs stay apart, and one attempt is what it was", () => {
  const one = curve(1, 0, 5, { run: "a" });
  const found = joinAttempts(mapped(one, curve(1, 0, 5, { run: "b" })));
  assert.equal(found.size, 2);
  assert.deepEqual(only(found).begins, []);
  assert.equal(only(found).points, one.points);
  assert.ok(!hasAttempts([one, one]));
  assert.ok(hasAttempts([one, { ...one, attempt: 2 }]));
});

test("percentiles of a joined line hold those of its attempts", () => {
  const figures = (p2, p98) => ({ figures: { count: 50, p2, p98 } });
  assert.deepEqual(only(joinAttempts(mapped(curve(1, 0, 5, figures(1, 8)), curve(2, 3, 9, figures(0.5, 4))))).figures, { count: 100, p2: 0.5, p98: 8 });
  assert.deepEqual(only(joinAttempts(mapped(curve(1, 0, 5, figures(1, 8)), curve(2, 3, 9)))).figures, {});
});

test("of ranks that log runs of their own the lowest one is drawn, in charts that it is in", () => {
  const run = (rank, since, until, name = `run-${rank}`) => ({ uid: "u", source: "wandb", run: name, attempt: 1, rank, since, until });
  const groups = rankGroups([run(2, 3, 98), run(0, 0, 100), run(1, 5, 99), run(0, 200, 300, "again-0"), run(1, 205, 300, "again-1")]);
  assert.ok(hasOtherRanks(groups));
  const of = (...names) => mapped(...names.map((name) => curve(1, 0, 3, { run: name })));
  const shown = (...names) => [...lowestRanks(of(...names), groups).values()].map((one) => one.run);
  assert.deepEqual(shown("run-2", "run-0", "run-1", "again-1", "again-0"), ["run-0", "again-0"]);
  assert.deepEqual(shown("run-2", "run-1"), ["run-1"]);
  assert.deepEqual(shown("other", "run-2"), ["other", "run-2"]);
  // Trials of a sweep have the same rank or none, and one run of many ranks is one curve already.
  for (const runs of [[run(0, 0, 9, "a"), run(0, 0, 9, "b")], [run(null, 0, 9, "a"), run(null, 0, 9, "b")], [run(0, 0, 9, "a"), run(1, 0, 9, "a")], [run(0, 0, 9, "a"), run(1, 10, 19, "b")]]) {
    assert.ok(!hasOtherRanks(rankGroups(runs)));
  }
});
