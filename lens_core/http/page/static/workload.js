// One workload, or several beside each other.

import { get, workloadPath } from "./api.js";
import { ChartGrid } from "./chartgrid.js";
import { compare } from "./compare.js";
import { diagnosis } from "./diagnosis.js";
import { button, el, throttle } from "./dom.js";
import { Evidence } from "./evidence.js";
import { head, waiting } from "./head.js";
import { listen } from "./live.js";
import { Machines } from "./machine.js";
import { empty } from "./pieces.js";
import { placed } from "./marks.js";
import { Ranks } from "./ranks.js";
import { runTable, tableState } from "./runtable.js";
import { CHART_KEYS, note } from "./state.js";
import { events, runs, why } from "./tabs.js";
import { whereTimeWent } from "./time.js";

const MOST = 20;
const HEAD_EVERY_MS = 3000;
const OTHERS = { runs, events, why, diagnosis, time: whereTimeWent };
const PANELS = { ranks: Ranks, machines: Machines };
const PANEL_KEYS = ["rankmetric", "mfrom", "mto"]; // of the address
const TABS = { charts: "Charts", runs: "Runs", ranks: "Ranks", machines: "Host and GPU", time: "Time", events: "Events", why: "Why this framework?", diagnosis: "Diagnosis" };

export async function showWorkload(root, query, { say, signal }) {
  const all = [...new Set(query.getAll("uid"))];
  const uids = all.slice(0, MOST);
  if (!uids.length) {
    root.append(empty("Which workload?", "The list has them all."));
    return () => {};
  }
  if (all.length > MOST) {
    root.append(el("p", { class: "notice" }, `${all.length} workloads are chosen; the first ${MOST} of them are compared here.`));
  }
  const view = new Workload(root, uids, query, say, signal);
  await view.load();
  let afterBreak = false;
  const follow = throttle(1000, async () => {
    const wholly = afterBreak;
    afterBreak = false;
    await view.follow(wholly).catch(say);
  });
  const stopListening = listen((names, more) => {
    afterBreak ||= names === null;
    if (names === null || more || names.some((name) => uids.includes(name))) {
      follow();
      setTimeout(follow, 1500); // what was taken just now is in the store then
    }
  });
  const often = setInterval(follow, 5000); // data that came under a pod's name
  return () => {
    stopListening();
    clearInterval(often);
    follow.cancel();
    view.end();
    document.title = "Lens";
  };
}

class Workload {
  constructor(root, uids, query, say, signal) {
    Object.assign(this, { uids, query, say, signal });
    this.uid = uids[0];
    this.isOne = uids.length === 1;
    this.tab = query.get("tab") ?? "charts";
    this.runs = tableState(query);
    this.parameters = { ...this.runs };
    for (const key of PANEL_KEYS) this.parameters[key] = query.get(key) ?? "";
    this.each = []; // what fetch() found of every workload
    this.names = null;
    this.head = el("div", { class: "head" });
    this.tabs = el("div", { class: "tabs", role: "tablist", "aria-label": "About the workload" });
    this.place = el("div", { class: "tab", role: "tabpanel", id: "panel", tabindex: "0" });
    this.evidence = this.isOne ? new Evidence(this.uid, signal) : null;
    root.append(this.head, this.evidence?.place ?? "", this.tabs, this.place);
    this.known = this.isOne ? TABS : { charts: "Charts", compare: "Compared" };
    if (!(this.tab in this.known)) this.tab = "charts";
  }

  // Charts need the metrics' names only; everything else may come later. A workload that has not sent anything is
  // waited for: the page is often open before the first row.
  async load() {
    const first = this.isOne ? await this.available(this.uid) : null;
    this.isKnown = !this.isOne || first.length > 0 || (await this.isHeardOf());
    this.tabs.hidden = !this.isKnown;
    if (!this.isKnown) {
      this.head.replaceChildren(waiting(this.uid));
      return;
    }
    this.ready = this.fetch(first);
    this.ready.catch(() => {}); // awaited below, after what may fail first
    if (first?.length && this.tab === "charts") await this.beginCharts(first);
    await this.ready;
    this.paintHead();
    if (this.grid) this.tellGrid();
    else if (!this.place.childElementCount) await this.open(this.tab);
  }

  async available(uid) {
    const { metrics } = await get(workloadPath(uid, "/metrics/available"), {}, { signal: this.signal });
    return metrics.map((metric) => metric.name);
  }

  async isHeardOf() {
    const { signal } = this;
    const asked = [get(workloadPath(this.uid, "/events"), { limit: 1 }, { signal }), get("glance", { uid: this.uid }, { signal })];
    const [{ events: happened }, { glances }] = await Promise.all(asked);
    return happened.length > 0 || glances[0].detection_status !== "unknown";
  }

  async beginCharts(metrics) {
    this.metrics = metrics;
    this.names ??= new Map([[this.uid, this.uid]]);
    await this.open("charts");
  }

  // first: the metrics of the only workload, where they are known already
  async fetch(first = null) {
    const { signal } = this;
    const looked = get("glance", { uid: this.uids }, { signal });
    looked.catch(() => {}); // awaited below, after what may fail first
    const each = await Promise.all(
      this.uids.map(async (uid) => {
        const [detail, metrics, happened] = await Promise.all([
          get(workloadPath(uid), {}, { signal }),
          first ?? this.available(uid),
          get(workloadPath(uid, "/events"), { limit: 500 }, { signal }),
        ]);
        return { uid, detail, metrics, events: happened.events };
      }),
    );
    const { glances } = await looked;
    this.fetchedAt = Date.now();
    this.each = each.map((one, place) => ({ ...one, glance: glances[place] }));
    this.names = new Map(each.map((one) => [one.uid, one.detail.name]));
    this.metrics = [...new Set(each.flatMap((one) => one.metrics))];
  }

  paintHead() {
    document.title = `${[...this.names.values()].map((text) => text.slice(0, 60)).join(" · ")} – Lens`;
    const focused = this.head.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    this.head.replaceChildren(head(this.each));
    if (focused) [...this.head.querySelectorAll("a")].find((one) => one.getAttribute("href") === focused)?.focus();
    this.paintTabs();
    this.evidence?.show(this.each[0].glance.verdict?.state).catch(this.say);
  }

  // The buttons stay the same, so that no click and no focus is lost when the head is painted again.
  paintTabs() {
    const names = Object.keys(this.known);
    if (!this.tabs.childElementCount) {
      this.tabs.append(...names.map((tab) => button(this.known[tab], () => this.open(tab).catch(this.say), { role: "tab", id: `tab-${tab}`, "aria-controls": "panel" })));
      this.tabs.addEventListener("keydown", (event) => this.turnTab(event, names));
    }
    names.forEach((tab, place) => {
      const item = this.tabs.children[place];
      item.setAttribute("aria-selected", String(tab === this.tab));
      item.tabIndex = tab === this.tab ? 0 : -1;
    });
    this.place.setAttribute("aria-labelledby", `tab-${this.tab}`);
  }

  turnTab(event, names) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = (names.indexOf(this.tab) + step + names.length) % names.length;
    this.tabs.children[next].focus();
    this.open(names[next]).catch(this.say);
  }

  async open(tab) {
    this.end();
    this.grid = this.panel = null;
    this.tab = tab;
    this.paintTabs();
    this.note({});
    const place = el("div");
    this.place.replaceChildren(place);
    if (tab === "charts" || tab === "compare") this.openCharts(place);
    if (tab === "compare") {
      this.below = el("div");
      place.before(this.below);
      await this.fill(this.below);
    }
    if (!(tab in PANELS) && !(tab in OTHERS)) return;
    await this.ready;
    if (!place.isConnected) return;
    if (tab in OTHERS) await this.fill(place);
    else await this.showPanel(place);
  }

  async showPanel(place) {
    const { uid, signal, say, query, metrics } = this;
    this.panel ??= new PANELS[this.tab](place, { uid, signal, say, query, changed: (parameters) => this.note(parameters) });
    const [{ glance, detail }] = this.each;
    await this.panel.show({ lossName: glance.loss_name, runs: detail.runs, metrics });
  }

  async fill(place) {
    const { uid, signal, names, grid } = this;
    if (this.tab === "compare" || this.tab === "runs") await runTable(place, { uids: this.uids, state: this.runs, signal, changed: (change) => this.turnRuns(change) });
    if (this.tab === "compare") await compare(place, { names, points: grid.points, metrics: grid.shownMetrics(), signal });
    else await OTHERS[this.tab](place, { uid, signal, detail: this.each[0].detail, glance: this.each[0].glance });
  }

  turnRuns(change) {
    this.runs = { ...this.runs, ...change };
    this.note(this.runs);
    this.refill(true).catch(this.say);
  }

  // A tab without charts, or the tables beside them, as they are now: what somebody has unfolded or is writing stays.
  async refill(isWanted = false) {
    const { tab } = this;
    if (this.panel) return this.showPanel();
    const old = tab === "compare" ? this.below : this.place.firstElementChild;
    if (!isWanted && document.activeElement?.matches("input[type=search]") && old?.contains(document.activeElement)) return; // somebody writes
    const fresh = el("div");
    const turn = (this.refills = (this.refills ?? 0) + 1);
    await this.fill(fresh);
    if (turn !== this.refills || tab !== this.tab || !old?.isConnected || isSame(fresh, old)) return;
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    const sorted = focused?.dataset.sort;
    const fields = keepWriting(old, fresh);
    const unfolded = new Set([...old.querySelectorAll("details")].filter((one) => one.open).map(titleOf));
    for (const one of fresh.querySelectorAll("details")) one.open = unfolded.has(titleOf(one));
    old.replaceChildren(...fresh.childNodes);
    if (sorted) [...old.querySelectorAll("[data-sort]")].find((one) => one.dataset.sort === sorted)?.focus();
    fields.get(focused)?.focus();
  }

  openCharts(place) {
    if (!this.metrics.length) {
      place.append(empty("No metric yet", "Charts come with the first row that holds numbers."));
      return;
    }
    this.grid = new ChartGrid(place, {
      names: this.names,
      metrics: this.metrics,
      query: this.query,
      signal: this.signal,
      say: this.say,
      changed: (parameters) => this.note(parameters),
    });
    this.tellGrid();
  }

  // What charts need not wait for.
  tellGrid() {
    if (!this.each.length) return;
    this.grid.setRuns(this.each.flatMap(({ uid, detail }) => began(uid, detail.runs)));
    this.grid.setEvents(this.isOne ? placed(this.each[0].events, this.each[0].detail.runs) : []);
  }

  note(parameters) {
    Object.assign(this.parameters, parameters);
    const fixed = { uid: this.uids, tab: this.tab === "charts" ? "" : this.tab };
    if (!this.grid && !Object.keys(parameters).length) {
      for (const key of CHART_KEYS) {
        this.parameters[key] ??= this.query.getAll(key);
      }
    }
    note({ ...fixed, ...this.parameters });
    this.query = new URLSearchParams(location.hash.split("?")[1] ?? "");
  }

  async follow(afterBreak) {
    if (document.hidden) return;
    if (!this.isKnown) {
      await this.load();
      this.say(null);
      return;
    }
    const before = this.metrics.length;
    if (Date.now() - this.fetchedAt > HEAD_EVERY_MS) {
      await this.fetch();
      this.paintHead();
    }
    this.say(null);
    if (!this.grid && this.tab === "charts") {
      await this.open("charts");
      return;
    }
    if (this.tab !== "charts") await this.refill();
    if (!this.grid) return;
    if (this.metrics.length !== before) this.grid.addMetrics(this.metrics);
    this.tellGrid();
    await this.grid.follow(afterBreak);
  }

  end() {
    this.grid?.end();
    this.panel?.end();
  }
}

// Unfolding changes an attribute, which is no news.
function isSame(fresh, old) {
  const copy = old.cloneNode(true);
  fresh.querySelectorAll("details").forEach((one, place) => {
    const other = copy.querySelectorAll("details")[place];
    if (other) other.open = one.open;
  });
  return fresh.isEqualNode(copy);
}

const titleOf = (details) => details.querySelector("summary")?.textContent;

// The runs of a workload as charts know them, each rank of each attempt by itself.
function began(uid, runs) {
  return runs.map((one) => ({ uid, run: one.run_id, attempt: one.attempt, source: one.data_source, rank: one.rank, since: one.first_seen, until: one.last_seen }));
}

// The search fields of what is drawn anew, by those before; text that somebody has begun to write goes with them.
function keepWriting(old, fresh) {
  const found = new Map();
  for (const field of old.querySelectorAll("input[type=search]")) {
    const next = [...fresh.querySelectorAll("input[type=search]")].find((one) => one.ariaLabel === field.ariaLabel);
    if (!next) continue;
    next.value = field.value;
    next.setSelectionRange(field.selectionStart, field.selectionEnd);
    found.set(field, next);
  }
  return found;
}
