// The dashboard: pages, their names, and the keys for them. All that objects say is put into the page
// as text, never as markup.
import { html, render, useEffect, useState } from "./preact.js";
import { Cluster, Node } from "./cluster.js";
import { Moment } from "./moment.js";
import { Devices, Groups, Negotiations, VMs, Warm } from "./parts.js";
import { Decisions, Pod, Queue } from "./pods.js";
import { Rates } from "./rates.js";
import { follow, link, onChange, place, store, token, unlock } from "./store.js";
import { WhatIf } from "./whatif.js";

// Those in the bar, each with the digit that opens it.
const PAGES = [
  ["cluster", "Cluster", Cluster], ["queue", "Queue", Queue], ["decisions", "Decisions", Decisions], ["groups", "Groups", Groups],
  ["devices", "Devices", Devices], ["negotiations", "Negotiations", Negotiations], ["vms", "VMs", VMs], ["warm", "Warm", Warm],
  ["rates", "Rates", Rates], ["what-if", "What if", WhatIf],
];
const digit = (i) => String((i + 1) % 10);
// Those for one object, and what they belong to.
const OF_ONE = { pod: [Pod, "queue"], node: [Node, "cluster"] };

function App() {
  const [, again] = useState(0);
  const [where, go] = useState(place());
  useEffect(() => {
    const moved = () => go(place());
    const keyed = (event) => {
      if (event.target.matches("input, select") || event.metaKey || event.ctrlKey || event.altKey) return;
      const page = PAGES.find((_, i) => digit(i) === event.key);
      if (page) location.hash = `#/${page[0]}`;
      if (event.key === "Escape" && place().page in OF_ONE) history.back();
      if (event.key === "/") {
        event.preventDefault();
        document.querySelector("input[type=search]")?.focus();
      }
    };
    const off = onChange(() => again(store.version));
    addEventListener("hashchange", moved);
    addEventListener("keydown", keyed);
    again(store.version);
    return () => { off(); removeEventListener("hashchange", moved); removeEventListener("keydown", keyed); };
  }, []);
  if (store.state === "locked") return html`<${Locked} />`;
  const [Page, at] = OF_ONE[where.page] || [(PAGES.find(([page]) => page === where.page) || PAGES[0])[2], where.page];
  return html`
    <header>
      <h1>Stower</h1>
      <nav aria-label="Pages">
        ${PAGES.map(([page, title], i) => html`
          <a href=${`#/${page}`} aria-current=${page === at ? "page" : null} title=${`key ${digit(i)}`}>${title}</a>`)}
      </nav>
      <${Search} />
      <span class=${store.state === "live" ? "good" : "bad"} role="status" id="state">${standing()}</span>
    </header>
    <${Moment} />
    <main><${Page} name=${where.name} key=${`${where.page} ${where.name}`} /></main>`;
}

function standing() {
  if (store.state !== "live") return store.state === "lost" ? "connection lost, reconnecting" : "connecting";
  if (store.standing.recording) return `recording ${store.standing.recording.name}`;
  return store.standing.leads ? "live, leader" : "live, standby";
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
  const enter = (event) => {
    event.preventDefault();
    unlock(event.target.elements[0].value.trim());
  };
  return html`<main><h2>Stower</h2>
    <p>Enter the token of the file given with <code>--token-file</code>, or your own token for the cluster.</p>
    <form onSubmit=${enter} class="bar">
      <input type="password" aria-label="Token" autocomplete="off" />
      <button>Sign in</button></form></main>`;
}

token();
const app = document.getElementById("app");
app.textContent = "";
render(html`<${App} />`, app);
follow();
