// What the grid of charts needs to know of metrics and points.

const FIRST = [/^(lm_)?loss$/, /loss/, /acc/, /learning_rate|^lr$/, /grad_?norm/, /tflops|tokens|samples|throughput/, /mem/];

// Numbers that only count along: straight lines that nobody looks at, unless they choose to.
const COUNTS = /^((current|target)_iteration|(total_)?epochs?|step(s_per|_in)_epoch|((train|trainer)\/)?global_step|(train\/)?epoch)$/;

export const tells = (metric) => !COUNTS.test(metric);

const NATURAL = new Intl.Collator("en", { numeric: true }); // layer2 before layer10

export function inOrder(metrics) {
  const rank = (metric) => {
    if (!tells(metric)) return FIRST.length + 1;
    const place = FIRST.findIndex((pattern) => pattern.test(metric.toLowerCase()));
    return place < 0 ? FIRST.length : place;
  };
  return [...metrics].sort((a, b) => rank(a) - rank(b) || NATURAL.compare(a, b));
}

export function latest(series) {
  let newest = null;
  for (const one of series.values()) {
    const point = one.points.at(-1);
    if (point && (!newest || point.t >= newest.t)) newest = point;
  }
  return newest ? (newest.special ?? newest.y) : null;
}

// Between which times the points within a range of the x axis were logged; null when there are none.
export function timesOf(lines, range) {
  let start = Infinity;
  let end = -Infinity;
  for (const { x, points } of lines) {
    points.forEach((point, place) => {
      const [before, after] = [Math.max(0, place - 1), Math.min(points.length - 1, place + 1)];
      if (x[after] < range[0] || x[before] > range[1]) return;
      start = Math.min(start, point.t);
      end = Math.max(end, point.t);
    });
  }
  return start <= end ? [start, end] : null;
}

// By how much of what is shown each end moves.
const STEPS = { "+": [0.25, -0.25], "=": [0.25, -0.25], "-": [-0.5, 0.5], ArrowLeft: [-0.25, -0.25], ArrowRight: [0.25, 0.25] };

// What a key makes of the shown range: another one, null for the whole, undefined for a key that means nothing.
export function steered(range, whole, key, isLog = false) {
  const steps = STEPS[key];
  if (!steps) return undefined;
  const scaled = (ends) => ends.map(isLog ? Math.log10 : Number);
  const next = movedBy(steps, scaled(range ?? whole), scaled(whole));
  return next && isLog ? next.map((end) => 10 ** end) : next;
}

function movedBy(steps, [from, to], whole) {
  const moves = steps.map((step) => step * (to - from));
  if (moves[0] === moves[1]) moves.fill(Math.max(whole[0] - from, Math.min(whole[1] - to, moves[0])));
  const next = [Math.max(whole[0], from + moves[0]), Math.min(whole[1], to + moves[1])];
  return next[0] <= whole[0] && next[1] >= whole[1] ? null : next;
}

// A range around a place of it (0 to 1) that is so many times as wide; null for the whole.
export function zoomedAt(range, whole, share, factor) {
  const [from, to] = range ?? whole;
  const centre = from + share * (to - from);
  const next = [Math.max(whole[0], centre - (centre - from) * factor), Math.min(whole[1], centre + (to - centre) * factor)];
  return next[0] <= whole[0] && next[1] >= whole[1] ? null : next;
}
