// Above the charts: which metrics, how they are drawn, link and CSV.

import { apiUrl, workloadPath } from "./api.js";
import { button, el, name } from "./dom.js";
import { inOrder } from "./gridtools.js";

export class Toolbar {
  constructor(grid) {
    this.grid = grid;
    this.bar = this.build();
  }

  count(shown, all) {
    this.pickerTitle.textContent = `Metrics (${shown} of ${all})`;
  }

  build() {
    const { grid } = this;
    const set = (change) => {
      change();
      grid.note();
      grid.redraw();
    };
    const toggle = (label, option) =>
      el("label", {}, el("input", { type: "checkbox", checked: grid.options[option], on: { change: (event) => set(() => (grid.options[option] = event.target.checked)) } }), ` ${label}`);
    const axis = el("select", { "aria-label": "Axis", on: { change: () => grid.turnAxis(axis.value) } }, ["iteration", "time"].map((value) => el("option", { value, selected: value === grid.options.axis }, value)));
    const weight = el("output", {}, grid.options.smooth ? grid.options.smooth.toFixed(2) : "off");
    const smoothing = el("input", {
      type: "range", min: 0, max: 0.99, step: 0.01, value: grid.options.smooth, "aria-label": "Smoothing",
      on: { input: () => {
        grid.smooth(Number(smoothing.value));
        weight.textContent = grid.options.smooth ? grid.options.smooth.toFixed(2) : "off";
      } },
    });
    this.reset = button("Whole run", () => grid.zoom(null), { hidden: !grid.options.range });
    const share = button("Copy link", () => this.share(share));
    this.picker = this.metricPicker();
    return el(
      "div",
      { class: "bar" },
      this.picker,
      el("label", {}, "Axis ", axis),
      el("label", {}, "Smoothing ", smoothing, " ", weight),
      toggle("Log scale", "log"),
      toggle("Outliers", "outliers"),
      toggle("Events", "events"),
      this.reset,
      el("span", { class: "spacer" }),
      share,
      button("CSV", () => this.csv(), { title: "The shown metrics with all their points" }),
    );
  }

  metricPicker() {
    const { grid } = this;
    const items = el("div", { class: "items" });
    const fill = (text) => {
      const low = text.toLowerCase();
      const found = inOrder(grid.metrics).filter((metric) => metric.toLowerCase().includes(low));
      const shown = new Set(grid.shownMetrics());
      items.replaceChildren(
        ...found.slice(0, 200).map((metric) =>
          el("label", {}, el("input", { type: "checkbox", checked: shown.has(metric), on: { change: (event) => grid.choose(metric, event.target.checked) } }), " ", name(metric, 80))),
        found.length > 200 ? el("p", { class: "quiet" }, `and ${found.length - 200} more: search`) : "",
      );
    };
    const field = el("input", { type: "search", placeholder: "Search metrics", "aria-label": "Search metrics", on: { input: () => fill(field.value) } });
    this.pickerTitle = el("summary", {});
    const picker = el("details", { class: "picker" }, this.pickerTitle, el("div", {}, field, items));
    picker.addEventListener("toggle", () => picker.open && (fill(field.value), field.focus()));
    picker.addEventListener("keydown", (event) => event.key === "Escape" && (picker.open = false));
    return picker;
  }

  async share(place) {
    try {
      await navigator.clipboard.writeText(location.href);
      place.textContent = "Copied";
    } catch {
      prompt("This link shows the same charts:", location.href); // no clipboard without TLS
    }
    setTimeout(() => (place.textContent = "Copy link"), 2000);
  }

  // The browser streams the file to disk, however large it is; one for all workloads.
  csv() {
    const { uids } = this.grid;
    const metrics = this.grid.shownMetrics();
    const names = metrics.length === 1 ? [metrics[0], metrics[0]] : metrics;
    const path = uids.length === 1 ? workloadPath(uids[0], "/metrics/data") : "metrics/data";
    const address = apiUrl(path, { uid: uids.length === 1 ? [] : uids, metrics: names, format: "csv" });
    el("a", { href: address, download: `${uids.length === 1 ? uids[0].slice(0, 100) : "compared"}.csv` }).click();
  }
}
