// From points to what a chart draws: axis, smoothing, colours, marks where a value is no number.

import { count, moment } from "./format.js";

// To be told apart on white and on black alike.
const COLOURS = ["#3d7de0", "#e07b1a", "#2c9f5f", "#b15be0", "#b8901c", "#e0457f", "#17a0a2", "#7d858f", "#7c6cf2", "#a8703f"];
// When the colours are used up they come again with other strokes.
const DASHES = ["solid", "dash", "dot", "dashdot"];

// Every run and attempt has one colour, one stroke and one name in all charts.
export class Palette {
  constructor(names) {
    this.names = names; // uid → name
    this.known = new Map();
  }

  of(one) {
    const key = `${one.uid}\u0001${one.run}\u0001${one.attempt}\u0001${one.source}`;
    if (!this.known.has(key)) {
      const place = this.known.size;
      const dash = DASHES[Math.floor(place / COLOURS.length) % DASHES.length];
      this.known.set(key, { key, colour: COLOURS[place % COLOURS.length], dash, parts: this.parts(one), label: "" });
      this.nameAll();
    }
    return this.known.get(key);
  }

  parts(one) {
    return [
      String(this.names.get(one.uid) ?? one.uid).slice(0, 60),
      one.run ? `run ${one.run.slice(0, 40)}` : "",
      one.attempt ? `attempt ${one.attempt}` : "",
      one.source,
    ];
  }

  // A label says only what is not the same for all of them.
  nameAll() {
    const all = [...this.known.values()];
    const differs = all[0].parts.map((_, place) => new Set(all.map((look) => look.parts[place])).size > 1);
    for (const look of all) {
      const telling = look.parts.filter((part, place) => part && differs[place]);
      look.label = (telling.length ? telling : look.parts.slice(1).filter(Boolean)).join(" · ");
    }
  }
}

// Exponential moving average that starts without a bias; a gap stays a gap.
export function smooth(values, weight) {
  if (!weight) return values;
  let mean = 0;
  let sure = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = weight * mean + (1 - weight) * value;
    sure = weight * sure + (1 - weight);
    return mean / sure;
  });
}

export function xOf(point, axis) {
  return axis === "time" ? point.t : point.x;
}

// Coarse points outside of a range, fine ones inside.
export function merge(coarse, fine, axis, range) {
  if (!fine || !fine.length || !range) return coarse;
  const outside = (point) => xOf(point, axis) < range[0] || xOf(point, axis) > range[1];
  return [...coarse.filter(outside), ...fine].sort((a, b) => xOf(a, axis) - xOf(b, axis));
}

// The traces of one metric.
export function traces(series, fine, options, palette) {
  const found = [];
  for (const one of series.values()) {
    const look = palette.of(one);
    if (options.hidden.has(look.key)) continue;
    const points = merge(one.points, fine?.get(one.key)?.points, options.axis, options.range);
    found.push(...lines(points, look, options));
  }
  return found;
}

function lines(points, look, options) {
  const x = points.map((point) => xOf(point, options.axis)).map((value) => (options.axis === "time" ? new Date(value) : value));
  const y = points.map((point) => (options.log && point.y !== null && point.y <= 0 ? null : point.y));
  const few = points.length < 40;
  const base = { type: "scatter", mode: few ? "lines+markers" : "lines", x, name: look.label };
  const smoothed = options.smooth > 0;
  const text = points.map((point) => (options.axis === "time" ? `iteration ${count(point.x)}` : moment(point.t)));
  const found = [];
  if (smoothed) {
    found.push({ ...base, y, mode: "lines", opacity: 0.35, hoverinfo: "skip", line: { color: look.colour, width: 1 } });
  }
  found.push({
    ...base,
    y: smoothed ? smooth(y, options.smooth) : y,
    customdata: text,
    hovertemplate: "%{y:.6~g} <i>%{customdata}</i>",
    line: { color: look.colour, width: 1.6, dash: look.dash },
    marker: { size: 4, color: look.colour },
  });
  const special = points.filter((point) => point.special);
  if (special.length) found.push(specials(special, look, options));
  return found;
}

function specials(points, look, options) {
  return {
    type: "scatter",
    mode: "markers",
    yaxis: "y2",
    name: `${look.label}: not a number`,
    x: points.map((point) => (options.axis === "time" ? new Date(point.t) : point.x)),
    y: points.map(() => 0.96),
    customdata: points.map((point) => `${point.special} at iteration ${count(point.x)}`),
    hovertemplate: "%{customdata}<extra></extra>",
    marker: { symbol: "x", size: 9, color: "#e5484d", line: { width: 1, color: look.colour } },
  };
}
