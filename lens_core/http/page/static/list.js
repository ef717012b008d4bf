// The list of workloads: what failed or stalled first, then what was seen last.

import { get, retried } from "./api.js";
import { button, el, name, throttle } from "./dom.js";
import { count } from "./format.js";
import { listen } from "./live.js";
import { empty, nothingYet } from "./pieces.js";
import { link, note } from "./state.js";
import { Triage } from "./triage.js";

const PAGE = 50;

export async function showList(root, query, { say, signal }) {
  const list = new List(root, query, say, signal);
  const refresh = throttle(2000, list.refresh);
  let later = null;
  let isLoaded = false;
  let hasNews = false;
  const stopListening = listen(() => {
    hasNews = true;
    if (!isLoaded) return;
    refresh();
    clearTimeout(later);
    later = setTimeout(refresh, 1500); // what was taken just now is in the store then
  });
  try {
    await list.load();
  } catch (error) {
    stopListening();
    throw error;
  }
  isLoaded = true;
  if (hasNews) refresh();
  const often = setInterval(() => document.hidden || refresh(), 30000); // silence is news too
  return () => {
    stopListening();
    refresh.cancel();
    clearTimeout(later);
    clearInterval(often);
  };
}

class List {
  constructor(root, query, say, signal) {
    Object.assign(this, { say, signal });
    this.refresh = retried(() => this.load(), { say, signal });
    this.search = query.get("search") ?? "";
    this.cursor = query.get("cursor") ?? "";
    this.before = Array.from({ length: this.cursor ? Math.max(1, Number(query.get("page")) - 1 || 1) : 0 }, () => "");
    this.next = null;
    this.lines = [];
    this.glances = new Map();
    this.rows = new Map();
    this.chosen = new Set(query.getAll("chosen"));
    this.triage = new Triage(query, { changed: () => this.begin(), columnsChanged: () => this.arrange() });
    this.build(root);
    this.paintChosen();
  }

  build(root) {
    const searched = throttle(200, () => this.start(this.field.value.trim()));
    this.field = el("input", {
      type: "search",
      placeholder: "Search name, uid or namespace",
      "aria-label": "Search workloads",
      value: this.search,
      on: { input: searched },
    });
    this.summary = el("span", { class: "quiet", role: "status" });
    this.compare = el("a", { class: "button", hidden: true }, "Compare");
    this.clear = button("Choose none", () => this.chooseNone(), { hidden: true });
    this.body = el("tbody");
    this.place = el("div", { class: "list" });
    this.pager = el("nav", { class: "pager", "aria-label": "Pages" });
    root.append(
      el("h1", {}, "Workloads"),
      this.triage.counters,
      el("div", { class: "bar" }, this.field, this.triage.namespace, this.triage.grouping, this.triage.picker, this.triage.chips, this.compare, this.clear, el("span", { class: "spacer" }), this.summary),
      this.place,
      this.pager,
    );
    this.heads = el("tr");
    this.table = el("table", { class: "workloads" }, el("caption", { class: "hidden" }, "Workloads"), el("thead", {}, this.heads), this.body);
    this.paintHeads();
  }

  paintHeads() {
    const focused = this.heads.contains(document.activeElement) ? document.activeElement.dataset.sort : null;
    const first = [el("th", { scope: "col" }, el("span", { class: "hidden" }, "Compare")), this.triage.head({ head: "Workload", sort: "name" })];
    this.heads.replaceChildren(...first, ...this.triage.columns.map((column) => this.triage.head(column)));
    if (focused) this.heads.querySelector(`[data-sort="${focused}"]`)?.focus();
  }

  // Other columns: every row is made anew.
  arrange() {
    this.rows.clear();
    this.note();
    this.paintHeads();
    this.paint();
  }

  // Another filter or order: the list from its first page.
  begin() {
    this.before = [];
    this.cursor = "";
    this.note();
    this.paintHeads();
    this.refresh();
  }

  start(search) {
    if (search === this.search || this.signal.aborted) return; // the view may have been left meanwhile
    this.search = search;
    this.begin();
  }

  turn(cursor, before) {
    this.cursor = cursor;
    this.before = before;
    this.note();
    window.scrollTo(0, 0);
    this.refresh();
  }

  // The page and what is chosen are in the address, as the search is.
  note() {
    note({ search: this.search, ...this.triage.parameters(), cursor: this.cursor, page: this.cursor ? this.before.length + 1 : "", chosen: [...this.chosen] });
  }

  paintChosen() {
    this.compare.hidden = this.chosen.size < 2;
    this.clear.hidden = !this.chosen.size;
    this.compare.textContent = `Compare ${this.chosen.size}`;
    this.compare.href = link("/workload", { uid: [...this.chosen] });
  }

  async load() {
    const asked = { search: this.search, limit: PAGE, cursor: this.cursor, ...this.triage.asked() };
    const page = await get("overview", asked, { signal: this.signal });
    if (JSON.stringify(asked) !== JSON.stringify({ ...asked, search: this.search, cursor: this.cursor, ...this.triage.asked() })) return;
    this.say(null);
    this.skew = page.time - Date.now();
    this.lines = page.workloads;
    this.next = page.next_cursor;
    this.total = page.total_count;
    this.groups = new Map((page.groups ?? []).map((group) => [JSON.stringify(group.value), group]));
    this.paint();
    const counted = get("triage", { search: this.search }, { signal: this.signal }).then((counts) => this.triage.show(counts));
    await Promise.all([counted, this.look()]);
  }

  async look() {
    const stale = this.lines.filter((line) => this.glances.get(line.workload_uid)?.seen !== line.last_seen);
    for (let first = 0; first < stale.length; first += 25) {
      const part = stale.slice(first, first + 25);
      const { glances } = await get("glance", { uid: part.map((line) => line.workload_uid) }, { signal: this.signal });
      glances.forEach((found, place) => this.glances.set(found.workload_uid, { found, seen: part[place].last_seen }));
      part.forEach((line) => this.row(line));
    }
  }

  paint() {
    if (!this.lines.length) {
      this.place.replaceChildren(this.nothing());
    } else {
      const rows = this.lines.flatMap((line, place) => (this.beginsGroup(line, place) ? [this.groupRow(line.group), this.row(line)] : [this.row(line)]));
      const same = rows.length === this.body.children.length && rows.every((row, place) => row === this.body.children[place]);
      if (!same) this.body.replaceChildren(...rows);
      if (this.place.firstChild !== this.table) {
        this.place.replaceChildren(this.table);
      }
    }
    const wanted = new Set(this.lines.map((line) => line.workload_uid));
    for (const uid of this.rows.keys()) if (!wanted.has(uid)) this.rows.delete(uid);
    this.paintPager();
  }

  beginsGroup(line, place) {
    return this.triage.group !== "" && (place === 0 || JSON.stringify(this.lines[place - 1].group) !== JSON.stringify(line.group));
  }

  // A head above the first line of each group: its value, how many workloads it has on all pages, and who needs somebody.
  groupRow(value) {
    const { count: all = 0, counts = {} } = this.groups.get(JSON.stringify(value)) ?? {};
    const title = `${this.triage.group.replace("config.", "")}: ${value === null ? "none" : typeof value === "string" ? value : JSON.stringify(value)}`;
    const kinds = [["failed", "failed"], ["stalled", "hung"], ["slow", "slow"], ["not_finite", "not finite"]].filter(([kind]) => counts[kind]);
    return el(
      "tr",
      { class: "group" },
      el(
        "th",
        { colspan: this.triage.columns.length + 2, scope: "colgroup" },
        name(title, 120),
        el("span", { class: "quiet" }, ` ${count(all)} ${all === 1 ? "workload" : "workloads"}`),
        kinds.map(([kind, text]) => el("span", { class: kind === "stalled" ? "event stalled" : "trouble" }, ` · ${count(counts[kind])} ${text}`)),
      ),
    );
  }

  nothing() {
    if (this.triage.isFiltered()) return empty("No workload is like this", "Take a filter away to see others.");
    if (this.search) return empty(`Nothing is called like “${this.search.slice(0, 100)}”`, "The search looks at names, uids, namespaces and pods.");
    return nothingYet();
  }

  paintPager() {
    const first = this.before.length * PAGE;
    const last = first + this.lines.length;
    this.summary.textContent = this.lines.length
      ? `${count(first + 1)}–${count(last)}${this.total === null ? "" : ` of ${count(this.total)}`}`
      : "";
    const back = button("← Previous", () => this.turn(this.before.at(-1), this.before.slice(0, -1)));
    const on = button("Next →", () => this.turn(this.next, [...this.before, this.cursor]));
    back.disabled = !this.before.length;
    on.disabled = !this.next;
    this.pager.replaceChildren(...(this.before.length || this.next ? [back, on] : []));
  }

  // One row is kept per workload, so that focus and selection outlive an update.
  row(line) {
    const uid = line.workload_uid;
    const known = this.rows.get(uid);
    const found = this.glances.get(uid)?.found;
    const version = JSON.stringify([line, found ?? null]);
    if (known?.version === version) return known.row;
    const { columns } = this.triage;
    const cells = () => columns.map((column) => el("td", { "data-head": column.head, "data-column": column.key, class: column.right ? "right" : null }));
    const row = known?.row ?? el("tr", {}, this.choice(uid), el("th", { scope: "row" }, this.title(line)), cells());
    row.className = line.state;
    columns.forEach((column, place) => row.children[place + 2].replaceChildren(...column.paint(line, found, this.skew)));
    this.rows.set(uid, { row, version, line });
    return row;
  }

  title(line) {
    const uid = line.workload_uid;
    const below = [line.namespace, uid === line.name ? "" : uid].filter(Boolean);
    return [
      el("a", { href: link("/workload", { uid }), elementtiming: "lens-row" }, name(line.name)),
      below.length ? el("small", { class: "quiet" }, below.map((text) => [name(text, 60), " "])) : null,
    ].filter(Boolean).reduce((box, node) => (box.append(node), box), el("div"));
  }

  choice(uid) {
    const box = el("input", { type: "checkbox", checked: this.chosen.has(uid), "aria-label": `Compare ${uid.slice(0, 100)}` });
    box.addEventListener("change", () => {
      if (box.checked) this.chosen.add(uid);
      else this.chosen.delete(uid);
      this.note();
      this.paintChosen();
    });
    return el("td", { class: "choice" }, box);
  }

  chooseNone() {
    this.chosen.clear();
    this.body.querySelectorAll("input").forEach((box) => (box.checked = false));
    this.note();
    this.paintChosen();
  }
}
