// Above the list: how many workloads need somebody, as filters; what else is filtered, as chips; which columns.

import { get } from "./api.js";
import { COLUMNS, columnsOf, isUsual } from "./columns.js";
import { button, el, name } from "./dom.js";
import { count } from "./format.js";

const COUNTERS = [["failed", "Failed"], ["stalled", "Hung"], ["slow", "Slow"], ["silent", "Silent"], ["not_finite", "Not finite"], ["running", "Running"], ["ended", "Ended"]];

export class Triage {
  // changed(): the list is to be asked for anew; columnsChanged(): it is only drawn otherwise
  constructor(query, { changed, columnsChanged }) {
    Object.assign(this, { changed, columnsChanged });
    this.states = new Set((query.get("state") ?? "").split(",").filter((state) => COUNTERS.some(([key]) => key === state)));
    this.namespaces = new Set(query.getAll("namespace"));
    this.sort = query.get("sort") ?? "";
    this.isDescending = query.get("order") === "desc";
    this.group = query.get("group") ?? "";
    this.columns = columnsOf(query.getAll("column"));
    this.found = null;
    this.counters = el("div", { class: "counters", role: "group", "aria-label": "Filter by state" });
    this.chips = el("span", { class: "chips" });
    this.namespace = el("select", { "aria-label": "Filter by namespace", hidden: true, on: { change: () => this.choose(this.namespace.value) } });
    this.grouping = el("select", { "aria-label": "Group by", on: { change: () => this.groupBy(this.grouping.value), focus: () => this.offerGroups(), pointerenter: () => this.offerGroups() } });
    this.paintGrouping([]);
    this.picker = this.columnPicker();
    this.buttons = new Map(
      COUNTERS.map(([key, title]) => {
        const number = el("strong", {}, "–");
        const item = button([number, ` ${title}`], () => this.turn(key), { class: `counter ${key}`, "aria-pressed": String(this.states.has(key)) });
        return [key, { item, number }];
      }),
    );
    this.counters.append(...[...this.buttons.values()].map(({ item }) => item));
    this.paintChips();
  }

  // What the server is asked with, and what the address says.
  asked() {
    return { state: [...this.states].join(","), namespace: [...this.namespaces], sort: this.sort, order: this.isDescending ? "desc" : "", group: this.group };
  }

  parameters() {
    return { ...this.asked(), column: isUsual(this.columns) ? [] : this.columns.map((column) => column.key) };
  }

  isFiltered() {
    return this.states.size > 0 || this.namespaces.size > 0;
  }

  show(found) {
    this.found = found;
    for (const [key, { item, number }] of this.buttons) {
      number.textContent = count(found.counts[key]);
      item.classList.toggle("none", !found.counts[key]);
    }
    const left = found.namespaces.filter((one) => !this.namespaces.has(one.name));
    this.namespace.hidden = found.namespaces.length < 2;
    if (document.activeElement === this.namespace) return;
    this.namespace.replaceChildren(el("option", { value: "" }, "Namespace …"), ...left.map((one) => el("option", { value: one.name }, `${one.name} (${count(one.count)})`)));
  }

  // By which settings workloads can be grouped, the server finds out in their evidence: only for somebody who asks.
  async offerGroups() {
    if (this.areGroupsKnown) return;
    this.areGroupsKnown = true;
    try {
      this.paintGrouping((await get("triage", { groups: "true" })).groups);
    } catch {
      this.areGroupsKnown = false; // asked again with the next focus
    }
  }

  paintGrouping(settings) {
    const choices = [...new Set(["namespace", "state", "project", ...settings, ...(this.group ? [this.group] : [])])];
    const options = choices.map((choice) => el("option", { value: choice }, `Group by ${choice.replace("config.", "").slice(0, 60)}`));
    this.grouping.replaceChildren(el("option", { value: "" }, "No groups"), ...options);
    this.grouping.value = this.group;
  }

  groupBy(group) {
    this.group = group;
    this.changed();
  }

  turn(key) {
    if (!this.states.delete(key)) this.states.add(key);
    this.buttons.get(key).item.setAttribute("aria-pressed", String(this.states.has(key)));
    this.paintChips();
    this.changed();
  }

  choose(namespace) {
    if (!namespace) return;
    this.namespaces.add(namespace);
    this.namespace.blur();
    if (this.found) this.show(this.found);
    this.paintChips();
    this.changed();
  }

  remove(chosen, value) {
    chosen.delete(value);
    this.buttons.get(value)?.item.setAttribute("aria-pressed", "false");
    if (this.found) this.show(this.found);
    this.paintChips();
    this.changed();
  }

  paintChips() {
    const titles = new Map(COUNTERS);
    const chip = (chosen, value, title) => button([name(title, 60), " ×"], () => this.remove(chosen, value), { class: "small chip", "aria-label": `No longer only ${title.slice(0, 60)}` });
    this.chips.replaceChildren(
      ...[...this.states].map((state) => chip(this.states, state, titles.get(state))),
      ...[...this.namespaces].map((namespace) => chip(this.namespaces, namespace, namespace)),
    );
  }

  // Once: rising; again: falling; a third time: what needs attention first.
  sortBy(sort) {
    if (this.sort !== sort) [this.sort, this.isDescending] = [sort, false];
    else if (!this.isDescending) this.isDescending = true;
    else [this.sort, this.isDescending] = ["", false];
    this.changed();
  }

  head(column) {
    const ordered = this.sort === column.sort ? (this.isDescending ? "descending" : "ascending") : null;
    const mark = { ascending: " ↑", descending: " ↓" }[ordered] ?? "";
    const content = column.sort ? button(`${column.head}${mark}`, () => this.sortBy(column.sort), { class: "plain sort", "data-sort": column.sort }) : column.head;
    return el("th", { scope: "col", class: column.right ? "right" : null, "aria-sort": ordered }, content);
  }

  columnPicker() {
    const choices = COLUMNS.map((column) => {
      const box = el("input", { type: "checkbox", checked: this.columns.includes(column) });
      box.addEventListener("change", () => this.turnColumn(column, box));
      return el("label", {}, box, ` ${column.head}`);
    });
    const picker = el("details", { class: "picker" }, el("summary", {}, "Columns"), el("div", {}, el("div", { class: "items" }, choices)));
    picker.addEventListener("keydown", (event) => event.key === "Escape" && (picker.open = false));
    return picker;
  }

  turnColumn(column, box) {
    const chosen = COLUMNS.filter((one) => (one === column ? box.checked : this.columns.includes(one)));
    if (!chosen.length) {
      box.checked = true; // one stays
      return;
    }
    this.columns = chosen;
    this.columnsChanged();
  }
}
