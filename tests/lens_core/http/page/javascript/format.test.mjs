import assert from "node:assert/strict";
import test from "node:test";

import { money, number, priced, ranges } from "./format.js";

test("numbers have four digits, which never become a thousand of a unit", () => {
  const found = [999999.5, 123458.1, 4063.5, 4063, 999.95, 1e15, 5.99e-18, 1e-5, -12345678].map(number);
  assert.deepEqual(found, ["1 M", "123.5 k", "4,064", "4,063", "1,000", "1e15", "5.99e-18", "1e-5", "-12.35 M"]);
  for (const value of [999999.5, 9.9999e8, 999.9999e9, 9.98e14, 12345.6]) {
    const [amount] = number(value).split(" ");
    assert.ok(Math.abs(Number(amount)) < 1000, number(value));
  }
});

test("what is no number is said", () => {
  assert.deepEqual([NaN, Infinity, -Infinity, "NaN", null].map(number), ["NaN", "Infinity", "-Infinity", "NaN", "–"]);
});

test("ranks are joined", () => {
  assert.equal(ranges([3, 1, 2, 2, 9]), "1–3, 9");
  assert.equal(ranges(["3", "1", "2", "10", "pid 7"]), "1–3, 10, pid 7");
  assert.equal(ranges([]), "");
});

test("money is told where somebody gave a price", () => {
  assert.deepEqual([1234.5, 0, null, undefined].map(money), ["1,234.50", "0.00", "unknown", "unknown"]);
  assert.deepEqual(priced({ price_per_gpu_hour: 2.5 }, "Price"), ["Price"]);
  assert.deepEqual(priced({}, "Price"), []);
});
