// Above the tabs of a workload: what it is called, how it is doing, and its numbers; or several of them in a table.

import { lastLogged } from "./columns.js";
import { el, name, table } from "./dom.js";
import { count, duration, moment } from "./format.js";
import { empty, figure, frameworkBadges, progress, seen, sparkline, stateBadge, stateCell } from "./pieces.js";
import { link } from "./state.js";

// each: [{uid, detail, events, glance}]
export function head(each) {
  return el("div", {}, el("a", { class: "crumb", href: "#/" }, "← Workloads"), each.length === 1 ? one(each[0]) : several(each));
}

export function waiting(uid) {
  return empty(
    el("span", {}, "Nothing has come from ", name(uid, 100), " yet"),
    "Charts come by themselves with its first row.",
    el("span", {}, "It trains, but nothing comes? ", el("code", {}, "lens doctor"), " tells where it stops."),
  );
}

function one(found) {
  const { detail, glance } = found;
  const line = { ...detail, ...stateOf(found) };
  const below = [detail.namespace, found.uid === detail.name ? "" : found.uid, detail.cluster === "default" ? "" : detail.cluster].filter(Boolean);
  return [
    el("div", { class: "title" }, el("h1", {}, name(detail.name)), stateBadge(line), frameworkBadges(glance)),
    below.length ? el("p", { class: "quiet below" }, below.map((text) => [name(text, 80), " "])) : null,
    trackers(glance.links ?? []),
    trouble(found, line),
    tiles(line, glance),
  ];
}

// The runs' pages in their own trackers.
function trackers(links) {
  if (!links.length) return null;
  const one = ({ tracker, name: run, url }) => el("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, name(run ? `${tracker}: ${run}` : tracker, 80));
  return el("p", { class: "quiet below" }, "Also in ", links.map((link, place) => [place ? ", " : "", one(link)]));
}

// Why somebody should look, where they look first, and what to do.
function trouble({ uid, glance: { verdict } }, line) {
  const isInTrouble = line.state === "failed" || line.state === "stalled";
  if (!isInTrouble && !verdict?.not_finite) return null;
  const { cause } = verdict;
  return el(
    "div",
    { class: `notice ${isInTrouble ? line.state : "failed"}` },
    el("p", {}, el("strong", {}, name(verdict.summary, 400)), cause ? [` · ${moment(cause.at)}, `, seen(cause.at)] : null),
    verdict.advice ? el("p", {}, name(verdict.advice, 400)) : null,
    el(
      "p",
      {},
      el("a", { href: link("/workload", { uid, tab: "events" }) }, "What happened before"),
      isInTrouble ? [" · ", el("a", { href: link("/workload", { uid, tab: "diagnosis" }) }, line.state === "failed" ? "What to do" : "Does it hang?")] : null,
    ),
  );
}

function tiles(line, glance) {
  const speed = glance.iterations_per_second;
  const shown = [
    ["Progress", progress(line, { ...glance, eta_seconds: null })],
    ["Time left", line.state === "running" && glance.eta_seconds != null ? duration(glance.eta_seconds) : null],
    ["Loss", glance.spark.length ? sparkline(glance.spark, glance.loss_name ?? "loss", false, glance.loss) : null],
    ["Throughput", glance.throughput === null ? null : figure(glance.throughput, glance.throughput_name ?? "")],
    ["Speed", speed ? pace(speed) : null],
    ["Memory", glance.memory === null ? null : figure(glance.memory, glance.memory_name ?? "")],
    ["Rows", count(line.rows)],
    ["Last seen", lastSeen(line, glance)],
  ];
  return el("dl", { class: "tiles" }, shown.filter(([, value]) => value !== null).map(([title, value]) => el("div", {}, el("dt", {}, title), el("dd", {}, value))));
}

function lastSeen(line, glance) {
  return seen(lastLogged(line, glance));
}

function pace(speed) {
  const [value, unit] = speed >= 1 ? [speed, "iterations/s"] : [1 / speed, "s per iteration"];
  return el("span", {}, Number(value.toPrecision(3)).toString(), el("small", { class: "quiet" }, ` ${unit}`));
}

function several(each) {
  const rows = each.map((found) => {
    const { detail, glance } = found;
    const line = { ...detail, ...stateOf(found) };
    return [
      el("a", { href: link("/workload", { uid: found.uid }) }, name(detail.name, 60)),
      stateCell(line, glance.verdict),
      frameworkBadges(glance),
      progress(line, glance),
      sparkline(glance.spark, glance.loss_name ?? "loss", false, glance.loss),
      figure(glance.throughput, glance.throughput_name ?? ""),
      figure(glance.memory, glance.memory_name ?? ""),
      lastSeen(detail, glance),
    ];
  });
  const heads = ["Workload", "State", "Framework", "Progress", "Loss", "Throughput", "Memory", "Last seen"];
  return [el("div", { class: "title" }, el("h1", {}, `${each.length} workloads compared`)), table("The workloads compared", heads, rows)];
}

// How it is doing, as the daemon judges.
function stateOf({ glance }) {
  const { verdict } = glance;
  return { state: verdict?.state ?? "silent", event: verdict?.cause?.type ?? null, event_iteration: verdict?.cause?.iteration ?? null };
}
