// Which runs and attempts are drawn; one colour each in all charts.

import { button, el, name, svg } from "./dom.js";

// From so many on, all or none of them can be chosen at once.
const MANY = 6;

export class Legend {
  // hidden: keys of what is not drawn; changed(): it is to be drawn again
  constructor(palette, hidden, changed) {
    Object.assign(this, { palette, hidden, changed });
    this.box = el("div", { class: "legend", role: "group", "aria-label": "Runs and attempts" });
    this.painted = "";
  }

  paint() {
    const looks = this.palette.drawn();
    const now = looks.map((look) => look.place).join();
    if (looks.length < 2 || this.painted === now) return;
    this.painted = now;
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

const STROKES = { dash: "5 3", dot: "2 2", dashdot: "5 2 2 2" };

function swatch(look) {
  const stroke = { x1: 0, y1: 5, x2: 18, y2: 5, stroke: look.colour, "stroke-width": 3, "stroke-dasharray": STROKES[look.dash] };
  return svg("svg", { class: "swatch", width: 18, height: 10, "aria-hidden": "true" }, svg("line", stroke));
}
