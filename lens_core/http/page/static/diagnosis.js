// Is it hung, what was it doing, should it restart.

import { get, workloadPath } from "./api.js";
import { code, el, name, table } from "./dom.js";
import { ago, count, duration, moment, ranges, words } from "./format.js";
import { seen } from "./pieces.js";

const VERDICTS = { yes: ["failed", "Yes, it hangs"], no: ["running", "No"], unknown: ["silent", "Cannot be told"] };

export async function diagnosis(place, { uid, signal }) {
  const found = await get(workloadPath(uid, "/diagnosis"), {}, { signal });
  place.append(...hang(found.hang), ...progress(found.progress), ...advice(found.advice), ...stacks(found.stacks), ...nodes(found.nodes));
}

function hang(found) {
  const [state, text] = VERDICTS[found.verdict] ?? ["silent", String(found.verdict)];
  const whose = found.ranks?.length ? `, ranks ${ranges(found.ranks).slice(0, 200)}` : "";
  return [
    el("p", { class: "verdict" }, "Does it hang? ", el("span", { class: `state ${state}` }, text), ` ${found.since ? `since ${moment(found.since)}` : ""}${whose}`),
    el("p", {}, name(found.reason ?? "", 500)),
    table(
      "What every rule says of the hang",
      ["Rule", "Hangs", "Since", "Ranks", "Reason"],
      (found.evidence ?? []).map((finding) => [
        words(finding.rule),
        el("span", { class: `state ${(VERDICTS[finding.verdict] ?? VERDICTS.unknown)[0]}` }, finding.verdict),
        finding.since ? moment(finding.since) : "–",
        name(ranges(finding.ranks ?? []) || "–", 80),
        name(finding.reason, 300),
      ]),
    ),
  ];
}

function progress(found) {
  if (!found) return [];
  const usual = found.usual_seconds === null ? "" : `; one usually takes ${found.usual_seconds < 60 ? `${Number(found.usual_seconds.toPrecision(3))} s` : duration(found.usual_seconds)}`;
  return [el("p", {}, `The last step, ${count(found.iteration)}, was logged ${ago(found.last_step)}${usual}.`)];
}

function advice(found) {
  if (!found) return [];
  return [
    el("h2", {}, "What to do about the failure"),
    el("p", {}, el("strong", {}, words(found.action).toLowerCase()), `: ${words(found.cause)}. `, name(found.reason, 500)),
  ];
}

function stacks(groups) {
  const heading = el("h2", {}, "Stacks");
  if (!groups.length) {
    return [heading, el("p", { class: "quiet" }, "No node has sent stacks. The collector ", code("stacks"), " of ", code("lens plugins"), " takes them.")];
  }
  return [
    heading,
    ...groups.map((group) =>
      el(
        "details",
        { open: group.suspect, class: "stack" },
        el(
          "summary",
          {},
          name(`${group.ranks.length} ${group.ranks.length === 1 ? "rank" : "ranks"}: ${ranges(group.ranks)}`, 160),
          group.suspect ? el("span", { class: "state failed" }, "the odd one out") : "",
          group.waits_for_others ? el("span", { class: "quiet" }, group.ranks.length === 1 ? " waits for others" : " wait for others") : "",
        ),
        el("pre", { tabindex: "0" }, group.frames.slice(0, 300).join("\n").slice(0, 50000)),
      )),
  ];
}

function nodes(all) {
  if (!all.length) return [];
  return [
    el("h2", {}, "Who reports"),
    table(
      "Nodes that report",
      ["Node", "Last report", "Of what"],
      all.map((node) => [
        name(`${node.node_type} ${node.node_rank} (${node.node_id})`, 60),
        seen(node.last_report),
        Object.entries(node.reports).map(([kind, at]) => el("span", {}, `${words(kind).toLowerCase()} ${ago(at)} `)),
      ]),
    ),
  ];
}
