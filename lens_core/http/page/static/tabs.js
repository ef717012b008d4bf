// What there is to know of a workload beside its charts: runs, events, the evidence of a detection, a diagnosis.

import { get, workloadPath } from "./api.js";
import { code, el, name, table } from "./dom.js";
import { count, duration, moment, number, ranges, words } from "./format.js";
import { empty, frameworkBadges, seen } from "./pieces.js";

export async function runs(place, { uid, detail, signal }) {
  if (!detail.runs.length) {
    place.append(empty("No run has logged anything yet", "Runs and attempts come here with their first row."));
    return;
  }
  const { attempts } = await get(workloadPath(uid, "/attempts"), {}, { signal });
  const ends = new Map(attempts.map((one) => [JSON.stringify([one.run_id, one.attempt, one.data_source]), one]));
  const rows = together(detail.runs).map(({ run, ranks, behind }) => [
    run.run_id ? name(run.run_id, 60) : el("span", { class: "quiet" }, "without a name"),
    String(run.attempt),
    name(run.data_source, 30),
    ranks.length ? name(ranges(ranks), 60) : "all",
    count(run.rows),
    [`${count(run.first_iteration)} – ${count(run.last_iteration)}`, behind],
    count(run.target_iteration),
    duration((run.last_seen - run.first_seen) / 1000),
    ended(ends.get(JSON.stringify([run.run_id, run.attempt, run.data_source]))),
    lost(ends.get(JSON.stringify([run.run_id, run.attempt, run.data_source]))),
    seen(run.last_seen),
  ]);
  place.append(
    table("Runs and attempts", ["Run", "Attempt", "Source", "Ranks", "Rows", "Iterations", "Target", "Took", "Ended", "Steps lost", "Last seen"], rows),
  );
}

// Why an attempt ended; nothing of one that may still run.
function ended(found) {
  if (!found?.end) return "–";
  return [el("span", { class: `state ${found.end === "restarted" ? "silent" : found.end}` }, found.end), found.reason ? el("small", { class: "quiet" }, name(` ${found.reason}`, 90)) : ""];
}

const lost = (found) => (found?.steps_lost === null || found === undefined ? "–" : count(found.steps_lost));

// The ranks of an attempt are one line, which says which few are behind.
function together(runs) {
  const groups = new Map();
  for (const run of runs) {
    const key = JSON.stringify([run.run_id, run.attempt, run.data_source]);
    groups.set(key, [...(groups.get(key) ?? []), run]);
  }
  return [...groups.values()].map((ranked) => ({ run: sum(ranked), ranks: ranksOf(ranked), behind: behind(ranked) }));
}

function sum(ranked) {
  const all = (field) => ranked.map((run) => run[field]).filter((value) => value !== null);
  const lowest = (field) => all(field).reduce((one, other) => Math.min(one, other), Infinity);
  const highest = (field) => all(field).reduce((one, other) => Math.max(one, other), -Infinity);
  return {
    ...ranked[0],
    rows: all("rows").reduce((one, other) => one + other, 0),
    first_iteration: lowest("first_iteration"),
    last_iteration: highest("last_iteration"),
    target_iteration: all("target_iteration").length ? highest("target_iteration") : null,
    first_seen: lowest("first_seen"),
    last_seen: highest("last_seen"),
  };
}

function ranksOf(ranked) {
  return ranked.map((run) => run.rank).filter((rank) => rank !== null && rank >= 0);
}

function behind(ranked) {
  const last = Math.min(...ranked.map((run) => run.last_iteration));
  const slowest = ranksOf(ranked.filter((run) => run.last_iteration === last));
  if (!slowest.length || 2 * slowest.length > ranked.length) return "";
  const whose = `${slowest.length === 1 ? "rank" : "ranks"} ${ranges(slowest)}`;
  return el("small", { class: "quiet" }, name(` ${whose} at ${count(last)}`, 60));
}

export async function events(place, { uid, signal }) {
  const found = await get(workloadPath(uid, "/events"), { limit: 1000 }, { signal });
  if (!found.events.length) {
    place.append(empty("Nothing happened yet", "Checkpoints, failures, stalls and values that are no number are listed here. They are read out of logs and rows."));
    return;
  }
  const lines = folded(found.events);
  const runs = found.events.some((event) => event.run_id);
  const somewhere = found.events.some((event) => event.rank !== null || event.pod_name);
  place.append(
    table(
      "Events, newest first",
      ["When", "What", "Iteration", ...(runs ? ["Run"] : []), "Attempt", ...(somewhere ? ["Where"] : []), "Source", "Details"],
      lines.map(({ event, all }) => [
        el("time", { title: moment(event.timestamp) }, moment(event.timestamp)),
        el("span", { class: `event nowrap ${event.type}` }, words(event.type)),
        count(event.iteration),
        ...(runs ? [event.run_id ? name(event.run_id, 40) : "–"] : []),
        event.attempt === null ? "–" : String(event.attempt),
        ...(somewhere ? [where(all)] : []),
        event.data_source ? name(event.data_source, 30) : "",
        because(event.details),
      ]),
    ),
  );
}

// What the ranks of a job say of one thing within a minute is one line.
function folded(events) {
  const lines = [];
  const open = new Map();
  for (const event of events) {
    const key = JSON.stringify([event.type, event.iteration, event.run_id, event.attempt, event.data_source, event.details]);
    const line = open.get(key);
    if (line && line.event.timestamp - event.timestamp < 60_000) {
      line.all.push(event);
      continue;
    }
    open.set(key, { event, all: [event] });
    lines.push(open.get(key));
  }
  return lines;
}

function where(events) {
  const ranks = events.map((event) => event.rank).filter((rank) => rank !== null);
  const parts = [];
  if (ranks.length) parts.push(`${new Set(ranks).size === 1 ? "rank" : "ranks"} ${ranges(ranks)}`);
  for (const [field, many] of [["pod_name", "pods"], ["node", "nodes"]]) {
    const names = [...new Set(events.map((event) => event[field]).filter(Boolean))];
    if (names.length) parts.push(names.length > 2 ? `${count(names.length)} ${many}` : names.join(", "));
  }
  const text = parts.join(" · ");
  return text ? el("span", { title: name(events.map((event) => event.pod_name).filter(Boolean).join(", "), 2000) }, name(text, 80)) : "–";
}

// Why do you say DeepSpeed?
export async function why(place, { uid, signal }) {
  const found = await get(workloadPath(uid, "/detection"), {}, { signal });
  place.append(el("p", { class: "verdict" }, ...sentence(found)));
  for (const conflict of found.conflicts ?? []) {
    place.append(el("p", { class: "problem" }, `Contradiction: ${typeof conflict === "string" ? conflict : JSON.stringify(conflict)}`));
  }
  if (found.detections.length) {
    place.append(
      el("h2", {}, "What says so"),
      table(
        "Opinions of detectors",
        ["Framework", "Layer", "Source", "Method", "Sure", "Because"],
        found.detections.map((opinion) => [
          name(opinion.framework, 40),
          opinion.layer,
          name(opinion.source, 30),
          words(opinion.method),
          `${Math.round(opinion.confidence * 100)} %`,
          because(opinion.facts),
        ]),
      ),
    );
  }
  if (found.evidence.length) {
    place.append(
      el("h2", {}, "The evidence as it was reported"),
      ...found.evidence.map((item) =>
        el("details", {}, el("summary", {}, name(`${item.source}${item.run_id ? `, run ${item.run_id}` : ""}`, 80), el("span", { class: "quiet" }, ` ${moment(item.timestamp * 1000)}`)), pretty(item.facts))),
    );
  }
}

function sentence(found) {
  if (!found.framework) {
    return ["Nothing that was reported or logged so far is a framework's. A person can say it: ", code("PUT /api/v1/workloads/…/detection"), "."];
  }
  const both = found.wrapper_framework && found.base_framework ? `${found.wrapper_framework} over ${found.base_framework}` : found.framework;
  return ["This is ", el("strong", {}, name(both, 80)), `, ${found.status}: `, frameworkBadges(found)];
}

function because(facts) {
  const entries = Object.entries(facts ?? {});
  if (!entries.length) return "";
  const short = entries.map(([key, value]) => `${words(key)}: ${told(value)}`).join("; ");
  return short.length <= 160 ? name(short, 160) : unfolding(short, facts);
}

function told(value) {
  if (typeof value === "string") return value;
  return typeof value === "number" ? number(value) : JSON.stringify(value);
}

function unfolding(short, value) {
  return el("details", { class: "json" }, el("summary", {}, name(short, 100)), pretty(value));
}

function pretty(value) {
  const text = JSON.stringify(value, null, 1);
  return el("pre", { tabindex: "0" }, text.length > 20000 ? `${text.slice(0, 20000)} …` : text);
}
