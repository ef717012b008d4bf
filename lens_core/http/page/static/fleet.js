// Where the time of all jobs went: the sum of all buckets, interruptions by cause and by node, and what groups of jobs cost.

import { get, retried } from "./api.js";
import { el, name, svg, table } from "./dom.js";
import { count, duration, money, priced, words } from "./format.js";
import { empty } from "./pieces.js";
import { note } from "./state.js";
import { BUCKETS } from "./time.js";

const EVERY_MS = 60000;
const SPANS = { "1d": "today and yesterday", "7d": "7 days", "30d": "30 days", "90d": "90 days" };
const GROUPS = { framework: "framework", namespace: "namespace", name: "name" };

export async function showFleet(root, query, { say, signal }) {
  const wanted = { since: query.get("since") in SPANS ? query.get("since") : "7d", by: query.get("by") in GROUPS ? query.get("by") : "framework" };
  const place = el("div");
  const load = async () => {
    const found = await get("goodput", wanted, { signal });
    say(null);
    place.replaceChildren(...paint(found, wanted.by));
  };
  const again = retried(load, { say, signal });
  const choose = (key, options) =>
    el("select", { "aria-label": key === "since" ? "Span" : "Groups", on: { change: (event) => change(key, event.target.value) } }, Object.entries(options).map(([value, text]) => el("option", { value, selected: wanted[key] === value }, text)));
  const change = (key, value) => {
    wanted[key] = value;
    note(wanted);
    again();
  };
  root.append(el("h1", {}, "Where the time went"), el("div", { class: "bar" }, choose("since", SPANS), " by ", choose("by", GROUPS)), place);
  await load();
  const timer = setInterval(() => document.hidden || again(), EVERY_MS);
  return () => clearInterval(timer);
}

function paint(found, by) {
  if (!(found.wall_seconds > 0)) return [empty("No time was spent in this span", "A job that logs steps has a ledger a minute or two after its first.")];
  const share = found.goodput === null ? "–" : `${(100 * found.goodput).toFixed(1)} %`;
  const gpu = found.gpu_seconds ? `${Math.round(sum(found.gpu_seconds) / 3600).toLocaleString()} GPU-hours` : duration(found.wall_seconds);
  return [
    el("p", { class: "sentence" }, `${share} of ${gpu} of ${count(found.jobs)} ${found.jobs === 1 ? "job" : "jobs"} made progress.${rest(found)}`),
    whole(found),
    interruptionTable(found, "By cause", "Cause", found.interruptions, words),
    interruptionTable(found, "By node", "Node", found.nodes, (node) => (node ? name(node, 60) : "unknown")),
    riskTable(found),
    groupTable(found.groups, by),
  ].filter(Boolean);
}

const sum = (amounts) => Object.values(amounts).reduce((total, amount) => total + amount, 0);

// One bar, as wide as all of the time.
function whole({ buckets, wall_seconds: wall }) {
  let reached = 0;
  const parts = Object.keys(BUCKETS).map((bucket) => {
    const width = (1000 * (buckets[bucket] ?? 0)) / wall;
    const x = reached;
    reached += width;
    return svg("rect", { x, y: 0, width, height: 40, fill: BUCKETS[bucket][0] }, svg("title", {}, `${bucket}: ${duration(buckets[bucket])}`));
  });
  return svg("svg", { class: "life", viewBox: "0 0 1000 40", preserveAspectRatio: "none", role: "img", "aria-label": "Shares of the time" }, parts);
}

// What the time without progress cost.
function rest({ costs }) {
  return costs ? ` The rest cost ${money(sum(costs) - costs.productive)}.` : "";
}

function interruptionTable(found, caption, head, groups, shown) {
  if (!groups.length) return null;
  const rows = groups.map((group) => [shown(group.name), count(group.interruptions), count(group.jobs), duration(group.seconds), group.gpu_hours === null ? "unknown" : group.gpu_hours.toFixed(1), ...priced(found, money(group.cost))]);
  return el("section", {}, el("h2", {}, caption), table(caption, [head, "Interruptions", "Jobs", "Cost", "GPU-hours", ...priced(found, "Price")], rows));
}

// What a failure now would cost: the work since the last checkpoint.
function riskTable(found) {
  const jobs = found.at_risk ?? [];
  if (!jobs.length) return null;
  const rows = jobs.map((job) => [name(job.name || job.uid, 60), (job.gpu_seconds / 3600).toFixed(1), ...priced(found, money(job.cost))]);
  return el("section", {}, el("h2", {}, "At risk now"), table("At risk now", ["Job", "GPU-hours since the last checkpoint", ...priced(found, "Price")], rows));
}

function groupTable(groups, by) {
  const rows = groups.map((group) => {
    const worst = Object.entries(group.buckets).filter(([bucket, seconds]) => bucket !== "productive" && seconds > 0).sort((one, other) => other[1] - one[1])[0];
    return [group.name ? name(group.name, 60) : "unknown", count(group.jobs), duration(group.wall_seconds), group.goodput === null ? "–" : `${(100 * group.goodput).toFixed(1)} %`, worst ? `${worst[0]}: ${duration(worst[1])}` : "–"];
  });
  return el("section", {}, el("h2", {}, `By ${by}`), table(`By ${by}`, ["Jobs called", "Jobs", "Time", "Goodput", "Most of the rest"], rows));
}
