// Who waits, what was decided, and one pod: why it is where it is, what would help, how it came there.
import { html } from "./preact.js";
import { store, useView } from "./store.js";
import { clock, NodeLink, PodLink, Table, Waiting } from "./ui.js";
import { Cards } from "./cluster.js";
import { Ladder } from "./parts.js";

export function Queue() {
  const names = Object.entries(store.queue);
  return html`
    <${Cards} />
    <h2>Who waits</h2>
    <p class="quiet">${names.length ? names.map(([place, n]) => `${n.toLocaleString()} ${place}`).join(", ") : "Nobody waits."}</p>
    <${Table} columns=${["pod", "where", ["priority", "n"], ["attempts", "n"], ["waits", "n"], "refused by"]}
      rows=${store.waiting.map((one) => ({ key: one.pod, cells: [
        html`<${PodLink} name=${one.pod} />`, one.place, one.priority, one.attempts, `${one.seconds} s`, one.refusedBy.join(", ")] }))} />
    ${store.more > 0 && html`<p class="quiet">and ${store.more.toLocaleString()} more</p>`}`;
}

function Outcome({ one }) {
  return html`<span class=${one.outcome === "placed" ? "good" : one.outcome === "error" ? "bad" : ""}>${one.outcome}</span>
    ${one.node && html` on <${NodeLink} name=${one.node} />`}
    ${one.victims > 0 && html`, evicts ${one.victims}`}`;
}

export function Decisions() {
  const some = store.decisions.slice(-200).reverse();
  return html`<h2>Last decisions</h2>
    <${Table} columns=${[["at", "n"], "pod", "outcome", "why"]} rows=${some.map((one) => ({
      key: `${one.pod} ${one.atNs} ${one.attempts}`,
      cells: [clock(one.atNs), html`<${PodLink} name=${one.pod} />`, html`<${Outcome} one=${one} />`, one.message] }))} />`;
}

const VERDICTS = {
  placed: "It is placed.", fits: "Nothing keeps it: it waits for its turn.", refused: "No node will do as things are.",
  settling: "A node would do, and others have to agree with it.", grouped: "A node would do for it alone, not for all of its group.",
  gated: "It has scheduling gates.", leaving: "It is being deleted.", unknown: "It is for another scheduler.",
  failed: "A plugin cannot tell.",
};

export function Pod({ name }) {
  const view = useView("pod", { pod: name });
  const waits = store.waiting.find((one) => one.pod === name);
  const node = [...store.rows.values()].find((one) => one.pods.some((pod) => pod[0] === name));
  const told = view.data;
  return html`
    <h2>Pod ${name}</h2>
    <p id="where">${node ? html`On <${NodeLink} name=${node.name} />.`
      : waits ? `Waits (${waits.place}) for ${waits.seconds} s; refused by ${waits.refusedBy.join(", ") || "nobody yet"}.`
      : "Not on a node, and not in the queue."}</p>
    ${told === null ? html`<${Waiting} view=${view} />` : html`
      ${told.explanation && html`<${Why} about=${told.explanation} />`}
      ${(told.negotiation || []).map((one) => html`<h2>Negotiation</h2><${Ladder} one=${one} />`)}
      <h2>Timeline</h2>
      <ol class="line" id="timeline">${told.timeline.map((one) => html`
        <li><span class="quiet">${clock(one.atNs)}</span> ${one.what}${one.text && html`<div>${one.text}</div>`}</li>`)}</ol>
      ${told.timeline.length === 0 && html`<p class="quiet">Nothing is known of it.</p>`}
      <h2>Attempts that are remembered</h2>
      ${told.decisions.length === 0 && html`<p class="quiet">None.</p>`}
      <ol class="line">${told.decisions.map((one) => html`
        <li key=${`${one.atNs} ${one.attempts}`}><span class="quiet">${clock(one.atNs)}, attempt ${one.attempts}:</span>${" "}
          <${Outcome} one=${{ ...one, victims: one.victims.length }} /> ${one.message && html`<div>${one.message}</div>`}
          ${Object.keys(one.scores).length > 0 && html`<${Table} columns=${["best nodes then", ["score", "n"]]}
            rows=${Object.entries(one.scores).map(([at, score]) => ({ key: at, cells: [html`<${NodeLink} name=${at} />`, score] }))} />`}
          ${one.refused.length > 0 && html`<${Refused} rows=${one.refused} />`}</li>`)}</ol>`}`;
}

const Refused = ({ rows }) => html`<${Table} columns=${["refused by", ["nodes", "n"], "because", "such as"]}
  rows=${rows.map((r, i) => ({ key: i, cells: [r.plugin || "PreFilter", r.nodes, r.reasons.join("; "), r.examples.join(", ")] }))} />`;

function Why({ about }) {
  const parts = [...new Set(about.scores.flatMap((score) => Object.keys(score.parts)))].sort();
  const would = about.verdict === "placed" ? "if it came now, " : "";
  return html`
    <h2>${about.verdict === "placed" ? "Why here" : "Why it waits"}</h2>
    <p id="verdict">${VERDICTS[about.verdict] || about.verdict} ${about.verdict !== "placed" && about.message}
      ${about.nodes > 0 && html` <span class="quiet">${would}${about.feasible.toLocaleString()} of ${about.nodes.toLocaleString()} nodes would do.</span>`}</p>
    ${about.scores.length > 0 && html`<${Table} columns=${["node", ["total", "n"], ...parts.map((part) => [part, "n"])]}
      rows=${about.scores.map((score) => ({ key: score.node, cells: [
        html`<${NodeLink} name=${score.node} />${score.node === about.node ? " (chosen)" : ""}`, score.total, ...parts.map((part) => score.parts[part] || 0)] }))} />`}
    ${about.refused.length > 0 && html`<h2>Why not there</h2><${Refused} rows=${about.refused} />`}
    ${about.refused.filter((r) => r.details.length > 0).map((r) => html`<details><summary>${r.plugin} on ${r.examples[0]}</summary>
      <ul>${r.details.map((text) => html`<li>${text}</li>`)}</ul></details>`)}
    ${about.changes.length > 0 && html`<h2>What would help</h2><p class="quiet">Each was tried, and lets it run.</p>
      <ol id="changes">${about.changes.slice(0, 5).map((change) => html`<li>${change.what.map((text) => html`<div>${text}</div>`)}
        <div class="quiet">then on ${change.node}${change.alike > 0 && `, or the same on ${change.alike} more`}${change.waits && `; then: ${change.waits}`}</div></li>`)}</ol>`}
    ${about.verdict === "refused" && about.changes.length === 0 && html`<p>No change was found that would let it run.</p>`}
    ${about.waitsFor.length > 0 && html`<p class="quiet">It is tried again on: ${about.waitsFor.join(", ")}.</p>`}
    ${about.candidates.length > 0 && html`<p>Preemption would evict ${about.candidates[0].victims.join(", ")} from ${about.candidates[0].node}.</p>`}`;
}
