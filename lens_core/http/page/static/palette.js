// Colours and strokes of runs and attempts, the same in all charts, and the legend that turns them off.

import { button, el, name, svg } from "./dom.js";

// The colours of Okabe and Ito without yellow and black, which white and dark pages hide, and a grey: told apart by
// people who see fewer colours, too (Okabe and Ito, Color Universal Design, 2008).
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#7d858f"];
// Every next line has the next stroke: seven colours and four strokes come together again after 28 lines.
const DASHES = ["solid", "dash", "dot", "dashdot"];
// Pixels drawn and left out, in turn.
export const STROKES = { solid: [], dash: [6, 4], dot: [2, 3], dashdot: [6, 3, 2, 3] };

// What is too dark for a dark page is drawn lighter there.
const LIGHTER = { "#0072b2": "#2a8bd6" };

// The look of a line by its place among the others.
export const strokeAt = (place) => ({ place, colour: COLOURS[place % COLOURS.length], dash: DASHES[place % DASHES.length] });

export const isDark = () => document.documentElement.dataset.theme === "dark";
export const shade = (colour, dark) => (dark && LIGHTER[colour]) || colour;

// Every run and attempt has one colour, one stroke and one name in all charts. The first colour belongs to what began
// first, whichever chart came first, so that it is the same when the page is loaded again and for somebody else.
export class Palette {
  constructor(names) {
    this.names = names; // uid → name
    this.known = new Map();
    this.places = new Map(); // key → which colour and stroke
    this.begins = new Map(); // key → ms when the run or attempt began
    this.settled = false;
  }

  // The runs of all workloads as the store knows them, [{uid, run, attempt, source, since}]: what was drawn before they
  // were known may change its colour now, and never again. Gives whether anything has.
  settle(runs) {
    const stays = this.settled ? this.places.keys() : [];
    this.settled = true;
    for (const run of runs) this.begins.set(lineOf(run), Math.min(run.since, this.begins.get(lineOf(run)) ?? run.since));
    const order = new Set([...stays, ...this.inOrder(runs), ...this.places.keys()]);
    this.places = new Map([...order].map((key, place) => [key, place]));
    const changed = [...this.known.values()].filter((look) => look.place !== this.places.get(look.key));
    for (const look of changed) Object.assign(look, this.stroke(look.key));
    return changed.length > 0;
  }

  // The lines of one chart.
  placeAll(series) {
    const fresh = series.filter((one) => !this.places.has(lineOf(one)));
    for (const key of this.inOrder(fresh.map((one) => ({ ...one, since: one.points[0].t })))) this.places.set(key, this.places.size);
  }

  inOrder(runs) {
    const uids = [...this.names.keys()];
    const keyed = runs.map((run) => ({ key: lineOf(run), since: run.since, uid: uids.indexOf(run.uid) }));
    keyed.sort((a, b) => a.uid - b.uid || a.since - b.since || (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
    return keyed.map((run) => run.key);
  }

  // When the run or attempt of a series began, in ms.
  beginOf(one) {
    return this.begins.get(lineOf(one)) ?? one.points[0].t;
  }

  of(one) {
    const key = lineOf(one);
    if (!this.known.has(key)) {
      this.known.set(key, { key, ...this.stroke(key), parts: this.parts(one), label: "" });
    }
    return this.known.get(key);
  }

  stroke(key) {
    return strokeAt(this.places.get(key));
  }

  // The looks of all series that charts have now, in the order of colours, each with a label that says only what is not
  // the same for all of them.
  looksOf(all) {
    this.placeAll(all);
    const looks = [...new Set(all.map((one) => this.of(one)))].sort((one, other) => one.place - other.place);
    const differs = looks[0]?.parts.map((_, place) => new Set(looks.map((look) => look.parts[place])).size > 1);
    for (const look of looks) {
      const telling = look.parts.filter((part, place) => part && differs[place]);
      look.label = (telling.length ? telling : look.parts.slice(1).filter(Boolean)).join(" · ");
    }
    return looks;
  }

  parts(one) {
    return [
      String(this.names.get(one.uid) ?? one.uid).slice(0, 60),
      one.run ? `run ${one.run.slice(0, 40)}` : "",
      one.attempt ? `attempt ${one.attempt}` : "",
      one.source,
    ];
  }
}

// What is one line of a chart, among the runs of a workload, too.
const lineOf = (one) => [one.uid, one.run, one.attempt, one.source].join("\u0001");

// From so many on, all or none of them can be chosen at once.
const MANY = 6;

export class Legend {
  // hidden: keys of what is not drawn; changed(): it is to be drawn again
  constructor(hidden, changed) {
    Object.assign(this, { hidden, changed });
    this.box = el("div", { class: "legend", role: "group", "aria-label": "Runs and attempts" });
    this.painted = "";
  }

  // looks: of all that charts have, in their order
  paint(looks) {
    const now = [isDark(), ...looks.flatMap((look) => [look.place, look.label])].join("\u0001");
    if (this.painted === now) return;
    this.painted = now;
    if (looks.length < 2) {
      this.box.replaceChildren();
      return;
    }
    const choices = looks.map((look) => this.choice(look));
    const all = (shown) => () => this.turnAll(looks, shown);
    const both = looks.length >= MANY ? [button("All", all(true), { class: "small" }), button("None", all(false), { class: "small" })] : [];
    this.box.replaceChildren(...both, ...choices);
  }

  choice(look) {
    const box = el("input", { type: "checkbox", checked: !this.hidden.has(look.key) });
    box.addEventListener("change", () => {
      if (box.checked) this.hidden.delete(look.key);
      else this.hidden.add(look.key);
      this.changed();
    });
    return el("label", {}, box, swatch(look), name(look.label, 100));
  }

  turnAll(looks, shown) {
    this.hidden.clear();
    if (!shown) looks.forEach((look) => this.hidden.add(look.key));
    this.box.querySelectorAll("input").forEach((box) => (box.checked = shown));
    this.changed();
  }
}

export function swatch(look) {
  const stroke = { x1: 0, y1: 5, x2: 18, y2: 5, stroke: shade(look.colour, isDark()), "stroke-width": 3, "stroke-dasharray": STROKES[look.dash].join(" ") || null };
  return svg("svg", { class: "swatch", width: 18, height: 10, "aria-hidden": "true" }, svg("line", stroke));
}
