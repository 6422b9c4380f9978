// What would change, before anything does: nodes added or drained, other weights of plugins.
import { html, useState } from "./preact.js";
import { link, store, useView } from "./store.js";
import { PodLink, Table, Waiting } from "./ui.js";

export function WhatIf({ name }) {
  const asked = Object.fromEntries(new URLSearchParams(name));
  const plugins = store.standing.plugins || {};
  const [plugin, choose] = useState((asked.weight || "").split("=")[0] || Object.keys(plugins)[0] || "");
  const nodes = [...store.rows.values()].map((node) => node.name);
  const submit = (event) => {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(event.target));
    const query = new URLSearchParams();
    for (const field of ["add", "like", "remove"]) if (given[field]) query.set(field, given[field].trim());
    if (!Number(given.add)) { query.delete("add"); query.delete("like"); }
    if (given.weight) query.set("weight", `${given.plugin}=${given.weight}`);
    if (given.anew) query.set("anew", "");
    location.hash = link("what-if", query.toString());
  };
  return html`<h2>What if</h2>
    <p class="quiet">Nothing is changed: the cluster is simulated twice with all its pods, as it is and with the change.</p>
    <form onSubmit=${submit} class="grid" key=${name}>
      <label>Add nodes <input name="add" type="number" min="0" max="10000" defaultValue=${asked.add || 0} /></label>
      <label>like <input name="like" list="nodes" placeholder="most common node" defaultValue=${asked.like || ""} autocomplete="off" /></label>
      <label>Drain nodes <input name="remove" list="nodes" placeholder="node-1,node-2" defaultValue=${asked.remove || ""} autocomplete="off" /></label>
      <label>Weight of <select name="plugin" value=${plugin} onChange=${(e) => choose(e.target.value)}>
        ${Object.entries(plugins).map(([one, weight]) => html`<option value=${one}>${one} (now ${weight})</option>`)}</select></label>
      <label>becomes <input name="weight" type="number" min="1" defaultValue=${(asked.weight || "").split("=")[1] || ""} placeholder="unchanged" /></label>
      <label><input name="anew" type="checkbox" defaultChecked=${"anew" in asked} /> reschedule all pods</label>
      <button>Show the difference</button>
      <datalist id="nodes">${nodes.slice(0, 1000).map((one) => html`<option value=${one} />`)}</datalist>
    </form>
    ${name && html`<${Found} query=${asked} />`}`;
}

const LISTS = [["newlyPlaced", "Newly placed"], ["newlyPending", "Newly pending"], ["newlyLost", "Newly lost"], ["moved", "Moved"],
  ["added", "Only after"], ["removed", "Only before"]];
const FIGURES = [["nodes", "nodes"], ["emptyNodes", "empty nodes"], ["pods", "pods"], ["running", "running"], ["pending", "pending"],
  ["lost", "lost"], ["evictions", "evictions"]];
const percent = (use) => use && use.allocatable ? `${((100 * use.requested) / use.allocatable).toFixed(1)} %` : "–";

function Found({ query }) {
  const view = useView("what-if", query, true);
  if (view.data === null) return html`<${Waiting} view=${view} />`;
  const { before, after } = view.data, lists = LISTS.filter(([key]) => view.data[key].count);
  const uses = before.use.map((use) => [use, after.use.find((other) => other.resource === use.resource)]);
  return html`<div id="difference">
    <${Table} columns=${["", ["before", "n"], ["after", "n"]]} rows=${[
      ...FIGURES.map(([key, text]) => ({ key, cells: [text, before[key].toLocaleString(), html`<b class=${before[key] === after[key] ? "quiet" : ""}>${after[key].toLocaleString()}</b>`] })),
      ...uses.map(([was, is]) => ({ key: was.resource, cells: [`use of ${was.resource}`, percent(was), percent(is)] }))]} />
    ${lists.length === 0 && view.data.evicted.count === 0 && html`<p>No pod is affected.</p>`}
    ${lists.map(([key, title]) => html`<h2>${title}: ${view.data[key].count.toLocaleString()}</h2>
      <${Table} columns=${["pod", "before", "after", "reason"]} rows=${view.data[key].rows.map((one) => ({
        key: one.pod, cells: [html`<${PodLink} name=${one.pod} />`, one.before || "–", one.after || "–", one.why] }))} />`)}
    ${view.data.evicted.count > 0 && html`<p>Newly evicted: ${view.data.evicted.rows.join(", ")}</p>`}</div>`;
}
