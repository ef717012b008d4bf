// Runs as rows: what differs in their configurations, last and best values, and by how much they differ from a baseline.

import { get } from "./api.js";
import { button, el, name, table } from "./dom.js";
import { count, number } from "./format.js";
import { inOrder, tells } from "./gridtools.js";
import { seen, stateBadge } from "./pieces.js";

const PAGE = 100;
const MOST_METRICS = 6;
const MOST_SETTINGS = 6;

// What the address says of the table; `changed` is called with what somebody turns of it.
export function tableState(query) {
  return { baseline: query.get("baseline") ?? "", runsort: query.get("runsort") ?? "", runorder: query.get("runorder") ?? "", runfilter: query.getAll("runfilter"), runat: query.get("runat") ?? "", rungroup: query.get("rungroup") ?? "", runcolumns: query.get("runcolumns") ?? "" };
}

export async function runTable(place, { uids, state, signal, changed }) {
  const asked = { uid: uids, sort: state.runsort, order: state.runorder, filter: state.runfilter, group: state.rungroup, limit: PAGE, cursor: state.runat };
  const turn = changed;
  const bar = controls(state, turn);
  place.append(el("h2", {}, "Runs compared"), bar);
  let found;
  try {
    found = await get("runs", asked, { signal });
  } catch (error) {
    if (error.status !== 400) throw error;
    place.append(el("p", { class: "problem" }, error.message));
    return;
  }
  const { runs, total_count: total } = found;
  if (!total && !state.runfilter.length) return place.replaceChildren(); // the tab says it
  const baseline = state.baseline ? await baselineOf(state.baseline, runs, signal) : null;
  const allSettings = differing(runs);
  const allMetrics = inOrder([...new Set(runs.flatMap((run) => Object.keys(run.last)))].filter(tells));
  const isWhole = state.runcolumns === "all";
  const settings = isWhole ? allSettings : allSettings.slice(0, MOST_SETTINGS);
  const metrics = isWhole ? allMetrics : allMetrics.slice(0, MOST_METRICS);
  const left = allSettings.length + allMetrics.length - settings.length - metrics.length;
  bar.append(grouping(state, allSettings, turn));
  if (left || isWhole) bar.append(button(isWhole ? "Fewer columns" : `${count(left)} more columns`, () => turn({ runcolumns: isWhole ? "" : "all" })));
  const columns = [
    { head: "Run", sort: "run_id", cell: (run) => titleOf(run, uids) },
    { head: "State", sort: "state", cell: (run) => stateBadge({ ...run, event: null }) },
    { head: "Iteration", sort: "last_iteration", cell: (run) => count(run.last_iteration) },
    ...settings.map((key) => ({ head: key, sort: `config.${key}`, cell: (run) => (key in run.config ? name(told(run.config[key]), 60) : "–") })),
    ...metrics.map((metric) => ({ head: metric, sort: `last.${metric}`, cell: (run) => values(run, metric, baseline) })),
    { head: "Last seen", sort: "last_seen", cell: (run) => seen(run.last_seen) },
  ];
  const heads = ["Baseline", ...columns.map((column) => sorter(column, state, turn))];
  const rows = runs.map((run) => [choice(run, baseline, turn), ...columns.map((column) => column.cell(run))]);
  const shown = table("Runs compared", heads, rows);
  if (state.rungroup) insertHeads(shown, found, state.rungroup, heads.length);
  place.append(shown, pager(found, state, total, turn));
}

// By the state or a setting that differs; the server puts the runs of a group together, over all pages.
function grouping(state, settings, turn) {
  const choices = [...new Set(["state", ...settings.map((key) => `config.${key}`), ...(state.rungroup ? [state.rungroup] : [])])];
  const options = choices.map((choice) => el("option", { value: choice }, `Group by ${choice.replace("config.", "").slice(0, 60)}`));
  const select = el("select", { "aria-label": "Group runs by" }, el("option", { value: "" }, "No groups"), options);
  select.value = state.rungroup;
  select.addEventListener("change", () => turn({ rungroup: select.value, runat: "" }));
  return select;
}

// A head above the first run of each group on this page, with the number of its runs on all pages.
function insertHeads(place, { runs, groups }, group, columns) {
  const [kind, ...rest] = group.split(".");
  const key = rest.join(".");
  const valueOf = (run) => JSON.stringify((key ? run[kind][key] : run[kind]) ?? null);
  const counts = new Map(groups.map(({ value, count: all }) => [JSON.stringify(value), all]));
  const lines = [...place.querySelectorAll("tbody > tr")];
  runs.forEach((run, at) => {
    if (at && valueOf(runs[at - 1]) === valueOf(run)) return;
    const all = counts.get(valueOf(run)) ?? 0;
    const title = el("th", { colspan: columns, scope: "colgroup" }, name(`${key || kind}: ${valueOf(run) === "null" ? "none" : told(JSON.parse(valueOf(run)))}`, 120));
    title.append(el("span", { class: "quiet" }, ` ${count(all)} ${all === 1 ? "run" : "runs"}`));
    lines[at].before(el("tr", { class: "group" }, title));
  });
}

const keyOf = (run) => `${run.workload_uid}\u0001${run.run_id}`;

// The baseline may be on another page, or hidden by a filter.
async function baselineOf(key, runs, signal) {
  const known = runs.find((run) => keyOf(run) === key);
  if (known) return known;
  const [uid, id] = key.split("\u0001");
  const { runs: found } = await get("runs", { uid, filter: id ? `run_id=${id}` : "", limit: 1000 }, { signal });
  return found.find((run) => keyOf(run) === key) ?? null;
}

export function differing(runs) {
  const keys = [...new Set(runs.flatMap((run) => Object.keys(run.config)))].sort();
  return keys.filter((key) => new Set(runs.map((run) => JSON.stringify(run.config[key]))).size > 1);
}

// Of a number as many digits as somebody may have written, not those of its rounding.
const told = (value) => (typeof value === "string" ? value : typeof value === "number" ? String(Number(value.toPrecision(12))) : JSON.stringify(value));

function titleOf(run, uids) {
  return [name(run.run_id || (uids.length > 1 ? "" : run.name), 60), uids.length > 1 ? el("small", { class: "quiet" }, name(` ${run.name}`, 60)) : ""];
}

// The last value, the best below it, and how far the last is from the baseline's.
function values(run, metric, baseline) {
  const last = run.last[metric];
  if (last === undefined) return "–";
  const share = baseline && keyOf(baseline) !== keyOf(run) ? difference(last, baseline.last[metric]) : "";
  const best = run.best[metric];
  return [
    el("span", { class: "figure" }, el("span", typeof last === "string" ? { class: "trouble" } : {}, number(last)), share ? el("small", { class: "quiet" }, ` ${share}`) : ""),
    best !== undefined && best !== last ? el("small", { class: "quiet best" }, `best ${number(best)}`) : "",
  ];
}

// In per cent of the baseline; nothing where that is 0 or one of them is no number.
export function difference(value, base) {
  if (typeof value !== "number" || typeof base !== "number" || base === 0) return "";
  const share = (100 * (value - base)) / Math.abs(base);
  if (!Number.isFinite(share)) return "";
  const size = Math.abs(share);
  const text = size >= 1000 ? number(share) : share.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
  return Number(share.toFixed(2)) === 0 ? "±0 %" : `${share > 0 ? "+" : ""}${text} %`;
}

function sorter({ head, sort }, state, turn) {
  const isThis = state.runsort === sort;
  const isDescending = isThis && state.runorder === "desc";
  const mark = isThis ? (isDescending ? " ↓" : " ↑") : "";
  const next = () => (isThis && isDescending ? turn({ runsort: "", runorder: "", runat: "" }) : turn({ runsort: sort, runorder: isThis ? "desc" : "", runat: "" }));
  return button([name(head, 40), mark], next, { class: "plain sort", "data-sort": sort });
}

function choice(run, baseline, turn) {
  const key = keyOf(run);
  const box = el("input", { type: "radio", name: "baseline", checked: baseline !== null && keyOf(baseline) === key, "aria-label": `Baseline: ${(run.run_id || run.name).slice(0, 80)}` });
  box.addEventListener("change", () => turn({ baseline: key }));
  return box;
}

function controls(state, turn) {
  const field = el("input", { type: "search", placeholder: "Filter: last.loss<2, config.lr=0.001", "aria-label": "Filter runs" });
  field.addEventListener("keydown", (event) => {
    const wanted = field.value.trim();
    if (event.key !== "Enter" || !wanted) return;
    field.value = "";
    turn({ runfilter: [...state.runfilter, wanted], runat: "" });
  });
  const chips = state.runfilter.map((text) =>
    button([name(text, 60), " ×"], () => turn({ runfilter: state.runfilter.filter((other) => other !== text), runat: "" }), { class: "small chip", "aria-label": `No longer only ${text.slice(0, 60)}` }));
  const none = state.baseline ? button("No baseline", () => turn({ baseline: "" })) : null;
  return el("div", { class: "bar" }, field, el("span", { class: "chips" }, chips), none);
}

function pager(found, state, total, turn) {
  const first = Number(state.runat.split(":")[1] ?? 0);
  const shown = found.runs.length ? `${count(first + 1)}–${count(first + found.runs.length)} of ${count(total)}` : "No run is like this";
  const back = first ? button("← Previous", () => turn({ runat: first > PAGE ? `at:${first - PAGE}` : "" })) : null;
  const on = found.next_cursor ? button("Next →", () => turn({ runat: found.next_cursor })) : null;
  return el("nav", { class: "pager", "aria-label": "Pages of runs" }, back, el("span", { class: "quiet" }, shown), on);
}
