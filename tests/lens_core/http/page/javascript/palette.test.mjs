// Looks of lines: one colour each, and names that say what is not the same for all.

import assert from "node:assert/strict";
import test from "node:test";

import { Palette } from "./palette.js";

const series = (run, source = "wandb", t = 0) => ({ uid: "u", run, attempt: null, source, points: [{ x: 1, t }] });
const labels = (looks) => looks.map((look) => look.label);

test("only what charts have now has a place in the legend", () => {
  const palette = new Palette(new Map([["u", "u"]]));
  const [first, second, log] = [series("a"), series("b"), series("", "log")];
  // Ranks that log runs of their own are drawn until the page knows that they are ranks.
  assert.deepEqual(labels(palette.looksOf([first, second, log])), ["log", "run a · wandb", "run b · wandb"]);
  assert.deepEqual(labels(palette.looksOf([first, log])), ["log", "run a · wandb"]);
  assert.deepEqual(labels(palette.looksOf([first])), ["run a · wandb"]);
  assert.deepEqual(palette.looksOf([]), []);
});

test("a line keeps its colour whatever else is drawn", () => {
  const palette = new Palette(new Map([["u", "u"]]));
  const [first, second] = [series("a"), series("b")];
  const [before] = palette.looksOf([first, second]);
  const [after] = palette.looksOf([first]);
  assert.equal(after, before);
  assert.notEqual(palette.looksOf([second])[0].colour, before.colour);
});

test("runs that only their name tells apart are named by it alone", () => {
  const palette = new Palette(new Map([["u", "u"]]));
  assert.deepEqual(labels(palette.looksOf([series("a"), series("b")])), ["run a", "run b"]);
});
