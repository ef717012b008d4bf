// One set of rules for what a chart's axes reach from and to, and what their marks say.

import { durationTicks, ticks, timeTicks } from "./ticks.js";

// So much of the height stays free above and below.
const ROOM = 0.055;
const FEWEST_FOR_PERCENTILES = 10;
const PIXELS_A_LETTER = 6.4;
const PIXELS_A_MARK = 75;
const LEAST_LEFT = 54;
const HALF_A_MINUTE = 30_000;
// An x axis from minus to plus this can still be drawn.
export const LARGEST = 2 ** 1021;

// Both ends of the y axis over the values that stand within the shown range of x; exponents of ten on a log scale.
// Null when there is no number. A constant lies in the middle, whatever its size. Sums and differences are of halves:
// those of the largest numbers would be infinite.
export function heights(lines, options) {
  let [low, high] = [Infinity, -Infinity];
  const widen = (value) => {
    if (value < low) low = value;
    if (value > high) high = value;
  };
  for (const line of lines) {
    if (options.outliers) for (const values of [line.low, line.high, line.faint, line.y]) eachShown(line.x, values, options, widen);
    else usual(line, options).forEach(widen);
  }
  if (low > high) return null;
  const size = Math.max(Math.abs(low), Math.abs(high));
  // What differs by less than a number can hold is rounding, not a curve.
  const half = high / 2 - low / 2;
  const isFlat = half <= size * 5e-13;
  const room = isFlat ? (options.log ? 0.5 : size / 2 || size || 1) : 2 * ROOM * half;
  return [Math.max(low - room, -Number.MAX_VALUE), Math.min(high + room, Number.MAX_VALUE)];
}

function eachShown(xs, values, { range, log }, use) {
  if (!values) return;
  for (let place = 0; place < values.length; place += 1) {
    const value = values[place];
    if (value === null || value === undefined || (log && value <= 0)) continue;
    if (!range || (xs[place] >= range[0] && xs[place] <= range[1])) use(log ? Math.log10(value) : value);
  }
}

// Between which values most of a line lies: by all of its points, as far as the server has told; else by what is shown.
function usual({ x, y, figures }, options) {
  if (figures?.p2 != null && figures.count >= FEWEST_FOR_PERCENTILES && (!options.log || figures.p2 > 0)) {
    return [figures.p2, figures.p98].map((value) => (options.log ? Math.log10(value) : value));
  }
  const shown = [];
  eachShown(x, y, options, (value) => shown.push(value));
  shown.sort((one, other) => one - other);
  if (!shown.length) return [];
  return shown.length < FEWEST_FOR_PERCENTILES ? [shown[0], shown.at(-1)] : [percentile(shown, 0.02), percentile(shown, 0.98)];
}

const percentile = (sorted, share) => sorted[Math.floor((sorted.length - 1) * share)];

// The marks of the y axis: [where, text], where is an exponent of ten on a log scale.
export function yTicks([low, high], isTall, isLog) {
  return ticks(low, high, isTall ? 10 : 5, isLog);
}

// The marks of the x axis over so many pixels: [where, text].
export function xTicks([left, right], pixels, { axis, logX }) {
  const about = Math.max(2, Math.floor(pixels / PIXELS_A_MARK));
  if (axis === "time") return timeTicks(left, right, about);
  if (logX) return logTicks(left, right, about, axis === "relative");
  if (axis === "relative") return durationTicks(left, right, about);
  let marks = ticks(left, right, about);
  if (marks.length < 2) marks = ticks(left, right, 2 * about); // one mark alone tells no scale
  marks = marks.filter(([, text], place) => text !== marks[place - 1]?.[1]);
  const every = Math.ceil((widest(marks) * marks.length) / pixels); // long texts have no room for all
  return marks.filter((_, place) => place % every === 0);
}

// Times since a beginning are ms, and read in seconds.
function logTicks(left, right, about, isDuration) {
  const size = isDuration ? 1000 : 1;
  return ticks(Math.log10(left / size), Math.log10(right / size), about, true).map(([at, text]) => [10 ** at * size, isDuration ? `${text} s` : text]);
}

// How many pixels the texts of the marks need beside the chart.
export function leftOf(marks) {
  return Math.max(LEAST_LEFT, Math.ceil(widest(marks)));
}

const widest = (marks) => 10 + PIXELS_A_LETTER * Math.max(0, ...marks.map(([, text]) => text.length));

// An axis has a width, also where all points stand at one place.
export function widened(extent, { axis, logX }) {
  if (!extent) return logX ? [1, 10] : [0, 1];
  const [left, right] = extent;
  if (right > left) return extent;
  if (logX) return [left / 2, left * 2];
  const room = axis === "time" || axis === "relative" ? HALF_A_MINUTE : Math.max(0.5, Math.abs(left) / 100);
  return [left - room, left + room];
}
