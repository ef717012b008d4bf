// Charts that only move share the frames; what is new is drawn at once.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Frames } from "./frames.js";

const CARDS = Array.from({ length: 10 }, (_, place) => `card ${place}`);

// Frames in which drawing a chart takes so many milliseconds.
function drawing(each) {
  let clock = 0;
  const frames = new Frames(() => clock);
  const draw = (cards, fresh = [], pointed = null) => {
    const drawn = [];
    for (const card of frames.inTurn(cards, new Set(fresh), pointed)) {
      drawn.push(card);
      clock += each;
    }
    return drawn;
  };
  return { frames, draw };
}

test("all charts are drawn in one frame where there is time, and not again until they change", () => {
  const { frames, draw } = drawing(0.1);
  frames.change(CARDS);
  assert.deepEqual(draw(CARDS), CARDS);
  assert.equal(frames.isBehind, false);
  assert.deepEqual(draw(CARDS), []);
});

test("every chart has its turn, however long a zoom goes on, and its end reaches all", () => {
  for (const each of [1, 2, 5, 50]) {
    const { frames, draw } = drawing(each);
    const seen = new Set();
    for (let frame = 0; frame < CARDS.length; frame += 1) {
      frames.change(CARDS);
      const drawn = draw(CARDS, [], CARDS[7]);
      assert.equal(drawn[0], CARDS[7]);
      drawn.forEach((card) => seen.add(card));
    }
    assert.equal(seen.size, CARDS.length);
    for (let frame = 0; frame < CARDS.length; frame += 1) draw(CARDS, [], CARDS[7]);
    assert.equal(frames.isBehind, false);
  }
});

test("new charts do not wait for a frame", () => {
  const { frames, draw } = drawing(50);
  frames.change(CARDS);
  assert.deepEqual(draw(CARDS, [CARDS[4], CARDS[2]], CARDS[9]), [CARDS[4], CARDS[2], CARDS[9], CARDS[0]]);
});

test("a chart that is out of sight is waited for no more", () => {
  const { frames, draw } = drawing(50);
  frames.change(CARDS);
  draw(CARDS.slice(0, 1));
  assert.equal(frames.isBehind, false);
});
