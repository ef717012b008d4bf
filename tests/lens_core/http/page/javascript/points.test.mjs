// Points are asked for in the order of the screen, few at once, and again after a failure.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Points } from "./points.js";

// Answers questions when they are let; notes which metrics were asked for.
function server() {
  const asked = [];
  globalThis.fetch = (url) => new Promise((resolve, reject) => {
    const query = new URL(url, "http://lens").searchParams;
    const metrics = [...new Set(query.getAll("metrics"))];
    const answer = (figures = {}) => {
      const of = (metric) => ({ metric_name: metric, data_source: "wandb", run_id: "r", attempt: 1 });
      const curves = metrics.map((metric) => ({ ...of(metric), ...COLUMNS }));
      resolve({ ok: true, json: async () => ({ curves, series: metrics.map((metric) => ({ ...of(metric), ...figures })) }) });
    };
    asked.push({ metrics, query, answer, fail: () => reject(new Error("down")) });
  });
  return asked;
}

const COLUMNS = { iteration: [1, 2], timestamp: [1, 2], value: [2, null], min: [2, null], max: [2, null], last: [2, "NaN"], steps: [1, 1], count: [1, 1], not_finite: [0, 1] };
const turn = () => new Promise((resolve) => setImmediate(() => setTimeout(resolve, 1)));
const NAMES = Array.from({ length: 8 }, (_, place) => `m${place}`);

test("what is first on the screen is asked for first, and what follows when that is there", async () => {
  const asked = server();
  const points = new Points(["u"], new AbortController().signal, assert.fail);
  const loaded = NAMES.map((metric) => points.load(metric));
  await turn();
  assert.deepEqual(asked.map((one) => one.metrics), [["m0", "m1", "m2"], ["m3", "m4", "m5"]]);
  assert.equal(asked[0].query.get("percentiles"), "false");
  asked[0].answer();
  await loaded[2];
  await turn();
  assert.deepEqual(asked[2].metrics, ["m6", "m7"]);
  const late = points.load("late"); // asked for while others run
  await turn();
  assert.equal(asked.length, 3);
  asked[1].answer();
  asked[2].answer();
  await turn();
  assert.deepEqual(asked[3].metrics, ["late"]);
  asked[3].answer();
  await Promise.all([...loaded, late]);
  const [curve] = (await points.load("m7")).values();
  assert.deepEqual(curve.points.map((point) => [point.x, point.y, point.special]), [[1, 2, null], [2, null, "NaN"]]);
  assert.equal(asked.length, 4);
});

test("a bunch that fails is asked for again, and holds up no other", async (context) => {
  const asked = server();
  const failures = [];
  const points = new Points(["u"], new AbortController().signal, (error) => failures.push(error.message));
  const loaded = NAMES.map((metric) => points.load(metric));
  await turn();
  context.mock.timers.enable({ apis: ["setTimeout"] });
  asked[0].fail();
  await new Promise(setImmediate);
  assert.equal(failures.length, 1);
  assert.deepEqual(asked[2].metrics, ["m6", "m7"]);
  asked[1].answer();
  asked[2].answer();
  await Promise.all(loaded.slice(3));
  context.mock.timers.tick(3000);
  await new Promise(setImmediate);
  assert.deepEqual(asked[3].metrics, ["m0", "m1", "m2"]);
  asked[3].answer();
  await Promise.all(loaded);
});

test("percentiles are asked for once they are wanted, of what has none", async () => {
  const asked = server();
  const points = new Points(["u"], new AbortController().signal, assert.fail);
  const loading = points.load("m0");
  await turn();
  asked[0].answer();
  await loading;
  const wanting = points.wantPercentiles(true);
  await turn();
  assert.deepEqual([asked[1].metrics, asked[1].query.get("percentiles")], [["m0"], null]);
  asked[1].answer({ p2: 1, p98: 3 });
  await wanting;
  assert.equal([...points.metrics.get("m0").values()][0].figures.p98, 3);
  await points.wantPercentiles(false);
  await points.wantPercentiles(true);
  assert.equal(asked.length, 2);
});
