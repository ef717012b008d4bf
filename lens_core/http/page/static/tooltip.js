// What is under the cursor of a chart, in words.

import { el, name } from "./dom.js";
import { count, duration, moment, number } from "./format.js";
import { describe, metricOf, nearest } from "./lines.js";
import { swatch } from "./palette.js";

const MOST_LINES = 6;
const MOST_MARKS = 4;
// Pixels from the cursor within which a point or mark belongs to it.
const REACH = 40;
const MARK_REACH = 6;
const GAP = 12;

export class Tooltip {
  constructor(place) {
    this.place = place;
    this.box = el("div", { class: "tooltip", hidden: true, "aria-hidden": "true" });
    place.append(this.box);
  }

  // drawn(value): where the chart draws a value
  show(u, picture, x, drawn) {
    const away = (at) => Math.abs(u.valToPos(at, "x") - u.cursor.left);
    const found = picture.lines.flatMap((line) => valueNear(line, x, away));
    const height = (one) => Math.abs(u.valToPos(drawn(one.value), "y") - u.cursor.top);
    const shown = found.length > MOST_LINES ? found.sort((one, other) => height(one) - height(other)).slice(0, MOST_LINES) : found;
    const marks = [...picture.specials, ...picture.marks].filter((mark) => away(mark.x) <= MARK_REACH);
    this.box.hidden = !shown.length && !marks.length;
    if (this.box.hidden) return;
    const more = found.length - shown.length;
    this.box.replaceChildren(
      el("strong", {}, axisText(picture, shown[0]?.x ?? x)),
      ...shown.map((one) => row(one, picture)),
      more ? el("p", { class: "quiet" }, `and ${more} more lines`) : "",
      ...marks.slice(0, MOST_MARKS).map((mark) => el("p", { class: "mark" }, name(mark.text, 80))),
      marks.length > MOST_MARKS ? el("p", { class: "quiet" }, `and ${count(marks.length - MOST_MARKS)} more marks`) : "",
    );
    this.move(u);
  }

  // On the side where there is room, and never over the edge of the screen.
  move(u) {
    const { left: edge, width } = this.place.getBoundingClientRect();
    const at = u.bbox.left / devicePixelRatio + u.cursor.left;
    const beside = at > width / 2 ? at - GAP - this.box.offsetWidth : at + GAP;
    const most = document.documentElement.clientWidth - edge - this.box.offsetWidth - 4;
    this.box.style.left = `${Math.max(4 - edge, Math.min(most, beside))}px`;
    this.box.style.top = `${Math.max(0, Math.min(u.cursor.top - 10, this.place.clientHeight - 60))}px`;
  }

  hide() {
    this.box.hidden = true;
  }

  remove() {
    this.box.remove();
  }
}

function valueNear(line, x, away) {
  const place = nearest(line, x);
  if (place < 0 || line.y[place] === null || away(line.x[place]) > REACH) return [];
  return [{ line, x: line.x[place], value: line.y[place], point: line.points[place] }];
}

function row({ line, value, point }, { lines, axis }) {
  const label = lines.length > 1 ? [swatch(line.look), name(line.look.label, 40), " "] : [];
  return el("p", {}, label, el("strong", {}, number(value)), el("small", { class: "quiet" }, ` ${describe(point, axis, line.begins?.length > 0)}`));
}

function axisText({ axis }, x) {
  if (axis === "time") return moment(x);
  if (axis === "relative") return `after ${duration(x / 1000)}`;
  const metric = metricOf(axis);
  return metric === null ? `iteration ${count(Math.round(x))}` : `${metric.slice(0, 60)} ${number(x)}`;
}
