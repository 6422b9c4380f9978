// The dashboard. All that objects say is put into the page as text, never as markup.
import { html, render, useEffect, useMemo, useRef, useState } from "./preact.js";
import { beside, lay, paint, share } from "./map.js";

const store = {
  rows: new Map(), waiting: [], more: 0, queue: {}, decisions: [], rates: {}, standing: {},
  history: [], state: "connecting", version: 0,
};
const DECISIONS = 500, HISTORY = 120;
let changed = () => {};
let planned = false;

// Where what

function token() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem("token", given);
    history.replaceState(null, "", location.pathname + "#/cluster");
  }
  return sessionStorage.getItem("token") || "";
}

function place() {
  const [page, ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  return { page: page || "cluster", name: rest.map(decodeURIComponent).join("/") };
}

const link = (page, name) => `#/${page}/${name.split("/").map(encodeURIComponent).join("/")}`;

// What comes

function take(message) {
  if (message.begin) {
    store.rows.clear();
    store.decisions = [];
  }
  for (const [row, node] of Object.entries(message.rows || {})) {
    if (node === null) store.rows.delete(row);
    else store.rows.set(row, node);
  }
  for (const name of ["waiting", "more", "queue", "standing"]) {
    if (name in message) store[name] = message[name];
  }
  if (message.decisions) {
    store.decisions = [...store.decisions, ...message.decisions].slice(-DECISIONS);
  }
  if (message.rates) {
    const now = performance.now(), last = store.history[store.history.length - 1];
    const seconds = last ? (now - last.at) / 1000 : 0;
    const rate = (name) => seconds > 0 ? ((message.rates[name] || 0) - (last.rates[name] || 0)) / seconds : 0;
    store.history.push({ at: now, rates: message.rates, bound: rate("bound"), events: rate("events"),
      wait: Object.values(message.queue || {}).reduce((a, b) => a + b, 0) });
    store.history = store.history.slice(-HISTORY);
    store.rates = message.rates;
  }
  store.version += 1;
  if (!planned) {
    planned = true;
    requestAnimationFrame(() => { planned = false; changed(); });
  }
}

function stand(state) {
  store.state = state;
  store.version += 1;
  changed();
}

async function follow() {
  for (let pause = 500; ; pause = Math.min(pause * 2, 10000)) {
    try {
      const shown = token();
      const answer = await fetch("stream", { headers: shown ? { Authorization: `Bearer ${shown}` } : {} });
      if (answer.status === 401 || answer.status === 403) {
        stand("locked");
        await new Promise((resolve) => { unlocked = resolve; });
        continue;
      }
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      stand("live");
      pause = 500;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        for (const part of parts) take(JSON.parse(part.slice(6)));
      }
    } catch (error) {
      console.warn(String(error));
    }
    stand("lost");
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}
let unlocked = () => {};

// Pages

function App() {
  const [, again] = useState(0);
  const [where, go] = useState(place());
  useEffect(() => {
    changed = () => again(store.version);
    const moved = () => go(place());
    const keyed = (event) => {
      if (event.target.matches("input, select") || event.metaKey || event.ctrlKey || event.altKey) return;
      const page = { 1: "cluster", 2: "queue", 3: "decisions" }[event.key];
      if (page) location.hash = `#/${page}`;
      if (event.key === "Escape" && ["node", "pod"].includes(place().page)) history.back();
      if (event.key === "/") {
        event.preventDefault();
        document.querySelector("input[type=search]")?.focus();
      }
    };
    addEventListener("hashchange", moved);
    addEventListener("keydown", keyed);
    again(store.version);
    return () => { removeEventListener("hashchange", moved); removeEventListener("keydown", keyed); };
  }, []);
  if (store.state === "locked") return html`<${Locked} />`;
  const Page = { queue: Queue, decisions: Decisions, pod: Pod, node: Node }[where.page] || Cluster;
  const at = { pod: "queue", node: "cluster" }[where.page] || where.page;
  return html`
    <header>
      <h1>Stower</h1>
      <nav aria-label="Pages">
        ${["cluster", "queue", "decisions"].map((page, i) => html`
          <a href=${`#/${page}`} aria-current=${page === at ? "page" : null} title=${`key ${i + 1}`}>
            ${page[0].toUpperCase() + page.slice(1)}</a>`)}
      </nav>
      <${Search} />
      <span class=${store.state === "live" ? "good" : "bad"} role="status" id="state">
        ${store.state === "live" ? (store.standing.leads ? "live, leads" : "live, stands by") : store.state === "lost" ? "connection lost, trying again" : "connecting"}
      </span>
    </header>
    <main><${Page} name=${where.name} /></main>`;
}

function Search() {
  const find = (event) => {
    event.preventDefault();
    const text = event.target.elements[0].value.trim();
    if (!text) return;
    const node = [...store.rows.values()].find((one) => one.name === text);
    location.hash = node ? link("node", text) : link("pod", text.includes("/") ? text : `default/${text}`);
  };
  return html`<form onSubmit=${find} role="search">
    <input type="search" aria-label="Find a pod or node" placeholder="namespace/pod or node   /" /></form>`;
}

function Locked() {
  const let_in = (event) => {
    event.preventDefault();
    sessionStorage.setItem("token", event.target.elements[0].value.trim());
    store.state = "connecting";
    unlocked();
    changed();
  };
  return html`<main><h2>Stower</h2>
    <p>Who is there? The token is in the file that <code>--token-file</code> names, or your own for the cluster.</p>
    <form onSubmit=${let_in} class="bar">
      <input type="password" aria-label="Token" autocomplete="off" />
      <button>Let me in</button></form></main>`;
}

function Cards() {
  const last = store.history[store.history.length - 1] || {};
  const waiting = Object.values(store.queue).reduce((a, b) => a + b, 0);
  const pods = [...store.rows.values()].reduce((n, node) => n + node.pods.length, 0);
  const cards = [
    ["nodes", store.rows.size.toLocaleString()], ["pods placed", pods.toLocaleString()],
    ["pods waiting", waiting.toLocaleString(), store.history.map((h) => h.wait)],
    ["bound a second", number(last.bound), store.history.map((h) => h.bound)],
    ["events a second", number(last.events), store.history.map((h) => h.events)],
    ["arrival to bound, p50", seconds(store.rates.p50)], ["p99", seconds(store.rates.p99)],
  ];
  return html`<div class="cards">${cards.map(([name, value, line]) => html`
    <div class="card"><span class="quiet">${name}</span><b>${value}</b>${line && html`<${Line} values=${line} />`}</div>`)}
  </div>`;
}

function Line({ values }) {
  const most = Math.max(1, ...values);
  const points = values.map((v, i) => `${i},${27 - (25 * v) / most}`).join(" ");
  return html`<svg viewBox=${`0 0 ${HISTORY} 28`} preserveAspectRatio="none" aria-hidden="true"><polyline points=${points} /></svg>`;
}

const number = (value) => (value || 0).toLocaleString(undefined, { maximumFractionDigits: value < 10 ? 1 : 0 });
const seconds = (value) => !value ? "–" : value < 1 ? `${Math.round(value * 1000)} ms` : `${value.toFixed(1)} s`;
const amount = (name, value) => name === "cpu" ? `${value / 1000} CPU` : name === "memory" ? `${(value / 1024).toFixed(1)} Gi` : value;

function Cluster() {
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
      ${["pod", "gang", "devices", "vm", "placeholder"].map((kind) => html`<span class="key"><i class=${`k-${kind}`}></i>${kind}</span>`)}
      <span class="quiet" role="status" id="tile">
        ${current ? `${current.name}: ${Math.round(100 * share(current, resource))} % of ${resource}, ${current.pods.length} pods` : "arrow keys move, Enter opens"}</span>
    </div>
    <canvas class="map" ref=${canvas} tabindex="0" role="application"
      aria-label=${`${nodes.length} nodes by zone, coloured by ${resource}`}
      onKeyDown=${move} onMouseMove=${(e) => { const tile = hit(e); if (tile && tile.node.name !== chosen) point(tile.node.name); }}
      onClick=${(e) => { const tile = hit(e); if (tile) location.hash = link("node", tile.node.name); }}></canvas>
    ${nodes.length === 0 && html`<p class="quiet">No nodes yet.</p>`}`;
}

function Node({ name }) {
  const node = [...store.rows.values()].find((one) => one.name === name);
  if (!node) return html`<h2>Node ${name}</h2><p class="quiet">The scheduler knows no such node.</p>`;
  return html`
    <h2>Node ${name}</h2>
    <p class="quiet">${[node.zone, node.rack].filter(Boolean).join(", ")}${node.off ? ", takes no new pods" : ""}</p>
    <div class="cards">${Object.entries(node.amounts).map(([key, [used, all]]) => html`
      <div class="card"><span class="quiet">${key}</span><b>${all ? `${Math.round((100 * used) / all)} %` : used}</b>
        <span class="quiet">${amount(key, used)} of ${amount(key, all)}</span></div>`)}</div>
    <h2>Pods (${node.pods.length})</h2>
    <div class="wrap"><table><thead><tr><th>pod</th><th>kind</th><th>CPU</th><th>memory</th><th></th></tr></thead>
      <tbody>${node.pods.map(([key, kind, cpu, memory, assumed]) => html`
        <tr key=${key}><td><a href=${link("pod", key)}>${key}</a></td><td>${kind}</td>
          <td class="n">${cpu / 1000}</td><td class="n">${(memory / 1024).toFixed(2)} Gi</td>
          <td class="quiet">${assumed ? "being bound" : ""}</td></tr>`)}</tbody></table></div>`;
}

function Queue() {
  const names = Object.entries(store.queue);
  return html`
    <${Cards} />
    <h2>Who waits</h2>
    <p class="quiet">${names.length ? names.map(([place, n]) => `${n.toLocaleString()} ${place}`).join(", ") : "Nobody waits."}</p>
    <div class="wrap"><table><thead><tr><th>pod</th><th>where</th><th>priority</th><th>attempts</th><th>waits</th><th>refused by</th></tr></thead>
      <tbody>${store.waiting.map((one) => html`
        <tr key=${one.pod}><td><a href=${link("pod", one.pod)}>${one.pod}</a></td><td>${one.place}</td>
          <td class="n">${one.priority}</td><td class="n">${one.attempts}</td><td class="n">${one.seconds} s</td>
          <td>${one.refusedBy.join(", ")}</td></tr>`)}</tbody></table></div>
    ${store.more > 0 && html`<p class="quiet">and ${store.more.toLocaleString()} more</p>`}`;
}

function Outcome({ one }) {
  return html`<span class=${one.outcome === "placed" ? "good" : one.outcome === "error" ? "bad" : ""}>${one.outcome}</span>
    ${one.node && html` on <a href=${link("node", one.node)}>${one.node}</a>`}
    ${one.victims > 0 && html`, evicts ${one.victims}`}`;
}

function Decisions() {
  const some = store.decisions.slice(-200).reverse();
  return html`<h2>Last decisions</h2>
    <div class="wrap"><table><thead><tr><th>at</th><th>pod</th><th>outcome</th><th>why</th></tr></thead>
      <tbody>${some.map((one) => html`
        <tr key=${`${one.pod} ${one.atNs} ${one.attempts}`}><td class="n">${new Date(one.atNs / 1e6).toLocaleTimeString()}</td>
          <td><a href=${link("pod", one.pod)}>${one.pod}</a></td>
          <td><${Outcome} one=${one} /></td><td>${one.message}</td></tr>`)}</tbody></table></div>`;
}

function Pod({ name }) {
  const [told, tell] = useState(null);
  const waits = store.waiting.find((one) => one.pod === name);
  const node = [...store.rows.values()].find((one) => one.pods.some((pod) => pod[0] === name));
  const count = store.decisions.filter((one) => one.pod === name).length;
  useEffect(() => {
    let is_current = true;
    const shown = token();
    fetch(`../debug/pod?${new URLSearchParams({ pod: name })}`, { headers: shown ? { Authorization: `Bearer ${shown}` } : {} })
      .then((answer) => answer.ok ? answer.json() : null)
      .then((found) => { if (is_current) tell(found); })
      .catch(() => {});
    return () => { is_current = false; };
  }, [name, count, Boolean(node)]);
  const decisions = told && told.pod === name ? told.decisions : [];
  return html`
    <h2>Pod ${name}</h2>
    <p id="where">${node ? html`On <a href=${link("node", node.name)}>${node.name}</a>.`
      : waits ? `Waits (${waits.place}) for ${waits.seconds} s; refused by ${waits.refusedBy.join(", ") || "nobody yet"}.`
      : "Not on a node, and not in the queue."}</p>
    <h2>Attempts</h2>
    ${decisions.length === 0 && html`<p class="quiet">None that are remembered.</p>`}
    <ol class="line">${decisions.map((one) => html`
      <li key=${`${one.atNs} ${one.attempts}`}><span class="quiet">${new Date(one.atNs / 1e6).toLocaleTimeString()}, attempt ${one.attempts}:</span>${" "}
        <${Outcome} one=${{ ...one, victims: one.victims.length }} /> ${one.message && html`<div>${one.message}</div>`}
        ${Object.keys(one.scores).length > 0 && html`<div class="wrap"><table><thead><tr><th>best nodes</th><th>score</th></tr></thead>
          <tbody>${Object.entries(one.scores).map(([at, score]) => html`<tr><td><a href=${link("node", at)}>${at}</a></td><td class="n">${score}</td></tr>`)}</tbody></table></div>`}
        ${one.refused.length > 0 && html`<div class="wrap"><table><thead><tr><th>refused by</th><th>nodes</th><th>because</th><th>such as</th></tr></thead>
          <tbody>${one.refused.map((r) => html`<tr><td>${r.plugin}</td><td class="n">${r.nodes}</td><td>${r.reasons.join("; ")}</td><td>${r.examples.join(", ")}</td></tr>`)}</tbody></table></div>`}
      </li>`)}</ol>
    ${!node && html`<p class="quiet">What would help: <code>stower explain pod ${name}</code></p>`}`;
}

token();
const app = document.getElementById("app");
app.textContent = "";
render(html`<${App} />`, app);
follow();
