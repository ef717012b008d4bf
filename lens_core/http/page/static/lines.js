// From points to what a chart draws of each run: where on the x axis, mean, band, average, values that are no number.

import { LARGEST } from "./axes.js";
import { count, momentInYear, number } from "./format.js";

// From so many iterations in one point on, one of a single iteration beside it would be a stroke, up or down.
const MANY = 8;
// So many bands on top of each other can be told apart.
const MOST_BANDS = 4;
const FEW = 40;
const METRIC = "metric:";

// The metric that an axis shows; null for iterations and times.
export const metricOf = (axis) => (axis.startsWith(METRIC) ? axis.slice(METRIC.length) : null);
export const axisOf = (metric) => `${METRIC}${metric}`;

// How a series finds its place on the x axis: point → number, or null where it has none. along: the series of the
// metric that is the axis.
export function placing(one, axis, palette, along) {
  if (axis === "time") return (point) => point.t;
  if (axis === "relative") {
    const begin = palette.beginOf(one);
    return (point) => point.t - begin;
  }
  if (metricOf(axis) === null) return (point) => point.x;
  const known = (along?.get(one.key)?.points ?? []).filter((point) => point.y !== null);
  return (point) => between(known, point.x);
}

// The value of a metric at an iteration, between those that are known; null outside of them.
function between(points, iteration) {
  if (!points.length || iteration < points[0].x || iteration > points.at(-1).x) return null;
  let [low, high] = [0, points.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle].x < iteration) low = middle + 1;
    else high = middle;
  }
  const [after, before] = [points[low], points[Math.max(0, low - 1)]];
  if (after.x === iteration || after.x === before.x) return after.y;
  const share = (iteration - before.x) / (after.x - before.x);
  return before.y * (1 - share) + after.y * share;
}

// Finer points within the times that they were asked for, coarse ones around them.
export function merge(coarse, fine) {
  if (!fine?.points?.length) return coarse;
  const [start, end] = fine.times;
  return [...coarse.filter((point) => point.t < start), ...fine.points, ...coarse.filter((point) => point.t > end)];
}

// The lines of one metric, one for each run and attempt that is shown. fine: {times, series} of a zoom.
export function linesOf(series, fine, options, palette, along = null) {
  palette.placeAll([...series.values()]);
  const shown = [...series.values()].filter((one) => !options.hidden.has(palette.of(one).key));
  return shown.map((one) => {
    const finer = fine?.series.get(one.key);
    const points = merge(one.points, finer && { ...finer, times: fine.times });
    const line = placed(points, placing(one, options.axis, palette, along), options.logX);
    const isBanded = shown.length <= MOST_BANDS && !line.isScattered && line.points.some((point) => point.count > 1);
    return {
      ...line,
      ...curves(line.points, options, isBanded),
      key: one.key,
      begins: one.begins,
      look: palette.of(one),
      figures: options.range && finer ? finer.figures : one.figures, // over all points, which axes without outliers go by
    };
  });
}

// Points in the order of the x axis. Where a metric that is the axis goes back, no line connects them.
function placed(points, where, isLog) {
  const found = [];
  let [hiddenX, hiddenFar] = [0, 0];
  for (const point of points) {
    const x = where(point);
    if (x === null || !Number.isFinite(x)) continue;
    if (isLog && x <= 0) hiddenX += point.count;
    else if (Math.abs(x) > LARGEST) hiddenFar += point.count;
    else found.push([x, point]);
  }
  const isScattered = found.some(([x], place) => place > 0 && x < found[place - 1][0]);
  if (isScattered) found.sort((one, other) => one[0] - other[0]);
  return { x: found.map(([x]) => x), points: found.map(([, point]) => point), hiddenX, hiddenFar, isScattered };
}

// y: what the line shows; faint: what is behind a smoothed one; low and high: the band; null where there is none.
function curves(points, { log, smooth }, isBanded) {
  const scaled = (value) => (log && value <= 0 ? null : value);
  const means = points.map((point) => scaled(point.y));
  const found = { y: means, faint: null, low: null, high: null, ends: lonelyEnds(points), isFew: points.length < FEW, hiddenY: 0 };
  for (const { y, count: many } of points) if (log && y !== null && y <= 0) found.hiddenY += many;
  if (smooth > 0) Object.assign(found, { y: points.map((point) => scaled(point.s)), faint: means });
  if (!isBanded) return found;
  // On a log scale a band ends at what the scale can show.
  const least = points.reduce((low, point) => (point.low > 0 ? Math.min(low, point.low) : low), Infinity);
  found.high = points.map((point) => scaled(point.high));
  found.low = points.map((point, place) => (found.high[place] === null ? null : scaled(point.low) ?? Math.min(least, point.high)));
  return found;
}

// The places of the first and the last point, where each is a single iteration beside means of many.
function lonelyEnds(points) {
  const last = points.length - 1;
  const beside = [[0, 1], [last, last - 1]].filter(([end, next]) => points[end]?.steps === 1 && points[next]?.steps >= MANY);
  return beside.map(([end]) => end);
}

// Where a value is no number: [{x, text, colour}].
export function specialsOf(lines) {
  return lines.flatMap((line) =>
    line.points.flatMap((point, place) =>
      point.special ? [{ x: line.x[place], colour: line.look.colour, text: `${point.special} at iteration ${count(point.x)}` }] : []));
}

// From where to where lines reach; null when there are none.
export function extentOf(lines) {
  const ends = lines.filter((line) => line.x.length).flatMap((line) => [line.x[0], line.x.at(-1)]);
  return ends.length ? [Math.min(...ends), Math.max(...ends)] : null;
}

// The place of the point that is nearest to x; −1 when there is none.
export function nearest(line, x) {
  const { x: xs } = line;
  let [low, high] = [0, xs.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low > 0 && x - xs[low - 1] < xs[low] - x ? low - 1 : low < xs.length ? low : -1;
}

// What a point stands for, beside its value; of joined lines also which attempt it is from.
export function describe(point, axis, isJoined = false) {
  if (point.x === null) return point.low < point.high ? `from ${number(point.low)} to ${number(point.high)}` : ""; // a measurement
  const place = axis === "iteration" ? momentInYear(point.t) : `iteration ${count(point.x)}`;
  const where = isJoined ? `${place}, attempt ${point.attempt}` : place;
  return point.count > 1 ? `${where}, mean of ${count(point.count)} from ${number(point.low)} to ${number(point.high)}` : where;
}

// What scales cannot show is said, not hidden.
export function hiddenText(lines) {
  const parts = [["hiddenY", "at or below 0"], ["hiddenX", "at or left of 0"], ["hiddenFar", `beyond ±${number(LARGEST)} of x`]].map(([key, where]) => [lines.reduce((sum, line) => sum + line[key], 0), where]);
  const hidden = parts.filter(([many]) => many).map(([many, where]) => `${count(many)} ${many === 1 ? "point" : "points"} ${where} not shown`);
  if (hidden.length || !lines.length || lines.some((line) => line.x.length)) return hidden.join(", ");
  return "No point has a place on this axis";
}

// Sources that answers leave out, because another one has the same rows: [{data_source, left_out}].
export function leftOutText(choices) {
  const chosen = new Map(); // source that is shown → those that repeat it
  for (const { data_source: shown, left_out: others } of choices) chosen.set(shown, new Set([...(chosen.get(shown) ?? []), ...others]));
  const parts = [...chosen].filter(([, others]) => others.size).map(([shown, others]) => `rows of ${[...others].sort().join(", ")} that repeat those of ${shown}`);
  return parts.length ? `Not shown: ${parts.join("; ")}` : "";
}

// All curves under one column of x, as the chart library wants them. Where a line has no point, its place holds
// `undefined`, which does not interrupt it.
export function aligned(lines) {
  const series = lines.flatMap((line) => ["low", "high", "faint", "y"].filter((role) => line[role]).map((role) => ({ line, role })));
  if (lines.length === 1) return { series, columns: [lines[0].x, ...series.map(({ line, role }) => drawn(line, role))] };
  const most = new Map(); // x → how often a line has it
  for (const { x } of lines) {
    for (let place = 0, again = 0; place < x.length; place += 1) {
      again = place > 0 && x[place] === x[place - 1] ? again + 1 : 1;
      if ((most.get(x[place]) ?? 0) < again) most.set(x[place], again);
    }
  }
  const xs = [...most.keys()].sort((one, other) => one - other).flatMap((x) => Array(most.get(x)).fill(x));
  const rows = new Map(lines.map((line) => [line, rowsOf(line.x, xs)]));
  const columns = series.map(({ line, role }) => {
    const column = Array(xs.length).fill(undefined);
    const values = drawn(line, role);
    rows.get(line).forEach((row, place) => (column[row] = values[place]));
    return column;
  });
  return { series, columns: [xs, ...columns] };
}

// A curve without its lonely ends, which the band has, and the cursor.
export function drawn(line, role) {
  const isOfMeans = role === (line.faint ? "faint" : "y");
  return isOfMeans && line.ends.length ? line[role].map((value, place) => (line.ends.includes(place) ? null : value)) : line[role];
}

// The places of values between two that are none: no line leads to them.
export function lonely(values) {
  if (!values.includes(null) && values.length > 1) return [];
  const known = values.flatMap((value, place) => (value === undefined ? [] : [place]));
  return known.filter((place, at) => values[place] !== null && values[known[at - 1]] == null && values[known[at + 1]] == null);
}

function rowsOf(x, xs) {
  let row = -1;
  return x.map((value) => {
    row += 1;
    while (xs[row] < value) row += 1;
    return row;
  });
}
