// Events as marks on the axis, and as lines through the chart where something went wrong.

import { count, words } from "./format.js";

const ALARMING = new Set(["training_failed", "out_of_memory", "collective_timeout", "process_terminated", "stalled", "loss_not_finite", "loss_diverged", "restore_differs"]);
const FINDING = ["triangle-up", "#e0a92e"];
const MARKS = {
  checkpoint_saved: ["square", "#2c9f5f"],
  checkpoint_saving: ["square-open", "#2c9f5f"],
  checkpoint_loaded: ["diamond", "#2c9f5f"],
  evaluation: ["circle-open", "#3d7de0"],
  loss_not_finite: ["x", "#e5484d"],
  training_started: ["triangle-right", "#3d7de0"],
  training_ended: ["triangle-left", "#3d7de0"],
  attempt_began: ["triangle-right-open", "#e07b1a"],
  resumed: ["triangle-right", "#e07b1a"],
  loss_spike: FINDING,
  grad_norm_rising: FINDING,
  slower: FINDING,
  slower_after_restart: FINDING,
  memory_creep: FINDING,
  host_memory_creep: FINDING,
  clipping: FINDING,
  checkpoint_slower: FINDING,
  learning_rate_differs: FINDING,
  data_repeated: FINDING,
  samples_differ: FINDING,
  learning_rate_odd: FINDING,
  nan_precursor: FINDING,
  step_time_creep: FINDING,
  loss_off: FINDING,
  slower_than_siblings: FINDING,
  gpu_throttled: FINDING,
  device_error: FINDING,
  straggler: FINDING,
  imbalance: FINDING,
};

export function eventMarks(events, options) {
  // A metric as the axis says nothing of when an event was, and relative times differ from run to run.
  if (!options.events || !["iteration", "time"].includes(options.axis)) return [];
  return events
    .map((event) => ({
      type: event.type,
      x: options.axis === "time" ? event.timestamp : event.iteration,
      text: `${words(event.type)}${event.iteration === null ? "" : ` at ${count(event.iteration)}`}`,
    }))
    .filter((mark) => mark.x !== null && mark.x !== undefined && (!options.logX || mark.x > 0))
    .slice(0, 500);
}

// Where attempts begin in joined lines; on another axis than that of iterations they have no place.
export function beginMarks(lines, { axis, logX }) {
  if (axis !== "iteration") return [];
  const all = lines.flatMap((line) => (line.begins ?? []).map(({ x, attempt }) => ({ type: "attempt_began", x, text: `attempt ${attempt} begins at ${count(x)}` })));
  return all.filter((mark) => !logX || mark.x > 0).slice(0, MOST_BEGINS);
}

// How a mark of an event looks: [symbol, colour].
export function lookOf(type) {
  return MARKS[type] ?? ["circle", ALARMING.has(type) ? ALARM : "#8a8f98"];
}

// A line where something went wrong; what went wrong over and over is one band from its first mark to its last:
// [{from, to}], which are the same for a line.
export function alarmSpans(marks) {
  const kinds = new Map();
  for (const mark of marks) if (ALARMING.has(mark.type)) kinds.set(mark.type, [...(kinds.get(mark.type) ?? []), mark.x]);
  return [...kinds.values()].flatMap((all) => (all.length > MOST_LINES ? [{ from: Math.min(...all), to: Math.max(...all) }] : all.map((x) => ({ from: x, to: x }))));
}

const MOST_LINES = 5;
const MOST_BEGINS = 100;
export const ALARM = "#e5484d";
export const ALARM_SOFT = "rgba(229,72,77,0.12)";

// The outline of a symbol around a point, as a path of SVG and of a canvas alike.
export function symbolPath(symbol, x, y, size) {
  const half = size / 2;
  const polygon = (...points) => `M${points.map(([dx, dy]) => `${x + dx * half} ${y + dy * half}`).join("L")}Z`;
  const shapes = {
    square: () => polygon([-1, -1], [1, -1], [1, 1], [-1, 1]),
    diamond: () => polygon([0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]),
    "triangle-up": () => polygon([0, -1.1], [1.1, 1], [-1.1, 1]),
    "triangle-right": () => polygon([-1, -1.1], [1.1, 0], [-1, 1.1]),
    "triangle-left": () => polygon([1, -1.1], [-1.1, 0], [1, 1.1]),
    x: () => `M${x - half} ${y - half}L${x + half} ${y + half}M${x + half} ${y - half}L${x - half} ${y + half}`,
    circle: () => `M${x - half} ${y}a${half} ${half} 0 1 0 ${size} 0a${half} ${half} 0 1 0 ${-size} 0Z`,
  };
  return shapes[symbol.replace("-open", "")]();
}

// Whether only the outline of a symbol is drawn.
export const isOutline = (symbol) => symbol === "x" || symbol.endsWith("-open");

// Where an event that names no iteration stands on an axis of iterations: at what its job had reached by then.

export function placed(events, runs) {
  return events.map((event) => (event.iteration === null ? { ...event, iteration: iterationAt(event, runs) } : event));
}

// By the attempt that logged last until then, as if its iterations were equally long; null where there is none.
function iterationAt(event, runs) {
  const known = runs.filter((run) => run.first_iteration !== null && run.last_iteration !== null);
  const mine = known.filter((run) => !event.run_id || run.run_id === event.run_id);
  const begun = (mine.length ? mine : known).filter((run) => run.first_seen <= event.timestamp);
  if (!begun.length) return known.length ? Math.min(...known.map((run) => run.first_iteration)) : null;
  const { first_iteration: first, last_iteration: last, first_seen: since, last_seen: until } = begun.reduce((one, other) => (other.first_seen > one.first_seen ? other : one));
  const share = until > since ? Math.min(1, (event.timestamp - since) / (until - since)) : 1;
  return Math.round(first + share * (last - first));
}
