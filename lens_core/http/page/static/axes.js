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
  const range = options.range;
  for (const trace of lines) {
    trace.y.forEach((value, place) => {
      if (value === null || value === undefined || (options.log && value <= 0)) return;
      const at = Number(trace.x[place]);
      if (range && (at < range[0] || at > range[1])) return;
      values.push(options.log ? Math.log10(value) : value);
    });
  }
  if (!values.length) return null;
  values.sort((one, other) => one - other);
  const isCut = !options.outliers && values.length >= FEWEST_FOR_PERCENTILES;
  const [low, high] = isCut ? [percentile(values, 0.02), percentile(values, 0.98)] : [values[0], values.at(-1)];
  const size = Math.max(Math.abs(low), Math.abs(high));
  // What differs by less than a number can hold is rounding, not a curve.
  const isFlat = high - low <= size * 1e-12;
  if (isFlat) return options.log ? [low - 0.5, high + 0.5] : [low - (size / 2 || 1), high + (size / 2 || 1)];
  const room = ROOM * (high - low);
  return [low - room, high + room];
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
