// Charts that only move share the frames; what is new is drawn at once.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Frames, Movement } from "./frames.js";

const CARDS = Array.from({ length: 20 }, (_, place) => `card ${place}`);

// Frames in which a chart takes so many milliseconds, most of them after the script that draws it.
function drawing(each) {
  let clock = 0;
  let after = [];
  const frames = new Frames(() => clock, (callback) => after.push(callback));
  const draw = (cards, fresh = [], pointed = null, quality = "whole") => {
    const drawn = [...frames.inTurn(cards, new Set(fresh), pointed, quality)];
    clock += each * drawn.length;
    after.forEach((callback) => callback());
    after = [];
    return drawn;
  };
  return { frames, draw };
}

test("all charts are drawn in one frame where there is time, and not again until they change", () => {
  const { frames, draw } = drawing(0.1);
  frames.change(CARDS);
  draw(CARDS);
  while (frames.isBehind) draw(CARDS);
  frames.change(CARDS);
  assert.deepEqual(draw(CARDS), CARDS);
  assert.equal(frames.isBehind, false);
  assert.deepEqual(draw(CARDS), []);
});

test("every chart has its turn within six frames, however long a zoom goes on, and its end reaches all", () => {
  for (const each of [0.3, 1, 2, 5, 50]) {
    const { frames, draw } = drawing(each);
    const seen = [];
    for (let frame = 0; frame < 18; frame += 1) {
      frames.change(CARDS);
      seen.push(draw(CARDS, [], CARDS[7]));
      assert.equal(seen.at(-1)[0], CARDS[7]);
    }
    for (const card of CARDS) for (let frame = 0; frame < 12; frame += 1) assert(seen.slice(frame, frame + 6).flat().includes(card));
    for (let frame = 0; frame < CARDS.length; frame += 1) draw(CARDS, [], CARDS[7]);
    assert.equal(frames.isBehind, false);
  }
});

test("so many charts are drawn as the last frames had time for, what came after the script included", () => {
  const { frames, draw } = drawing(2);
  frames.change(CARDS);
  for (let frame = 0; frame < 10; frame += 1) {
    draw(CARDS);
    frames.change(CARDS);
  }
  assert.equal(draw(CARDS).length, 5);
});

test("charts that move are sketches only where a frame has no time for all of them", () => {
  for (const [each, quality] of [[0.3, "whole"], [0.9, "sketch"]]) {
    const { frames, draw } = drawing(each);
    frames.change(CARDS);
    draw(CARDS);
    assert.equal(frames.qualityOf(20), quality);
    assert.equal(frames.qualityOf(2), "whole");
  }
});

test("what a sketch costs says nothing of what a whole chart does, and neither does a new one", () => {
  const { frames, draw } = drawing(3);
  frames.change(CARDS);
  draw(CARDS, [CARDS[0]]);
  assert.deepEqual(frames.costs, { whole: null, sketch: null });
  draw(CARDS, [], null, "sketch");
  assert.deepEqual(frames.costs, { whole: null, sketch: 3 });
});

test("new charts do not wait for a frame", () => {
  const { frames, draw } = drawing(50);
  frames.change(CARDS);
  draw(CARDS);
  frames.change(CARDS);
  assert.deepEqual(draw(CARDS, [CARDS[14], CARDS[12]], CARDS[19]).slice(0, 3), [CARDS[14], CARDS[12], CARDS[19]]);
});

test("a chart that is out of sight is waited for no more", () => {
  const { frames, draw } = drawing(50);
  frames.change(CARDS);
  draw(CARDS.slice(0, 1));
  assert.equal(frames.isBehind, false);
});

test("zooms that follow each other closely are a movement, which ends after the last", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let clock = 0;
  let stood = 0;
  const movement = new Movement(() => (stood += 1), () => clock);
  const pass = (time) => {
    clock += time;
    t.mock.timers.tick(time);
  };
  movement.go();
  assert.equal(movement.isOn, false);
  for (let zoom = 0; zoom < 50; zoom += 1) {
    pass(16);
    movement.go();
    assert.equal(movement.isOn, true);
  }
  pass(119);
  assert.deepEqual([movement.isOn, stood], [true, 0]);
  pass(1);
  assert.deepEqual([movement.isOn, stood], [false, 1]);
  pass(500);
  movement.go();
  pass(10);
  movement.go();
  movement.end();
  pass(500);
  assert.equal(stood, 1);
});
