import assert from "node:assert/strict";
import test from "node:test";

import { optionsFrom, parametersOf } from "./state.js";
import { inOrder } from "./gridtools.js";
import { matcher, sectionsOf, wantedMetrics } from "./sections.js";

const plain = () => optionsFrom(new URLSearchParams());
const shown = (metrics, more = {}) => sectionsOf(metrics, { ...plain(), ...more });

test("numbers in names are in their order", () => {
  assert.deepEqual(inOrder(["m10", "m2", "layer10/norm", "layer9/norm", "loss"]), ["loss", "layer9/norm", "layer10/norm", "m2", "m10"]);
});

test("metrics whose names begin alike have a section, pinned ones the first", () => {
  const metrics = ["loss", "epoch", "train/acc", "train/loss", "layer00/norm", "layer01/norm", "alone/x"];
  assert.deepEqual(shown(metrics).map(({ title, metrics: all }) => [title, all]), [
    ["", ["loss", "alone/x"]],
    ["train", ["train/loss", "train/acc"]],
    ["layer*", ["layer00/norm", "layer01/norm"]],
  ]);
  const pinned = shown(metrics, { pinned: new Set(["train/acc", "gone"]) });
  assert.deepEqual(pinned[0], { title: "Pinned", metrics: ["train/acc"], isOpen: true });
  assert.equal(pinned.flatMap((section) => section.metrics).filter((metric) => metric === "train/acc").length, 1);
});

test("sections are open while there is room, and as somebody left them", () => {
  const metrics = ["a", "b", "c"].flatMap((head) => Array.from({ length: 15 }, (_, place) => `${head}/${place}`));
  const open = (more) => shown(metrics, more).map((section) => section.isOpen);
  assert.deepEqual(open({}), [true, false, false]);
  assert.deepEqual(open({ open: new Set(["c"]), closed: new Set(["a"]) }), [false, false, true]);
  assert.deepEqual(open({ filter: "." }), [true, true, true]);
});

test("a filter is a regular expression, and a text where it is none", () => {
  const metrics = ["loss", "val_loss", "lr(", "epoch"];
  assert.deepEqual(wantedMetrics(metrics, { ...plain(), filter: "^LOSS|lr" }), ["loss", "lr("]);
  assert.deepEqual(wantedMetrics(metrics, { ...plain(), filter: "lr(" }), ["lr("]);
  assert.equal(matcher("lr(").isValid, false);
  assert.deepEqual(wantedMetrics(metrics, { ...plain(), filter: "epo" }), ["epoch"]); // a counter, when asked for
  assert.deepEqual(wantedMetrics(metrics, plain()), ["loss", "val_loss", "lr("]);
  assert.deepEqual(wantedMetrics(metrics, { ...plain(), chosen: ["*"] }), metrics);
  assert.deepEqual(wantedMetrics(["epoch"], plain()), ["epoch"]);
});

test("the address holds every choice", () => {
  const query = new URLSearchParams("axis=metric:a%20b&logx=1&log=1&smooth=0.6&events=0&outliers=0&hide=r1&hide=r2&from=1700000000123&to=1700000060000&metric=loss&tall=loss&filter=%5Ea&pin=x&open=c&closed=d");
  const options = optionsFrom(query);
  assert.deepEqual([options.axis, options.range, [...options.hidden]], ["metric:a b", [1700000000123, 1700000060000], ["r1", "r2"]]);
  const again = new URLSearchParams();
  for (const [key, value] of Object.entries(parametersOf(options))) for (const item of [value].flat()) if (item !== "") again.append(key, item);
  assert.deepEqual(optionsFrom(again), options);
  assert.equal(again.size, query.size);
  const { from, to } = parametersOf({ ...options, range: [238.604825949367, 358.025712025316] });
  assert.deepEqual([from, to, parametersOf({ ...options, range: [from, to] }).from], [238.6, 358.03, 238.6]);
  for (const broken of ["axis=nothing", "from=3&to=1", "from=x&to=2", "smooth=7", "axis=time&logx=1"]) {
    const found = optionsFrom(new URLSearchParams(broken));
    assert.ok(found.range === null && found.smooth <= 0.99 && !found.logX);
  }
  assert.equal(optionsFrom(new URLSearchParams("logx=1&from=0&to=100")).range, null);
  assert.deepEqual(optionsFrom(new URLSearchParams("logx=1&from=1&to=100")).range, [1, 100]);
  assert.deepEqual(Object.values(parametersOf(plain())).flat().filter((item) => item !== ""), []);
});

test("of metrics that differ only by a rank in their names the lowest is shown, until others are chosen", () => {
  const metrics = ["rank10/loss", "rank2/loss", "rank_1/lr", "time/rank-0", "time/rank-7", "ranking/0", "ranking/1", "crank3", "crank4", "loss"];
  assert.deepEqual(wantedMetrics(metrics, plain()), ["rank2/loss", "rank_1/lr", "time/rank-0", "ranking/0", "ranking/1", "crank3", "crank4", "loss"]);
  assert.deepEqual(wantedMetrics(metrics, { ...plain(), filter: "rank.*loss" }), ["rank10/loss", "rank2/loss"]);
  assert.deepEqual(wantedMetrics(metrics, { ...plain(), chosen: ["*"] }), metrics);
});
