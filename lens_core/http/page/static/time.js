// Where the time of a job went: a sentence, a bar over its life, the buckets, the interruptions; findings and slow ranks.

import { get, workloadPath } from "./api.js";
import { el, name, svg, table } from "./dom.js";
import { ago, duration, moment, money, priced, ranges, words } from "./format.js";
import { empty } from "./pieces.js";

const WIDTH = 1000;
const HEIGHT = 40;

export const BUCKETS = {
  productive: ["#2c9f5f", "Steps that survived, at the best pace held"],
  startup: ["#5b9bd5", "From the start of the process to its first step"],
  restore: ["#7fb3e6", "Loading a checkpoint"],
  checkpoint: ["#3f6fb5", "Saving checkpoints, as far as it held training up"],
  evaluation: ["#8064a2", "Evaluations"],
  periodic: ["#a58cc4", "Pauses every so many steps that nobody named"],
  data: ["#c8489c", "Waiting for data"],
  slow: ["#e0a92e", "Steps slower than the best pace"],
  stalled: ["#d9662b", "Nothing happened"],
  lost: ["#c0392b", "Work that was done again"],
  down: ["#8a8f98", "Between attempts, with GPUs held"],
  queued: ["#c3c7cd", "Between attempts, without GPUs"],
};

export async function whereTimeWent(place, { uid, signal }) {
  const asked = ["/goodput", "/findings", "/stragglers"].map((path) => get(workloadPath(uid, path), {}, { signal }).catch(() => null));
  const [ledgers, findings, ranks] = await Promise.all(asked);
  if (ledgers === null) {
    place.append(empty("Nobody keeps the ledgers", "The analyzer goodput is switched off, or the daemon has no store."));
    return;
  }
  if (!ledgers.runs.length) {
    place.append(empty("No time has been spent yet", "The ledger begins with the first step."));
    return;
  }
  place.append(...ledgers.runs.flatMap((run) => ledger(run, ledgers.runs.length > 1)));
  if (findings) place.append(...findingsOf(findings));
  if (ranks) place.append(...ranksOf(ranks));
}

function ledger(run, isOneOfMany) {
  return [
    isOneOfMany ? el("h3", {}, name(run.run, 60)) : null,
    el("p", { class: "sentence" }, run.sentence),
    bar(run),
    buckets(run),
    interruptions(run),
    el("p", { class: "quiet" }, `Resolution: ${run.resolution}. `, run.notes.map((note) => [note, ". "])),
  ].filter(Boolean);
}

// One column for each part of its life; attempts that failed end in a red line, others in a grey one.
export function bar({ timeline, attempts, sentence }) {
  const { edges } = timeline;
  const [begin, end] = [edges[0], edges[edges.length - 1]];
  const at = (time) => ((time - begin) / Math.max(1, end - begin)) * WIDTH;
  const parts = edges.slice(1).flatMap((edge, place) => column(timeline, place, at(edges[place]), at(edge)));
  const ends = attempts
    .filter((attempt) => attempt.end > begin && attempt.end < end)
    .map((attempt) => svg("line", { x1: at(attempt.end), x2: at(attempt.end), y1: 0, y2: HEIGHT, class: attempt.ended && attempt.ended !== "cleanly" ? "failed" : "ended" }, svg("title", {}, `${words(attempt.ended || "ended")}, ${moment(attempt.end)}`)));
  return svg("svg", { class: "life", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": sentence }, parts, ends);
}

function column(timeline, place, left, right) {
  const amounts = Object.keys(BUCKETS).map((bucket) => [bucket, timeline.buckets[bucket]?.[place] ?? 0]);
  const whole = amounts.reduce((sum, [, seconds]) => sum + seconds, 0);
  if (!(whole > 0)) return [];
  let reached = HEIGHT;
  return amounts
    .filter(([, seconds]) => seconds > 0)
    .map(([bucket, seconds]) => {
      const height = (seconds / whole) * HEIGHT;
      reached -= height;
      return svg("rect", { x: left, y: reached, width: right - left + 0.3, height, fill: BUCKETS[bucket][0] }, svg("title", {}, `${bucket}: ${duration(seconds)}`));
    });
}

function buckets(run) {
  const rows = Object.entries(run.buckets)
    .filter(([, seconds]) => seconds > 0)
    .sort((one, other) => other[1] - one[1])
    .map(([bucket, seconds]) => [
      el("span", {}, svg("svg", { width: 10, height: 10, "aria-hidden": "true" }, svg("rect", { width: 10, height: 10, fill: BUCKETS[bucket]?.[0] ?? "gray" })), " ", bucket),
      duration(seconds),
      `${((100 * seconds) / run.wall_seconds).toFixed(1)} %`,
      run.gpu_seconds ? (run.gpu_seconds[bucket] / 3600).toFixed(1) : "unknown",
      ...priced(run, money(run.costs?.[bucket])),
      BUCKETS[bucket]?.[1] ?? "",
    ]);
  return table("Where the time went", ["Bucket", "Time", "Share", "GPU-hours", ...priced(run, "Price"), "What it is"], rows);
}

function interruptions(run) {
  if (!run.interruptions.length) return null;
  const rows = run.interruptions.map((found) => [
    words(found.cause),
    found.node ? name(found.node, 60) : "–",
    found.rank ?? "–",
    duration(found.seconds),
    found.gpu_hours === null ? "unknown" : found.gpu_hours.toFixed(2),
    ...priced(run, money(found.cost)),
  ]);
  return table("Interruptions", ["Interruption", "Node", "Rank", "Cost", "GPU-hours", ...priced(run, "Price")], rows);
}

function findingsOf({ runs }) {
  const found = runs.flatMap((run) => run.findings);
  if (!found.length) return [];
  const rows = found.map((one) => [words(one.type), String(one.iteration), el("time", { title: moment(one.timestamp) }, ago(one.timestamp)), one.rule, figures(one.details)]);
  return [el("h3", {}, "What got worse"), table("What got worse", ["Finding", "Iteration", "When", "Rule", "Figures"], rows)];
}

function figures(details) {
  const texts = Object.entries(details).map(([key, value]) => `${key} ${typeof value === "number" ? Number(value.toPrecision(4)) : JSON.stringify(value)}`);
  return name(texts.join(", "), 200);
}

function ranksOf({ verdict, windows }) {
  const parts = [el("h3", {}, "Ranks"), el("p", {}, inWords(verdict))];
  const role = ["compute", "waiting", "data"].find((one) => windows.some((window) => window[one]));
  return role ? [...parts, heatMap(windows, role)] : parts;
}

function inWords(verdict) {
  const times = verdict.ratio ? ` at ${verdict.ratio.toFixed(2)} of the median` : "";
  const whose = verdict.ranks.length ? `${verdict.ranks.length === 1 ? "rank" : "ranks"} ${ranges(verdict.ranks)}` : "";
  const texts = {
    none: "No rank stands out.",
    unknown: `Unknown: ${verdict.advice}.`,
    straggler: `${verdict.node ? `Node ${verdict.node} (${whose})` : whose} holds the others up${times} (${verdict.rule})${verdict.cause ? `: ${verdict.cause}` : ""}.`,
    input: `${whose} waits for its input${times}.`,
    imbalance: `Work is unevenly divided${whose ? `: ${whose}` : ""}${times}; no hardware fault.`,
    uneven_data: "Another rank is slowest each time: the data is uneven.",
  };
  return texts[verdict.kind] ?? verdict.kind;
}

// From blue to orange (Okabe and Ito), which nobody takes for each other.
function between(share) {
  const ends = [[86, 180, 233], [213, 94, 0]];
  return `rgb(${ends[0].map((part, place) => Math.round(part + share * (ends[1][place] - part))).join(" ")})`;
}

// Rank by time: how much longer than the median each rank takes; in collectives the slow one waits least.
function heatMap(windows, role) {
  const ranks = [...new Set(windows.flatMap((window) => Object.keys(window[role] ?? {})))].map(Number).sort((one, other) => one - other);
  const size = Math.max(2, Math.min(16, Math.floor(600 / Math.max(1, ranks.length))));
  const cells = windows.flatMap((window, column) => {
    const values = Object.entries(window[role] ?? {});
    const sorted = values.map(([, value]) => value).sort((one, other) => one - other);
    const median = sorted[Math.floor(sorted.length / 2)] || 1;
    return values.map(([rank, value]) => {
      const away = role === "waiting" ? 1 - value / median : value / median - 1;
      const over = Math.max(0, Math.min(1, away / 0.5));
      const title = svg("title", {}, `rank ${rank}: ${(value / median).toFixed(3)} of the median`);
      return svg("rect", { x: column * 60, y: ranks.indexOf(Number(rank)) * size, width: 58, height: Math.max(1, size - 1), fill: between(over) }, title);
    });
  });
  const what = { compute: "Own work", waiting: "Waiting in collectives", data: "Waiting for data" }[role];
  const order = `${what} against the median of all ranks: ranks ${ranks[0]} to ${ranks[ranks.length - 1]} from top to bottom, 50 logged steps a column, the newest on the right; orange is what holds the others up.`;
  const map = svg("svg", { class: "heat", width: windows.length * 60, height: ranks.length * size, role: "img", "aria-label": `Times of ${ranks.length} ranks (${role})` }, cells);
  return el("figure", {}, el("figcaption", { class: "quiet" }, order), map);
}
