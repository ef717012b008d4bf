// One set of rules for what a chart's axes reach from and to, and what their marks say.

import { ticks } from "./ticks.js";

// So much of the height stays free above and below.
const ROOM = 0.055;
const FEWEST_FOR_PERCENTILES = 10;
const PIXELS_A_LETTER = 6.4;
const LEAST_LEFT = 54;

// Both ends of the y axis over the values that stand within the shown range of x; exponents of ten on a log scale.
// Null when there is no number. A constant lies in the middle, whatever its size.
export function heights(lines, options) {
  const values = [];
  const ends = [];
  for (const trace of lines) {
    const shown = shownValues(trace, options);
    if (options.outliers) {
      for (const value of shown) values.push(value);
      continue;
    }
    if (trace.hoverinfo === "skip") continue; // bands and what is behind a smoothed line reach to the outliers
    ends.push(...usual(shown, trace.meta, options));
  }
  const all = options.outliers ? values : ends;
  if (!all.length) return null;
  const [low, high] = [all.reduce((one, value) => Math.min(one, value)), all.reduce((one, value) => Math.max(one, value))];
  const size = Math.max(Math.abs(low), Math.abs(high));
  // What differs by less than a number can hold is rounding, not a curve.
  const isFlat = high - low <= size * 1e-12;
  if (isFlat) return options.log ? [low - 0.5, high + 0.5] : [low - (size / 2 || 1), high + (size / 2 || 1)];
  const room = ROOM * (high - low);
  return [low - room, high + room];
}

function shownValues(trace, { range, log }) {
  const found = [];
  trace.y.forEach((value, place) => {
    if (value === null || value === undefined || (log && value <= 0)) return;
    const at = Number(trace.x[place]);
    if (!range || (at >= range[0] && at <= range[1])) found.push(log ? Math.log10(value) : value);
  });
  return found;
}

// Between which values most of a line lies: by all of its points, as far as the server has told; else by what is shown.
function usual(shown, figures, { log }) {
  if (figures?.p2 != null && figures.count >= FEWEST_FOR_PERCENTILES && (!log || figures.p2 > 0)) {
    return [figures.p2, figures.p98].map((value) => (log ? Math.log10(value) : value));
  }
  shown.sort((one, other) => one - other);
  if (!shown.length) return [];
  return shown.length < FEWEST_FOR_PERCENTILES ? [shown[0], shown.at(-1)] : [percentile(shown, 0.02), percentile(shown, 0.98)];
}

const percentile = (sorted, share) => sorted[Math.floor((sorted.length - 1) * share)];

// The marks of the y axis: [where, text], where is an exponent of ten on a log scale.
export function yTicks([low, high], isTall, isLog) {
  return ticks(low, high, isTall ? 10 : 5, isLog);
}

// How many pixels the texts of the marks need beside the chart.
export function leftOf(marks) {
  return Math.max(LEAST_LEFT, Math.ceil(10 + PIXELS_A_LETTER * Math.max(0, ...marks.map(([, text]) => text.length))));
}
