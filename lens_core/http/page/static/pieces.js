// Small things that several views show: states, frameworks, progress, sparklines, empty places.

import { code, el, name, svg } from "./dom.js";
import { ago, bytes, duration, moment, number, unit, words } from "./format.js";

const STATES = {
  failed: "Failed",
  stalled: "Stalled",
  running: "Running",
  ended: "Ended",
  silent: "Silent",
};

export function stateBadge(line) {
  return el("span", { class: `state ${line.state}`, title: (isTroubled(line) ? "" : reason(line)) || null }, STATES[line.state] ?? line.state);
}

const isTroubled = ({ state }) => state === "failed" || state === "stalled";

// What the newest event that tells how a job is doing says.
export function reason(line) {
  if (!line.event) return "";
  const text = words(line.event);
  const place = line.event_iteration === null ? "" : ` at iteration ${line.event_iteration.toLocaleString("en-US")}`;
  return `${text[0].toUpperCase()}${text.slice(1)}${place}`;
}

// With the first cause below it where somebody must look: the newest event is often only a consequence.
export function stateCell(line, verdict) {
  const why = verdict === undefined && isTroubled(line) ? "…" : (verdict?.reason ?? "");
  return [stateBadge(line), why ? el("small", { class: "quiet" }, name(why, 90)) : ""];
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
  const left = line.state === "running" && found?.eta_seconds != null ? el("small", { class: "quiet" }, `${duration(found.eta_seconds)} left`) : null;
  return el(
    "span",
    { class: "progress" },
    el("progress", { max: 1, value: share, "aria-label": "progress" }),
    el("span", {}, `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} % of ${target.toLocaleString("en-US")}`),
    left,
  );
}

const WIDTH = 120;
const HEIGHT = 28;

// A spike that would flatten everything else is cut at the top edge: that it is there can still be seen.
export function usualRange(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const low = sorted[0];
  const high = sorted.at(-1);
  const usual = sorted[Math.floor((sorted.length - 1) * 0.95)];
  return [low, usual > low && high - low > 3 * (usual - low) ? low + 1.3 * (usual - low) : high];
}

// Values as a line; where one was not a number there is a red mark. A rate's line stands on zero.
export function sparkline(values, label, fromZero = false, newest = values?.at(-1)) {
  if (!values || !values.length) return el("span", { class: "quiet" }, "–");
  const numbers = values.filter((value) => typeof value === "number");
  const [low, high] = fromZero ? [0, Math.max(...numbers)] : usualRange(numbers);
  const half = high / 2 - low / 2 || 1; // the range of the largest numbers is infinite
  const x = (place) => (values.length > 1 ? (place / (values.length - 1)) * (WIDTH - 4) + 2 : WIDTH / 2);
  const y = (value) => HEIGHT - 3 - Math.min(1, (value / 2 - low / 2) / half) * (HEIGHT - 6);
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
  const last = number(newest);
  return el(
    "span",
    { class: "spark" },
    svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, role: "img", "aria-label": `${label}, now ${last}` },
      svg("path", { d: path.join("") }),
      marks,
    ),
    el("span", typeof newest === "string" ? { class: "trouble" } : {}, last),
  );
}

export function figure(value, metric) {
  if (value === null || value === undefined) return el("span", { class: "quiet" }, "–");
  const measured = unit(metric);
  if (measured === "B" && typeof value === "number") return el("span", { title: metric }, bytes(value));
  if (measured === "GB" && Math.abs(value) < 1) return amount(value * 1000, "MB", metric);
  return amount(value, measured, metric);
}

function amount(value, measured, metric) {
  return el("span", { title: metric, class: "figure" }, number(value), measured ? el("small", { class: "quiet" }, ` ${measured}`) : "");
}

// How long ago something was, in ms of this machine's clock; app.js keeps it true.
export const seen = (at) => el("time", { title: moment(at), "data-seen": at }, ago(at));

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
