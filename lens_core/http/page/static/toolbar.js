// Above the charts: which metrics, how they are drawn, link and CSV.

import { apiUrl, workloadPath } from "./api.js";
import { button, el, name, setText, throttle } from "./dom.js";
import { inOrder } from "./gridtools.js";
import { axisOf, metricOf } from "./lines.js";
import { matcher } from "./sections.js";

const MOST_LISTED = 200;
const AXES = [["iteration", "iteration"], ["time", "time"], ["relative", "relative time"]];

export class Toolbar {
  constructor(grid) {
    this.grid = grid;
    this.bar = this.build();
  }

  // What depends on the grid's state.
  paint() {
    const { options, metrics } = this.grid;
    const listed = this.grid.sections.reduce((sum, section) => sum + section.metrics.length, 0);
    setText(this.pickerTitle, `Metrics (${listed} of ${metrics.length})`);
    this.reset.hidden = !options.range;
    this.logX.checked = options.logX;
    this.logX.disabled = options.axis === "time";
    this.joined.disabled = options.axis === "time" || options.axis === "relative";
    const { isValid } = matcher(options.filter);
    this.filter.setAttribute("aria-invalid", String(!isValid));
    this.filter.title = isValid ? "A regular expression" : "No regular expression: charts whose names contain it are shown";
    if (this.axisMetrics !== metrics) this.fillAxes();
  }

  // Which options mean anything for these runs.
  offer(offered) {
    for (const [option, isOffered] of Object.entries(offered)) this[option].parentElement.hidden = !isOffered;
  }

  build() {
    const { grid } = this;
    const { options } = grid;
    const toggle = (label, option, more = {}) => {
      const box = el("input", { type: "checkbox", checked: options[option], on: { change: () => grid.turn({ [option]: box.checked }) } });
      this[option] = box;
      return el("label", more, box, ` ${label}`);
    };
    this.axis = el("select", { "aria-label": "Axis", on: { change: () => grid.turnAxis(this.axis.value).catch(grid.say) } });
    this.reset = button("Whole run", () => grid.zoom(null), { hidden: !options.range });
    const share = button("Copy link", () => this.share(share));
    this.picker = this.metricPicker();
    return el(
      "div",
      { class: "bar charts" },
      this.filterField(),
      this.picker,
      el("label", { title: "Relative time begins where the run or attempt did" }, "Axis ", this.axis),
      this.smoothing(),
      toggle("Log x", "logX"),
      toggle("Log y", "log"),
      toggle("Outliers", "outliers"),
      toggle("Events", "events"),
      toggle("Join attempts", "joined", { hidden: true, title: "By iteration, the attempts of a run are one line: a later one replaces the steps that it repeated" }),
      toggle("All ranks", "ranks", { hidden: true, title: "Ranks that log runs of their own: all of them, not only the lowest" }),
      this.reset,
      el("span", { class: "spacer" }),
      el("span", { class: "actions" }, share, button("CSV", () => this.csv(), { title: "The shown metrics with all their points" })),
    );
  }

  filterField() {
    const { grid } = this;
    const apply = throttle(200, () => grid.rearrange({ filter: this.filter.value }));
    this.filter = el("input", { type: "search", class: "filter", placeholder: "Filter charts", "aria-label": "Filter charts", value: grid.options.filter, on: { input: apply } });
    return this.filter;
  }

  smoothing() {
    const { grid } = this;
    const text = () => (grid.options.smooth ? grid.options.smooth.toFixed(2) : "off");
    const weight = el("output", {}, text());
    const slider = el("input", {
      type: "range", min: 0, max: 0.99, step: 0.01, value: grid.options.smooth, "aria-label": "Smoothing",
      on: { input: () => {
        grid.smooth(Number(slider.value));
        weight.textContent = text();
      } },
    });
    return el("label", {}, "Smoothing ", slider, " ", weight);
  }

  fillAxes() {
    const { metrics, options } = this.grid;
    this.axisMetrics = metrics;
    const choice = (value, text) => el("option", { value, selected: value === options.axis }, text);
    const chosen = metricOf(options.axis);
    const offered = chosen === null || metrics.includes(chosen) ? metrics : [chosen, ...metrics];
    const others = el("optgroup", { label: "A metric" }, [...offered].sort().map((metric) => choice(axisOf(metric), metric.slice(0, 60))));
    this.axis.replaceChildren(...AXES.map(([value, text]) => choice(value, text)), others);
  }

  metricPicker() {
    const { grid } = this;
    const items = el("div", { class: "items" });
    const found = () => inOrder(grid.metrics).filter(matcher(field.value).matches);
    const fill = () => {
      const all = found();
      const shown = grid.wanted();
      items.replaceChildren(
        ...all.slice(0, MOST_LISTED).map((metric) =>
          el("label", {}, el("input", { type: "checkbox", checked: shown.has(metric), on: { change: (event) => grid.choose([metric], event.target.checked) } }), " ", name(metric, 80))),
        all.length > MOST_LISTED ? el("p", { class: "quiet" }, `and ${all.length - MOST_LISTED} more: search`) : "",
      );
    };
    const chooseFound = (isWanted) => () => {
      grid.choose(found(), isWanted);
      fill();
    };
    const field = el("input", { type: "search", placeholder: "Search metrics", "aria-label": "Search metrics", on: { input: fill } });
    const both = el("div", { class: "both" }, button("All", chooseFound(true), { class: "small", "aria-label": "Choose all found metrics" }), button("None", chooseFound(false), { class: "small", "aria-label": "Choose none of the found metrics" }));
    this.pickerTitle = el("summary", {});
    const picker = el("details", { class: "picker" }, this.pickerTitle, el("div", {}, field, both, items));
    picker.addEventListener("toggle", () => picker.open && (fill(), field.focus()));
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
