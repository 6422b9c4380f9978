// The cluster as its topology, and one node.
import { html, useEffect, useMemo, useRef, useState } from "./preact.js";
import { beside, lay, paint, share } from "./map.js";
import { link, store } from "./store.js";
import { amount, number, PodLink, seconds, Spark, Table } from "./ui.js";

const KINDS = ["pod", "user", "gang", "devices", "vm", "placeholder"];

export function Cards() {
  const past = store.history, last = past[past.length - 1] || {};
  const waiting = Object.values(store.queue).reduce((a, b) => a + b, 0);
  const pods = [...store.rows.values()].reduce((n, node) => n + node.pods.length, 0);
  const cards = [
    ["nodes", store.rows.size.toLocaleString()], ["pods placed", pods.toLocaleString()],
    ["pods pending", waiting.toLocaleString(), past.map((h) => h.waiting)],
    ["bound per second", number(last.bound), past.map((h) => h.bound || 0)],
    ["events per second", number(last.events), past.map((h) => h.events || 0)],
    ["arrival to bound, p50", seconds(last.p50)], ["p99", seconds(last.p99)],
  ];
  return html`<div class="cards">${cards.map(([name, value, line]) => html`
    <div class="card"><span class="quiet">${name}</span><b>${value}</b>${line && html`<${Spark} values=${line} />`}</div>`)}
  </div>`;
}

export function Cluster() {
  const canvas = useRef(null);
  const [resource, choose] = useState("cpu");
  const [chosen, point] = useState(null);
  const [width, measure] = useState(0);
  const nodes = [...store.rows.values()];
  const plan = useMemo(() => lay(nodes, Math.max(200, width)), [store.version, width]);
  const current = chosen && nodes.find((node) => node.name === chosen);
  useEffect(() => {
    const watch = new ResizeObserver(() => measure(canvas.current ? canvas.current.clientWidth : 0));
    watch.observe(canvas.current);
    return () => watch.disconnect();
  }, []);
  useEffect(() => paint(canvas.current, plan, resource, current), [plan, resource, current, width]);
  const hit = (event) => {
    const box = canvas.current.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    return plan.tiles.find((t) => x >= t.x && x <= t.x + t.size && y >= t.y && y <= t.y + t.size);
  };
  const move = (event) => {
    if (event.key.startsWith("Arrow") && plan.tiles.length) {
      event.preventDefault();
      const from = plan.tiles.find((tile) => tile.node.name === chosen);
      point((from ? beside(plan.tiles, from, event.key) : plan.tiles[0]).node.name);
    }
    if (event.key === "Enter" && chosen) location.hash = link("node", chosen);
  };
  const resources = [...new Set(nodes.flatMap((node) => Object.keys(node.amounts)))];
  return html`
    <${Cards} />
    <div class="bar">
      <label>Tiles by <select value=${resource} onChange=${(e) => choose(e.target.value)}>
        ${(resources.length ? resources : ["cpu"]).map((name) => html`<option value=${name}>${name}</option>`)}</select></label>
      ${KINDS.map((kind) => html`<span class="key"><i class=${`k-${kind}`}></i>${kind}</span>`)}
      <span class="quiet" role="status" id="tile">
        ${current ? `${current.name}: ${Math.round(100 * share(current, resource))} % of ${resource}, ${current.pods.length} pods` : "arrow keys move, Enter opens"}</span>
    </div>
    <canvas class="map" ref=${canvas} tabindex="0" role="application"
      aria-label=${`${nodes.length} nodes by zone, coloured by ${resource}`}
      onKeyDown=${move} onMouseMove=${(e) => { const tile = hit(e); if (tile && tile.node.name !== chosen) point(tile.node.name); }}
      onClick=${(e) => { const tile = hit(e); if (tile) location.hash = link("node", tile.node.name); }}></canvas>
    ${nodes.length === 0 && html`<p class="quiet">No nodes yet.</p>`}`;
}

export function Node({ name }) {
  const node = [...store.rows.values()].find((one) => one.name === name);
  if (!node) return html`<h2>Node ${name}</h2><p class="quiet">The scheduler has no such node.</p>`;
  return html`
    <h2>Node ${name}</h2>
    <p class="quiet">${[node.zone, node.rack].filter(Boolean).join(", ")}${node.off ? ", unschedulable" : ""}</p>
    <div class="cards">${Object.entries(node.amounts).map(([key, [used, all]]) => html`
      <div class="card"><span class="quiet">${key}</span><b>${all ? `${Math.round((100 * used) / all)} %` : used}</b>
        <span class="quiet">${amount(key, used)} of ${amount(key, all)}</span></div>`)}</div>
    <p><a href=${link("what-if", `remove=${name}`)}>What if it were drained?</a></p>
    <h2>Pods (${node.pods.length})</h2>
    <${Table} columns=${["pod", "kind", ["CPU", "n"], ["memory", "n"], ""]} rows=${node.pods.map(([key, kind, cpu, memory, assumed]) => ({
      key, cells: [html`<${PodLink} name=${key} />`, kind, cpu / 1000, `${(memory / 1024).toFixed(2)} Gi`, assumed ? "being bound" : ""],
    }))} />`;
}
