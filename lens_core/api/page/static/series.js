// From points to what a chart draws: axis, smoothing, colours, marks where a value is no number.

export const COLOURS = ["#2f6fd0", "#d1630a", "#1a8a4c", "#a03cc0", "#b8860b", "#c2255c", "#0f8b8d", "#6b6f76", "#7048e8", "#8a5a2b"];

// Every run and attempt has one colour and one name in all charts.
export class Palette {
  constructor(names) {
    this.names = names; // uid → name
    this.known = new Map();
  }

  of(one) {
    const key = `${one.uid}\u0001${one.run}\u0001${one.attempt}\u0001${one.source}`;
    if (!this.known.has(key)) this.known.set(key, { key, colour: COLOURS[this.known.size % COLOURS.length], label: this.label(one) });
    return this.known.get(key);
  }

  label(one) {
    const parts = [one.run ? `run ${one.run.slice(0, 40)}` : "", one.attempt ? `attempt ${one.attempt}` : "", one.source];
    if (this.names.size > 1) parts.unshift(String(this.names.get(one.uid) ?? one.uid).slice(0, 60));
    return parts.filter(Boolean).join(" · ");
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
  const base = { type: "scatter", mode: few ? "lines+markers" : "lines", x, name: look.label, marker: { size: 4 } };
  const smoothed = options.smooth > 0;
  const text = points.map((point) => `${options.axis === "time" ? `iteration ${point.x}` : new Date(point.t).toLocaleString()}`);
  const found = [];
  if (smoothed) {
    found.push({ ...base, y, mode: "lines", opacity: 0.25, hoverinfo: "skip", line: { color: look.colour, width: 1 } });
  }
  found.push({
    ...base,
    y: smoothed ? smooth(y, options.smooth) : y,
    customdata: text,
    hovertemplate: "%{y:.6~g} <i>%{customdata}</i>",
    line: { color: look.colour, width: 1.6 },
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
    customdata: points.map((point) => `${point.special} at iteration ${point.x}`),
    hovertemplate: "%{customdata}<extra></extra>",
    marker: { symbol: "x", size: 9, color: "#d32f2f", line: { width: 1, color: look.colour } },
  };
}
