// The columns of the list of workloads: what each shows, and by what it is sorted.

import { el, name } from "./dom.js";
import { count, moment } from "./format.js";
import { figure, frameworkBadges, progress, seen, sparkline, stateCell } from "./pieces.js";

// paint(line, what a glance found, how far the daemon's clock is ahead)
export const COLUMNS = [
  { key: "state", head: "State", sort: "state", paint: (line, found) => stateCell(line, found?.verdict) },
  { key: "namespace", head: "Namespace", sort: "namespace", extra: true, paint: (line) => [name(line.namespace || "–", 60)] },
  { key: "framework", head: "Framework", paint: (line, found) => [frameworkBadges(found)] },
  { key: "progress", head: "Progress", sort: "progress", paint: (line, found) => [progress(line, found)] },
  { key: "iteration", head: "Iteration", sort: "iteration", right: true, extra: true, paint: (line) => [count(line.last_iteration)] },
  { key: "loss", head: "Loss", sort: "loss", paint: (line, found) => [found ? sparkline(found.spark, found.loss_name ?? "loss", false, found.loss) : ""] },
  { key: "throughput", head: "Throughput", sort: "throughput", right: true, paint: (line, found) => [found ? figure(found.throughput, found.throughput_name ?? "") : ""] },
  { key: "memory", head: "Memory", right: true, paint: (line, found) => [found ? figure(found.memory, found.memory_name ?? "") : ""] },
  { key: "rows", head: "Rows", sort: "rows", right: true, extra: true, paint: (line) => [count(line.rows)] },
  { key: "started", head: "Started", sort: "started", right: true, extra: true, paint: (line) => [el("time", { title: moment(line.first_seen) }, moment(line.first_seen))] },
  {
    key: "seen", head: "Last seen", sort: "seen", right: true,
    paint: (line, found, skew) => {
      const at = lastLogged(line, found);
      return at === null ? [el("span", { class: "quiet" }, "…")] : [seen(at - skew)];
    },
  },
];

// When the job itself was heard of; reports about it, such as stacks, do not count. Null while that is not known: of a
// job that is in trouble the newest record is such a report.
export function lastLogged(line, found) {
  if (!found && ["failed", "stalled"].includes(line.state)) return null;
  return found?.verdict?.last_logged || line.last_seen;
}

const USUAL = COLUMNS.filter((column) => !column.extra).map((column) => column.key);

// The columns that an address names; the usual ones where it names none.
export function columnsOf(keys) {
  const wanted = keys.length ? keys : USUAL;
  const found = COLUMNS.filter((column) => wanted.includes(column.key));
  return found.length ? found : COLUMNS.filter((column) => USUAL.includes(column.key));
}

export function isUsual(columns) {
  return columns.length === USUAL.length && columns.every((column) => USUAL.includes(column.key));
}
