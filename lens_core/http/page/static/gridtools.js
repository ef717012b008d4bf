// What the grid of charts needs to know of metrics and points.

import { count } from "./format.js";
import { xOf } from "./series.js";

const FIRST = [/^(lm_)?loss$/, /loss/, /acc/, /learning_rate|^lr$/, /grad_?norm/, /tflops|tokens|samples|throughput/, /mem/];

// Numbers that only count along: straight lines that nobody looks at, unless they choose to.
const COUNTS = /^((current|target)_iteration|(total_)?epochs?|step(s_per|_in)_epoch|((train|trainer)\/)?global_step|(train\/)?epoch)$/;

export const tells = (metric) => !COUNTS.test(metric);

export function inOrder(metrics) {
  const rank = (metric) => {
    if (!tells(metric)) return FIRST.length + 1;
    const place = FIRST.findIndex((pattern) => pattern.test(metric.toLowerCase()));
    return place < 0 ? FIRST.length : place;
  };
  return [...metrics].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
}

export function latest(series) {
  let newest = null;
  for (const one of series.values()) {
    const point = one.points.at(-1);
    if (point && (!newest || point.t >= newest.t)) newest = point;
  }
  return newest ? (newest.special ?? newest.y) : null;
}

// What a log scale cannot show is said, not hidden.
export function withoutLogarithm(series) {
  let hidden = 0;
  for (const one of series.values()) for (const point of one.points) if (point.y !== null && point.y <= 0) hidden += point.count;
  return hidden ? `${count(hidden)} ${hidden === 1 ? "point" : "points"} at or below 0 not shown` : "";
}

export function timesOf(all, axis, range) {
  let start = Infinity;
  let end = -Infinity;
  for (const series of all) {
    for (const one of series?.values() ?? []) {
      one.points.forEach((point, place) => {
        const before = one.points[Math.max(0, place - 1)];
        const after = one.points[Math.min(one.points.length - 1, place + 1)];
        if (xOf(after, axis) < range[0] || xOf(before, axis) > range[1]) return;
        start = Math.min(start, point.t);
        end = Math.max(end, point.t);
      });
    }
  }
  return start <= end ? [start, end] : null;
}

export function extentOf(all, axis) {
  const xs = [...all].flatMap((one) => (one.points.length ? [xOf(one.points[0], axis), xOf(one.points.at(-1), axis)] : []));
  return xs.length ? [Math.min(...xs), Math.max(...xs)] : null;
}

// By how much of what is shown each end moves.
const STEPS = { "+": [0.25, -0.25], "=": [0.25, -0.25], "-": [-0.5, 0.5], ArrowLeft: [-0.25, -0.25], ArrowRight: [0.25, 0.25] };

// What a key makes of the shown range: another one, null for the whole, undefined for a key that means nothing.
export function steered(range, whole, key) {
  const steps = STEPS[key];
  if (!steps) return undefined;
  const [from, to] = range ?? whole;
  const moves = steps.map((step) => step * (to - from));
  if (moves[0] === moves[1]) moves.fill(Math.max(whole[0] - from, Math.min(whole[1] - to, moves[0])));
  const next = [Math.max(whole[0], from + moves[0]), Math.min(whole[1], to + moves[1])];
  return next[0] <= whole[0] && next[1] >= whole[1] ? null : next;
}
