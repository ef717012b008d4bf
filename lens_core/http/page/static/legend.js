// Which runs and attempts are drawn; one colour each in all charts.

import { button, el, name, svg } from "./dom.js";
import { isDark, shade, STROKES } from "./palette.js";

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
