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
  resumed: ["triangle-right", "#e07b1a"],
  loss_spike: FINDING,
  grad_norm_rising: FINDING,
  slower: FINDING,
  slower_after_restart: FINDING,
  memory_creep: FINDING,
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
  straggler: FINDING,
  imbalance: FINDING,
};

export function eventMarks(events, options) {
  if (!options.events) return [];
  return events
    .map((event) => ({
      type: event.type,
      x: options.axis === "time" ? new Date(event.timestamp) : event.iteration,
      text: `${words(event.type)}${event.iteration === null ? "" : ` at ${count(event.iteration)}`}`,
    }))
    .filter((mark) => mark.x !== null && mark.x !== undefined)
    .slice(0, 500);
}

export function markTrace(marks) {
  return {
    type: "scatter",
    mode: "markers",
    yaxis: "y2",
    name: "events",
    x: marks.map((mark) => mark.x),
    y: marks.map(() => 0.03),
    customdata: marks.map((mark) => mark.text),
    hovertemplate: "%{customdata}<extra></extra>",
    marker: {
      size: 8,
      symbol: marks.map((mark) => MARKS[mark.type]?.[0] ?? "circle"),
      color: marks.map((mark) => MARKS[mark.type]?.[1] ?? (ALARMING.has(mark.type) ? "#e5484d" : "#8a8f98")),
    },
  };
}

// A line where something went wrong; what went wrong over and over is one band from its first mark to its last.
export function alarmShapes(marks) {
  const spans = new Map();
  for (const mark of marks) {
    if (!ALARMING.has(mark.type)) continue;
    const span = spans.get(mark.type) ?? spans.set(mark.type, []).get(mark.type);
    span.push(mark.x);
  }
  return [...spans.values()].flatMap((all) => (all.length > MOST_LINES ? [band(all)] : all.map(line)));
}

const MOST_LINES = 5;
const UPRIGHT = { yref: "paper", y0: 0, y1: 1 };

function line(x) {
  return { ...UPRIGHT, type: "line", x0: x, x1: x, line: { color: "#e5484d", width: 1, dash: "dot" } };
}

function band(all) {
  const [first, last] = [all.reduce((one, x) => (x < one ? x : one)), all.reduce((one, x) => (x > one ? x : one))];
  return { ...UPRIGHT, type: "rect", layer: "below", x0: first, x1: last, fillcolor: "rgba(229,72,77,0.12)", line: { color: "#e5484d", width: 1, dash: "dot" } };
}
