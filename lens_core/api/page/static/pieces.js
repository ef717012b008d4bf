// Small things that several views show: states, frameworks, progress, sparklines, empty places.

import { code, el, name, svg } from "./dom.js";
import { duration, number, words } from "./format.js";

const STATES = {
  failed: "Failed",
  stalled: "Stalled",
  running: "Running",
  ended: "Ended",
  silent: "Silent",
};

export function stateBadge(line) {
  const reason = line.event ? `${words(line.event)}${line.event_iteration !== null ? ` at ${line.event_iteration}` : ""}` : "";
  return el("span", { class: `state ${line.state}`, title: reason || null }, STATES[line.state] ?? line.state);
}

export function frameworkBadges(found) {
  if (!found) return el("span", { class: "quiet" }, "…");
  const sure = `${Math.round((found.confidence ?? 0) * 100)} % sure, ${found.detection_status ?? found.status ?? "unknown"}`;
  const layers = [
    ["wrapper", found.wrapper_framework],
    ["base", found.base_framework],
  ].filter(([, framework]) => framework);
  if (!layers.length) return el("span", { class: "quiet" }, "unknown");
  return el(
    "span",
    { class: "badges" },
    layers.map(([layer, framework]) =>
      el("span", { class: `badge ${layer}`, title: `${layer} framework, ${sure}` }, name(framework, 40))),
    el("span", { class: "quiet" }, `${Math.round((found.confidence ?? 0) * 100)} %`),
  );
}

export function progress(line, found) {
  const target = line.target_iteration ?? found?.target_iteration ?? null;
  const done = line.last_iteration;
  if (target === null || target <= 0 || done === null) {
    return el("span", { class: "progress" }, done === null ? "–" : `iteration ${done.toLocaleString("en-US")}`);
  }
  const share = Math.min(1, Math.max(0, done / target));
  const left = line.state === "running" && found?.eta_seconds != null ? `, ${duration(found.eta_seconds)} left` : "";
  return el(
    "span",
    { class: "progress" },
    el("progress", { max: 1, value: share, "aria-label": "progress" }),
    el("span", {}, `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} % of ${target.toLocaleString("en-US")}${left}`),
  );
}

const WIDTH = 120;
const HEIGHT = 28;

// A loss as a line; where it was not a number there is a red mark.
export function sparkline(values, label) {
  if (!values || !values.length) return el("span", { class: "quiet" }, "–");
  const numbers = values.filter((value) => typeof value === "number");
  const low = Math.min(...numbers);
  const range = Math.max(...numbers) - low || 1;
  const x = (place) => (values.length > 1 ? (place / (values.length - 1)) * (WIDTH - 4) + 2 : WIDTH / 2);
  const y = (value) => HEIGHT - 3 - ((value - low) / range) * (HEIGHT - 6);
  const path = [];
  const marks = [];
  let pen = "M";
  values.forEach((value, place) => {
    if (typeof value === "number") {
      path.push(`${pen}${x(place).toFixed(1)} ${y(value).toFixed(1)}${pen === "M" ? "h0" : ""}`); // a lone value is a dot
      pen = "L";
    } else {
      pen = "M";
      marks.push(svg("circle", { cx: x(place), cy: 4, r: 2.5, class: "nan" }));
    }
  });
  const last = numbers.length ? number(numbers[numbers.length - 1]) : "NaN";
  return el(
    "span",
    { class: "spark" },
    svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, role: "img", "aria-label": `${label}, now ${last}` },
      svg("path", { d: path.join("") }),
      marks,
    ),
    el("span", {}, last),
  );
}

export function figure(value, metric) {
  if (value === null || value === undefined) return "–";
  return el("span", { title: metric }, `${number(value)} `, el("small", {}, unit(metric)));
}

function unit(metric) {
  const text = metric.toLowerCase();
  if (text === "tokens_per_gpu") return "tokens/s/GPU";
  if (text.startsWith("samples_per")) return "samples/s";
  if (text.startsWith("tflops")) return "TFLOP/s";
  if (text === "mem_usage") return "GB";
  if (text.endsWith("ratio") || text.includes("percent")) return "%";
  return "";
}

export function empty(title, ...rest) {
  return el("div", { class: "empty" }, el("h2", {}, title), rest.map((item) => el("p", {}, item)));
}

export function nothingYet() {
  return empty(
    "No workload has sent anything yet",
    el("span", {}, "To see something at once: ", code("lens demo")),
    el("span", {}, "Your own training, unchanged: ", code("lens run --workload my-run -- python train.py")),
    el("span", {}, "It sends, but nothing comes? ", code("lens doctor"), " tells where it stops."),
  );
}
