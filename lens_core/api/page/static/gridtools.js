// What the grid of charts needs to know of metrics and points.

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
