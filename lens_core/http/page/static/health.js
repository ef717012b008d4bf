// The daemon itself: what comes in, what waits, what goes out, which plugins there are and why one is not.

import { get } from "./api.js";
import { code, el, name, table } from "./dom.js";
import { ago, bytes, count, duration, number } from "./format.js";
import { sparkline } from "./pieces.js";

const EVERY_MS = 2000;
const KEPT = 60;

export async function showHealth(root, query, { say, signal }) {
  const place = el("div", { class: "health" });
  root.append(el("h1", {}, "Pipeline health"), place);
  const rates = new Map();
  const load = async () => {
    const status = await get("status", {}, { signal });
    say(null);
    const opened = new Set([...place.querySelectorAll("details[open]")].map((item) => item.id));
    place.replaceChildren(...paint(status, rates));
    for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
  };
  await load();
  const timer = setInterval(() => document.hidden || load().catch(say), EVERY_MS);
  return () => clearInterval(timer);
}

function paint(status, rates) {
  return [daemon(status), silentDaemons(status), el("h2", {}, "What comes in"), sources(status, rates), ...status.pipelines.flatMap((pipeline) => road(pipeline, rates)), ...plugins(status.plugins)];
}

function daemon(status) {
  const facts = [
    el("span", { class: `state ${status.ready ? "running" : "stalled"}` }, status.ready ? "ready" : status.state),
    `version ${status.version}`,
    `up ${duration(status.uptime_seconds)}`,
    `cluster ${status.cluster}`,
    `configuration: ${status.configuration}`,
    `data in ${status.data_dir}`,
  ];
  return el("div", { class: "facts" }, facts.map((fact) => (typeof fact === "string" ? el("span", {}, fact) : fact)));
}

function remember(rates, key, value) {
  const known = rates.get(key) ?? [];
  known.push(Number(value.toPrecision(3)));
  if (known.length > KEPT) known.shift();
  rates.set(key, known);
  return known.some((rate) => rate) ? sparkline(known, "records per second", true) : el("span", { class: "quiet" }, "0");
}

const sum = (amounts) => Object.values(amounts ?? {}).reduce((total, amount) => total + amount, 0);

function reasons(amounts) {
  const all = Object.entries(amounts ?? {}).filter(([, amount]) => amount);
  return all.length ? el("span", { title: all.map(([reason, amount]) => `${reason}: ${amount}`).join("\n") }, count(sum(amounts))) : "0";
}

function state(text) {
  const kind = { running: "running", idle: "running", sending: "running", starting: "silent", stopped: "silent", retrying: "stalled", failing: "failed", failed: "failed" }[text] ?? "silent";
  return el("span", { class: `state ${kind}` }, text);
}

function trouble(text, at) {
  return text ? el("span", { class: "trouble", title: text }, name(text, 120), at ? ` (${ago(at * 1000)})` : "") : "";
}

function silentDaemons(status) {
  const silent = status.shared?.silent ?? [];
  return silent.length ? el("p", { class: "trouble" }, `Daemons that do not answer, and are not counted here: ${silent.join(", ")}`) : "";
}

function sources(status, rates) {
  return table(
    "Sources and collectors",
    ["Source", "State", "Pipelines", "Records per second", "Received", "Accepted", "Filtered", "Rejected", "Last error"],
    status.sources.map((source) => [
      name(source.name, 40),
      state(source.state),
      source.pipelines.join(", "),
      remember(rates, `source ${source.name}`, source.accepted_per_second),
      count(source.received),
      count(source.accepted),
      count(source.filtered),
      reasons(source.rejected),
      trouble(source.last_error),
    ]),
  );
}

function road(pipeline, rates) {
  const { spool } = pipeline;
  const share = spool.max_bytes ? spool.bytes / spool.max_bytes : 0;
  return [
    el("h2", {}, "Pipeline ", name(pipeline.name, 60)),
    el(
      "div",
      { class: "facts" },
      el("span", {}, "Queue on disk: ", el("progress", { max: 1, value: share, "aria-label": "queue" }), ` ${bytes(spool.bytes ?? 0)}${spool.max_bytes ? ` of ${bytes(spool.max_bytes)}` : ""}`),
      el("span", {}, `${number(pipeline.accepted_per_second)} records/s`),
      pipeline.last_processor_error ? trouble(`${count(pipeline.processor_errors)} errors of detectors: ${pipeline.last_processor_error}`) : null,
    ),
    table(
      `Sinks of ${pipeline.name}`,
      ["Sink", "State", "Records per second", "Delivered", "Waiting", "Lag", "Rejected", "Dropped", "Dead letters", "Last error"],
      pipeline.sinks.map((sink) => [
        el("span", {}, name(sink.name, 40), sink.required ? "" : el("small", { class: "quiet" }, " optional")),
        state(sink.state),
        remember(rates, `sink ${pipeline.name}/${sink.name}`, sink.delivered_per_second),
        count(sink.ledger.delivered),
        `${count(sink.pending_records)} (${bytes(sink.pending_bytes)})`,
        duration(sink.lag_seconds),
        reasons(sink.ledger.rejected),
        reasons(sink.ledger.dropped),
        sink.dead_letters ? el("span", {}, `${count(sink.dead_letters)}: `, code(`lens replay --sink ${sink.name}`)) : "0",
        trouble(sink.last_error, sink.last_error_at),
      ]),
    ),
  ];
}

function plugins(all) {
  const wrong = all.filter((plugin) => plugin.state !== "loaded" && plugin.state !== "disabled");
  const rows = (some) =>
    some.map((plugin) => [
      name(plugin.name, 40),
      el("span", { class: `state ${{ loaded: "running", failed: "failed", conflicting: "failed", unavailable: "stalled" }[plugin.state] ?? "silent"}` }, plugin.state),
      [...new Set(plugin.components.map((component) => component.kind))].join(", "),
      `${plugin.distribution} ${plugin.version}`,
      plugin.reason ? name(plugin.reason, 300) : name(plugin.components[0]?.summary ?? "", 120),
    ]);
  const heads = ["Plugin", "State", "Kind", "From", "What it is, or why it is not there"];
  return [
    el("h2", {}, "Plugins"),
    wrong.length ? table("Plugins that cannot be used", heads, rows(wrong)) : el("p", {}, `All ${all.length} installed plugins can be used.`),
    el("details", { id: "plugins" }, el("summary", {}, `All ${all.length} plugins`), table("All plugins", heads, rows(all))),
  ];
}
