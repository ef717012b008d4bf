// Several workloads beside each other: what they logged last, and how their configurations differ.

import { get } from "./api.js";
import { el, name, table } from "./dom.js";
import { count, number } from "./format.js";

const MOST = 100; // of one question

export async function compare(place, { names, points, metrics, signal }) {
  const uids = [...names.keys()];
  const heads = (first) => [first, ...uids.map((uid) => name(names.get(uid), 40))];
  const shown = metrics.slice(0, 12);
  await Promise.all(shown.map((metric) => points.load(metric)));
  place.append(
    el("h2", {}, "Last value, and from the lowest to the highest"),
    table("Values compared", heads("Metric"), shown.map((metric) => [name(metric, 60), ...uids.map((uid) => summary(points.metrics.get(metric), uid))])),
  );
  const { runs } = await get("runs", { uid: uids.slice(0, MOST), limit: 1000 }, { signal });
  const configurations = uids.map((uid) => Object.assign({}, ...runs.filter((run) => run.workload_uid === uid).map((run) => run.config)));
  const keys = [...new Set(configurations.flatMap((found) => Object.keys(found)))].sort();
  const different = keys.filter((key) => new Set(configurations.map((found) => JSON.stringify(found[key]))).size > 1);
  place.append(el("h2", {}, "Configuration"));
  if (!keys.length) {
    place.append(el("p", { class: "quiet" }, "None of them reported a configuration."));
  } else if (!different.length) {
    place.append(el("p", {}, `All ${count(keys.length)} settings that they report are the same.`));
  } else {
    const rows = different.slice(0, 300).map((key) => [name(key, 60), ...configurations.map((found) => (key in found ? name(JSON.stringify(found[key]), 80) : "–"))]);
    place.append(table("Settings that differ", heads("Setting"), rows));
  }
}

function summary(series, uid) {
  let last = null;
  let low = Infinity;
  let high = -Infinity;
  for (const one of series?.values() ?? []) {
    if (one.uid !== uid) continue;
    low = Math.min(low, one.figures.min ?? Infinity);
    high = Math.max(high, one.figures.max ?? -Infinity);
    const newest = one.points.at(-1);
    if (!last || newest.t >= last.t) last = newest;
  }
  if (!last) return el("span", { class: "quiet" }, "–");
  const between = low <= high ? `${number(low)} to ${number(high)}` : "";
  return el("span", { class: "figure" }, el("strong", {}, number(last.special ?? last.y)), el("span", { class: "quiet" }, ` ${between}`));
}
