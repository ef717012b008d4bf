// From points to what a chart draws: axis, bands, colours, marks where a value is no number.

import { count, moment, number } from "./format.js";

// The colours of Okabe and Ito without yellow and black, which white and dark pages hide, and a grey: told apart by
// people who see fewer colours, too (Okabe and Ito, Color Universal Design, 2008).
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#7d858f"];
// Every next line has the next stroke: seven colours and four strokes come together again after 28 lines.
const DASHES = ["solid", "dash", "dot", "dashdot"];

// Every run and attempt has one colour, one stroke and one name in all charts. The first colour belongs to what began
// first, whichever chart came first, so that it is the same when the page is loaded again and for somebody else.
export class Palette {
  constructor(names) {
    this.names = names; // uid → name
    this.known = new Map();
    this.places = new Map(); // key → which colour and stroke
    this.settled = false;
  }

  // The runs of all workloads as the store knows them, [{uid, run, attempt, source, since}]: what was drawn before they
  // were known may change its colour now, and never again. Gives whether anything has.
  settle(runs) {
    const stays = this.settled ? this.places.keys() : [];
    this.settled = true;
    const order = new Set([...stays, ...this.inOrder(runs), ...this.places.keys()]);
    this.places = new Map([...order].map((key, place) => [key, place]));
    const changed = [...this.known.values()].filter((look) => look.place !== this.places.get(look.key));
    for (const look of changed) Object.assign(look, this.stroke(look.key));
    return changed.length > 0;
  }

  // The lines of one chart.
  meet(series) {
    const fresh = [...series.values()].filter((one) => !this.places.has(lineOf(one)));
    for (const key of this.inOrder(fresh.map((one) => ({ ...one, since: one.points[0].t })))) this.places.set(key, this.places.size);
  }

  inOrder(runs) {
    const uids = [...this.names.keys()];
    const keyed = runs.map((run) => ({ key: lineOf(run), since: run.since, uid: uids.indexOf(run.uid) }));
    keyed.sort((a, b) => a.uid - b.uid || a.since - b.since || (a.key < b.key ? -1 : 1));
    return keyed.map((run) => run.key);
  }

  of(one) {
    const key = lineOf(one);
    if (!this.known.has(key)) {
      this.known.set(key, { key, ...this.stroke(key), parts: this.parts(one), label: "" });
      this.nameAll();
    }
    return this.known.get(key);
  }

  stroke(key) {
    const place = this.places.get(key);
    const dash = DASHES[place % DASHES.length];
    return { place, colour: COLOURS[place % COLOURS.length], dash };
  }

  // All that is drawn, in the order of colours.
  drawn() {
    return [...this.known.values()].sort((one, other) => one.place - other.place);
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

// What is one line of a chart, among the runs of a workload, too.
const lineOf = (one) => [one.uid, one.run, one.attempt, one.source].join("\u0001");

export function xOf(point, axis) {
  return axis === "time" ? point.t : point.x;
}

// Coarse points outside of a range, fine ones inside.
export function merge(coarse, fine, axis, range) {
  if (!fine || !fine.length || !range) return coarse;
  const outside = (point) => xOf(point, axis) < range[0] || xOf(point, axis) > range[1];
  return [...coarse.filter(outside), ...fine].sort((a, b) => xOf(a, axis) - xOf(b, axis));
}

// The traces of one metric: of each run a band from the lowest to the highest, and a line.
export function traces(series, fine, options, palette) {
  const found = [];
  palette.meet(series);
  const shown = [...series.values()].filter((one) => !options.hidden.has(palette.of(one).key));
  for (const one of shown) {
    const look = palette.of(one);
    const finer = fine?.get(one.key);
    const points = merge(one.points, finer?.points, options.axis, options.range);
    if (shown.length <= MOST_BANDS && points.some((point) => point.count > 1)) found.push(...band(points, look, options));
    found.push(...lines(points, look, options, options.range ? finer?.figures : one.figures));
  }
  return found;
}

// So many bands on top of each other can be told apart.
const MOST_BANDS = 4;

const xs = (points, options) => points.map((point) => (options.axis === "time" ? new Date(point.t) : point.x));
const scaled = (value, options) => (options.log && value !== null && value <= 0 ? null : value);

function band(points, look, options) {
  const known = points.filter((point) => point.low !== null && scaled(point.high, options) !== null);
  const lowest = Math.min(...known.map((point) => (point.low > 0 ? point.low : Infinity)));
  const base = { type: "scatter", mode: "lines", name: look.label, x: xs(known, options), hoverinfo: "skip", line: { color: look.colour, width: 0 } };
  const low = known.map((point) => scaled(point.low, options) ?? Math.min(lowest, point.high));
  return [
    { ...base, y: low },
    { ...base, y: known.map((point) => point.high), fill: "tonexty", fillcolor: `${look.colour}44` },
  ];
}

function lines(points, look, options, figures) {
  const x = xs(points, options);
  const y = points.map((point) => scaled(point.y, options));
  const few = points.length < 40;
  const base = { type: "scatter", mode: few ? "lines+markers" : "lines", x, name: look.label };
  const smoothed = options.smooth > 0;
  const text = points.map((point) => describe(point, options));
  const found = [];
  if (smoothed) {
    found.push({ ...base, y, mode: "lines", opacity: 0.35, hoverinfo: "skip", line: { color: look.colour, width: 1 } });
  }
  found.push({
    ...base,
    y: smoothed ? points.map((point) => scaled(point.s, options)) : y,
    meta: figures, // over all points, which axes without outliers go by
    customdata: text,
    hovertemplate: "%{y:.6~g} <i>%{customdata}</i>",
    line: { color: look.colour, width: 1.6, dash: look.dash },
    marker: { size: 4, color: look.colour },
  });
  const special = points.filter((point) => point.special);
  if (special.length) found.push(specials(special, look, options));
  return found;
}

function describe(point, options) {
  const where = options.axis === "time" ? `iteration ${count(point.x)}` : moment(point.t);
  return point.count > 1 ? `${where}, mean of ${count(point.count)} from ${number(point.low)} to ${number(point.high)}` : where;
}

function specials(points, look, options) {
  return {
    type: "scatter",
    mode: "markers",
    yaxis: "y2",
    name: `${look.label}: not a number`,
    x: xs(points, options),
    y: points.map(() => 0.96),
    customdata: points.map((point) => `${point.special} at iteration ${count(point.x)}`),
    hovertemplate: "%{customdata}<extra></extra>",
    marker: { symbol: "x", size: 9, color: "#e5484d", line: { width: 1, color: look.colour } },
  };
}
