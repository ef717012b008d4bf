// What is asked ahead is the answer of the first who asks for the same, and of nobody else.

import assert from "node:assert/strict";
import test from "node:test";

import { askAhead, get } from "./api.js";

function server() {
  const asked = [];
  globalThis.fetch = async (url) => {
    asked.push(url);
    if (asked.length === 1 && url.endsWith("broken")) throw new Error("down");
    return { ok: true, json: async () => asked.length };
  };
  return asked;
}

test("an answer that was asked for ahead is given once", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const asked = server();
  askAhead("overview", { limit: 50 });
  await get("overview", { limit: 20 });
  await get("overview", { limit: 50, search: "" });
  assert.equal(asked.length, 2);
  await get("overview", { limit: 50 });
  assert.equal(asked.length, 3);
});

test("nobody gets one that is old", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const asked = server();
  askAhead("overview");
  context.mock.timers.tick(5000);
  await get("overview");
  assert.equal(asked.length, 2);
});

test("a failure is told to who asks, and the next question is a new one", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const asked = server();
  askAhead("broken");
  await assert.rejects(get("broken"), /does not answer/);
  await get("broken");
  assert.equal(asked.length, 2);
});
