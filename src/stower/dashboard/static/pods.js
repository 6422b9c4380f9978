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
    <h2>Pending pods</h2>
    <p class="quiet">${names.length ? names.map(([place, n]) => `${n.toLocaleString()} ${place}`).join(", ") : "No pods are pending."}</p>
    <${Table} columns=${["pod", "queue", ["priority", "n"], ["attempts", "n"], ["pending for", "n"], "rejected by"]}
      rows=${store.waiting.map((one) => ({ key: one.pod, cells: [
        html`<${PodLink} name=${one.pod} />`, one.place, one.priority, one.attempts, `${one.seconds} s`, one.refusedBy.join(", ")] }))} />
    ${store.more > 0 && html`<p class="quiet">and ${store.more.toLocaleString()} more</p>`}`;
}

function Outcome({ one }) {
  return html`<span class=${one.outcome === "placed" ? "good" : one.outcome === "error" ? "bad" : ""}>${one.outcome}</span>
    ${one.node && html` on <${NodeLink} name=${one.node} />`}
    ${one.victims > 0 && html`, evicts ${one.victims} pods`}`;
}

export function Decisions() {
  const some = store.decisions.slice(-200).reverse();
  return html`<h2>Last decisions</h2>
    <${Table} columns=${[["time", "n"], "pod", "outcome", "message"]} rows=${some.map((one) => ({
      key: `${one.pod} ${one.atNs} ${one.attempts}`,
      cells: [clock(one.atNs), html`<${PodLink} name=${one.pod} />`, html`<${Outcome} one=${one} />`, one.message] }))} />`;
}

const VERDICTS = {
  placed: "The pod is placed.", fits: "A node fits; the pod waits for its next attempt.", refused: "No node fits the pod now.",
  settling: "A node fits; drivers or a volume have to accept it.", grouped: "A node fits the pod alone, but not its whole group.",
  gated: "The pod has scheduling gates.", leaving: "The pod is being deleted.", unknown: "The pod is for another scheduler.",
  failed: "A plugin failed.",
};

export function Pod({ name }) {
  const view = useView("pod", { pod: name });
  const waits = store.waiting.find((one) => one.pod === name);
  const node = [...store.rows.values()].find((one) => one.pods.some((pod) => pod[0] === name));
  const told = view.data;
  return html`
    <h2>Pod ${name}</h2>
    <p id="where">${node ? html`On <${NodeLink} name=${node.name} />.`
      : waits ? `Pending (${waits.place}) for ${waits.seconds} s; rejected by ${waits.refusedBy.join(", ") || "no plugin yet"}.`
      : "Not on a node, and not in the queue."}</p>
    ${told === null ? html`<${Waiting} view=${view} />` : html`
      ${told.explanation && html`<${Why} about=${told.explanation} />`}
      ${(told.negotiation || []).map((one) => html`<h2>Negotiation</h2><${Ladder} one=${one} />`)}
      <h2>Timeline</h2>
      <ol class="line" id="timeline">${told.timeline.map((one) => html`
        <li><span class="quiet">${clock(one.atNs)}</span> ${one.what}${one.text && html`<div>${one.text}</div>`}</li>`)}</ol>
      ${told.timeline.length === 0 && html`<p class="quiet">No events are known.</p>`}
      <h2>Recent attempts</h2>
      ${told.decisions.length === 0 && html`<p class="quiet">None.</p>`}
      <ol class="line">${told.decisions.map((one) => html`
        <li key=${`${one.atNs} ${one.attempts}`}><span class="quiet">${clock(one.atNs)}, attempt ${one.attempts}:</span>${" "}
          <${Outcome} one=${{ ...one, victims: one.victims.length }} /> ${one.message && html`<div>${one.message}</div>`}
          ${Object.keys(one.scores).length > 0 && html`<${Table} columns=${["best nodes", ["score", "n"]]}
            rows=${Object.entries(one.scores).map(([at, score]) => ({ key: at, cells: [html`<${NodeLink} name=${at} />`, score] }))} />`}
          ${one.refused.length > 0 && html`<${Refused} rows=${one.refused} />`}</li>`)}</ol>`}`;
}

const Refused = ({ rows }) => html`<${Table} columns=${["rejected by", ["nodes", "n"], "reason", "examples"]}
  rows=${rows.map((r, i) => ({ key: i, cells: [r.plugin || "PreFilter", r.nodes, r.reasons.join("; "), r.examples.join(", ")] }))} />`;

function Why({ about }) {
  const parts = [...new Set(about.scores.flatMap((score) => Object.keys(score.parts)))].sort();
  const would = about.verdict === "placed" ? "if scheduled now, " : "";
  return html`
    <h2>${about.verdict === "placed" ? "Why this node" : "Why pending"}</h2>
    <p id="verdict">${VERDICTS[about.verdict] || about.verdict} ${about.verdict !== "placed" && about.message}
      ${about.nodes > 0 && html` <span class="quiet">${would}${about.feasible.toLocaleString()} of ${about.nodes.toLocaleString()} nodes would fit.</span>`}</p>
    ${about.verdict !== "placed" && html`<p id="class">Class ${about.class}${about.because && `: ${about.because}`}.</p>`}
    ${about.scores.length > 0 && html`<${Table} columns=${["node", ["total", "n"], ...parts.map((part) => [part, "n"])]}
      rows=${about.scores.map((score) => ({ key: score.node, cells: [
        html`<${NodeLink} name=${score.node} />${score.node === about.node ? " (chosen)" : ""}`, score.total, ...parts.map((part) => score.parts[part] || 0)] }))} />`}
    ${about.refused.length > 0 && html`<h2>Rejected nodes</h2><${Refused} rows=${about.refused} />`}
    ${about.refused.filter((r) => r.details.length > 0).map((r) => html`<details open=${r.examples.length === 0}>
      <summary>${r.plugin || "PreFilter"}${r.examples.length > 0 && ` on ${r.examples[0]}`}</summary>
      <ul>${r.details.map((text) => html`<li>${text}</li>`)}</ul></details>`)}
    ${about.changes.length > 0 && html`<h2>What would help</h2><p class="quiet">Each change was verified on a copy of the cluster state.</p>
      <ol id="changes">${about.changes.slice(0, 5).map((change) => html`<li>${change.what.map((text) => html`<div>${text}</div>`)}
        <div class="quiet">then on ${change.node}${change.alike > 0 && `, or the same on ${change.alike} other nodes`}${change.waits && `; then: ${change.waits}`}</div></li>`)}</ol>`}
    ${about.verdict === "refused" && about.changes.length === 0 && html`<p>No change was found that would make the pod schedulable.</p>`}
    ${about.waitsFor.length > 0 && html`<p class="quiet">Retried on: ${about.waitsFor.join(", ")}.</p>`}
    ${about.candidates.length > 0 && html`<p>Preemption would evict ${about.candidates[0].victims.join(", ")} from ${about.candidates[0].node}.</p>`}`;
}
