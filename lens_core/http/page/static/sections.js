// Which charts a view shows, and under which headings: pinned ones first, then those whose names begin alike.

import { inOrder, tells } from "./gridtools.js";

// So many charts are open at first, unless the address says otherwise.
const OPEN_AT_FIRST = 24;
const PINNED = "Pinned";

// The text that a filter is, as a rule for names: a regular expression, or what stands in them where it is none.
export function matcher(text) {
  if (!text) return { matches: () => true, isValid: true };
  try {
    const pattern = new RegExp(text, "i");
    return { matches: (name) => pattern.test(name), isValid: true };
  } catch {
    const low = text.toLowerCase();
    return { matches: (name) => name.toLowerCase().includes(low), isValid: false };
  }
}

// The metrics that are wanted: the chosen ones, or those that say something; a filter goes through all of them.
export function wantedMetrics(metrics, { chosen, filter }) {
  const { matches } = matcher(filter);
  const found = metrics.filter(matches);
  if (chosen) {
    const wanted = chosen.includes("*") ? null : new Set(chosen);
    return found.filter((metric) => !wanted || wanted.has(metric));
  }
  const telling = filter ? found : ofLowestRanks(found.filter(tells));
  return telling.length ? telling : found;
}

// rank0/loss and rank1/loss are one metric of two ranks: the lowest one stands for them.
const RANK = /(^|[^a-z])(rank[^a-z0-9]?)(\d+)/i;

function ofLowestRanks(metrics) {
  const lowest = new Map(); // name without its rank → the metric of the lowest rank
  const rankOf = (metric) => Number(RANK.exec(metric)?.[3] ?? -1);
  const nameOf = (metric) => metric.replace(RANK, "$1$2*");
  for (const metric of metrics) {
    const known = lowest.get(nameOf(metric));
    if (known === undefined || rankOf(metric) < rankOf(known)) lowest.set(nameOf(metric), metric);
  }
  return metrics.filter((metric) => lowest.get(nameOf(metric)) === metric);
}

// layer01/norm and layer02/norm belong together.
const headOf = (metric) => (metric.includes("/") ? metric.slice(0, metric.indexOf("/")).replace(/\d+/g, "*") : "");

// [{title, metrics, isOpen}] in the order of the page; "" is the title of what has no prefix, or one of its own.
export function sectionsOf(metrics, options) {
  const ordered = inOrder(wantedMetrics(metrics, options));
  const pinned = inOrder(metrics.filter((metric) => options.pinned.has(metric)));
  const groups = new Map();
  for (const metric of ordered.filter((one) => !options.pinned.has(one))) {
    const head = headOf(metric);
    groups.set(head, [...(groups.get(head) ?? []), metric]);
  }
  for (const [head, all] of [...groups]) {
    if (head === "" || all.length > 1) continue;
    groups.delete(head);
    groups.set("", [...(groups.get("") ?? []), ...all]);
  }
  const place = (all) => Math.min(...all.map((metric) => ordered.indexOf(metric)));
  const sections = [...groups].map(([title, all]) => ({ title, metrics: inOrder(all), first: title === "" ? -1 : place(all) }));
  sections.sort((one, other) => one.first - other.first);
  if (pinned.length) sections.unshift({ title: PINNED, metrics: pinned });
  return opened(sections, options);
}

function opened(sections, { open, closed, filter }) {
  let room = OPEN_AT_FIRST;
  return sections.map(({ title, metrics }, place) => {
    room -= metrics.length;
    const atFirst = place === 0 || room >= 0 || Boolean(filter);
    return { title, metrics, isOpen: open.has(title) || (atFirst && !closed.has(title)) };
  });
}
