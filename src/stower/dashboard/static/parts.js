// Groups, devices, negotiations, VMs and warm pools.
import { html } from "./preact.js";
import { useView } from "./store.js";
import { Bar, More, NodeLink, PodLink, quantity, Table, Waiting } from "./ui.js";

const List = (title, name, empty, draw) => function Part() {
  const view = useView(name);
  const rows = view.data ? view.data.rows : [];
  return html`<h2>${title}</h2>
    ${rows.length === 0 ? html`<${Waiting} view=${view} empty=${empty} />` : draw(rows, view.data)}
    <${More} count=${view.data ? view.data.more : 0} />`;
};

// Groups: trees, each group with its minimum and the domain that it is in.
const STATES = { placed: "good", invalid: "bad", impossible: "bad", missing: "bad", "partially bound": "bad" };
export const Groups = List("Pod groups", "groups", "There are no pod groups.", (rows) => html`
  <ul class="tree">${rows.map((one) => html`
    <li key=${`${one.kind} ${one.name}`} style=${{ marginLeft: `${Math.min(8, one.level) * 1.4}rem` }}>
      <b>${one.level ? one.name.slice(one.name.indexOf("/") + 1) : one.name}</b>
      <span class="quiet"> ${one.kind === "CompositePodGroup" ? "group of groups" : "pods"}, ${one.policy === "gang" ? `at least ${one.minimum}` : one.policy || "?"}</span>
      ${(one.domain || one.topology) && html`<span class="chip">${one.domain || `one ${one.topology}`}</span>`}
      <${Bar} label=${`${one.have} of ${one.count}`} parts=${[{ kind: "gang", share: one.have / Math.max(1, one.count), title: `${one.have} of ${one.count}` }]} />
      <span>${one.have}/${one.count} <span class=${STATES[one.state] || "quiet"}>${one.state}</span></span>
      ${one.message && html`<div class="quiet">${one.message}</div>`}</li>`)}</ul>`);

// Devices: who holds how much of each.
function shares(device) {
  const [name, room] = Object.entries(device.capacity)[0] || [];
  if (!name) return device.holders.map((holder) => ({ share: 1 / device.holders.length, kind: "devices", title: holder.claim }));
  const total = quantity(room.total);
  return device.holders.map((holder, i) => ({ share: quantity(holder.amounts[name] || 0) / total, kind: i % 2 ? "gang" : "devices",
    title: `${holder.claim}: ${holder.amounts[name] || "0"} ${name}` }));
}
export const Devices = List("Devices", "devices", "There are no devices.", (rows, data) => html`
  <${Table} columns=${["device", "nodes", "shares", "allocated to", "free", "note"]} rows=${rows.map((one) => ({
    key: `${one.driver}/${one.pool}/${one.device}`, cells: [
      html`${one.device}<div class="quiet">${one.driver}/${one.pool}</div>`, one.nodes,
      html`<${Bar} label=${`allocated to ${one.holders.length} claims`} parts=${shares(one)} />`,
      one.holders.map((holder) => html`<div>${holder.claim}${Object.entries(holder.amounts).map(([name, text]) => ` ${text} ${name}`)}
        ${holder.pods.length > 0 && html` <span class="quiet">for ${holder.pods.join(", ")}</span>`}${holder.admin && " (admin)"}</div>`),
      Object.entries(one.capacity).map(([name, room]) => html`<div>${room.left} of ${room.total} ${name}</div>`),
      [one.shared ? "shared" : "", ...one.taints, one.blocked].filter(Boolean).map((text) => html`<div>${text}</div>`)] }))} />
  ${data.pools.some((pool) => pool.fault || Object.keys(pool.counters).length) && html`<h2>Pools</h2>
    <${Table} columns=${["pool", ["generation", "n"], "slices", "free counters", "note"]} rows=${data.pools.map((pool) => ({
      key: `${pool.driver}/${pool.pool}`, cells: [`${pool.driver}/${pool.pool}`, pool.generation, `${pool.slices} of ${pool.slicesWanted}`,
        Object.entries(pool.counters).map(([name, room]) => html`<div>${room.left} of ${room.total} ${name}</div>`), pool.fault] }))} />`}`);

// Negotiations: a ladder; what was said goes from one line of life to another.
function rungs(one) {
  const found = [];
  const drivers = [...new Set(one.claims.map((claim) => claim.driver).filter(Boolean))];
  if (one.round || one.candidates) {
    for (const driver of drivers) found.push({ to: driver, text: `round ${one.round}: which of ${one.candidates} nodes are unsuitable?` });
  }
  for (const claim of one.claims) {
    const name = claim.claim.slice(claim.claim.indexOf("/") + 1);
    if (claim.state === "answered") found.push({ from: claim.driver, text: `${name}: ${claim.unsuitable.length} unsuitable` });
    if (claim.state === "silent") found.push({ from: claim.driver, text: `${name}: no response yet`, open: true });
    if (claim.state === "missing") found.push({ from: claim.driver, text: `${name}: the claim does not exist`, open: true });
    if (claim.state === "flagged") found.push({ to: claim.driver, text: `${name}: deallocate (${claim.flag})` });
  }
  if (one.selectedNode) for (const driver of drivers) found.push({ to: driver, text: `allocate on ${one.selectedNode}` });
  for (const claim of one.claims) {
    const name = claim.claim.slice(claim.claim.indexOf("/") + 1);
    if (claim.allocated) found.push({ from: claim.driver, text: `${name}: allocated ${claim.everywhere ? "for all nodes" : `on ${claim.nodes.join(", ") || "no existing node"}`}` });
    else if (one.selectedNode) found.push({ from: claim.driver, text: `${name}: not allocated yet`, open: true });
    if (claim.usedBy.length) found.push({ text: `${name}: reserved for ${claim.usedBy.length}` });
  }
  return { drivers, found };
}
export function Ladder({ one }) {
  const { drivers, found } = rungs(one);
  const STEP = 34, ACROSS = 330, LEFT = 90;
  const x = (name) => LEFT + ACROSS * (1 + drivers.indexOf(name));
  const wide = LEFT * 2 + ACROSS * Math.max(1, drivers.length), high = 44 + STEP * (found.length + 1);
  return html`<div class="wrap"><svg class="ladder" viewBox=${`0 0 ${wide} ${high}`} width=${wide} height=${high} role="img"
      aria-label=${`negotiation of ${one.pod}: ${found.map((rung) => rung.text).join("; ")}`}>
    ${["scheduler", ...drivers].map((name, i) => html`<text x=${LEFT + ACROSS * i} y="16" text-anchor="middle" class="head">${name}</text>
      <line x1=${LEFT + ACROSS * i} x2=${LEFT + ACROSS * i} y1="24" y2=${high - 6} />`)}
    ${found.map((rung, i) => {
      const y = 56 + STEP * i, other = rung.to || rung.from, far = other ? x(other) : LEFT;
      const [a, b] = rung.to ? [LEFT, far] : [far, LEFT];
      const head = b > a ? -8 : 8;
      return html`<g class=${rung.open ? "open" : ""}>
        ${other && html`<line x1=${a} x2=${b} y1=${y} y2=${y} /><path d=${`M ${b + head} ${y - 5} L ${b} ${y} L ${b + head} ${y + 5}`} />`}
        <text x=${other ? (a + b) / 2 : LEFT + 8} y=${y - 6} text-anchor=${other ? "middle" : "start"}>${rung.text}</text></g>`;
    })}</svg></div>
    ${[one.awaits, ...one.claims.map((claim) => claim.awaits)].filter(Boolean).map((text) => html`<p class="quiet">Waits for: ${text}</p>`)}
    ${one.hints.length > 0 && html`<p>What may help:</p><ul>${one.hints.map((text) => html`<li>${text}</li>`)}</ul>`}`;
}
export const Negotiations = List("Negotiations", "negotiations", "There are no negotiations.", (rows) => rows.map((one) => html`
  <section key=${one.pod}><h3><${PodLink} name=${one.pod} />
    <span class="quiet"> ${one.left} of ${one.candidates} nodes left${one.attempt ? `, attempt ${one.attempt}` : ""}</span></h3>
    <${Ladder} one=${one} /></section>`));

// VMs: what each uses, asks for and was granted.
const cpu = (size) => size ? quantity(size.cpu) : 0;
const size = (one) => one ? `${quantity(one.cpu)} CPU, ${one.memory}` : "";
export const VMs = List("VMs", "vms", "There are no VMs.", (rows) => {
  const most = Math.max(1e-9, ...rows.flatMap((one) => [cpu(one.uses), cpu(one.requested), cpu(one.approved)]));
  const line = (kind, of) => html`<div class="pair"><${Bar} label=${size(of)} parts=${[{ kind, share: cpu(of) / most, title: size(of) }]} /> ${size(of)}</div>`;
  return html`<${Table} columns=${["VM", "node", "uses", "requested", "approved", "migration", "note"]} rows=${rows.map((one) => ({
    key: one.vm, cells: [
      html`${one.vm}<div class="quiet">${one.phase || ""}</div>`, one.node ? html`<${NodeLink} name=${one.node} />` : "",
      line("vm", one.uses), line(cpu(one.requested) > cpu(one.approved) ? "over" : "pod", one.requested), line("vm", one.approved),
      one.migration ? html`${one.migration}${one.target && html`<div>${one.node || "?"} → ${one.target}</div>`}` : "", one.message || ""] }))} />`;
});

// Warm pools, as the seed draws them: U a user, P a placeholder, + a free slot; small letters are of other pools.
const SLOTS = { U: "user", P: "placeholder", "+": "free" };
const slotKind = (letter) => SLOTS[letter.toUpperCase()];
export const Warm = List("Warm pools", "warm", "There are no warm pools.", (rows) => html`
  <p>${Object.entries(SLOTS).map(([letter, kind]) => html`<span class="key"><i class=${`k-${kind}`}></i>${letter} ${kind}</span> `)}</p>
  ${rows.map((pool) => html`<section key=${pool.pool}><h3>${pool.pool}</h3>
    <p class="quiet">${pool.users} users (${pool.waiting} waiting), ${pool.placed} placeholders (${pool.pending} pending, ${pool.wanted} wanted)</p>
    <div class="warm">${pool.nodes.map((node) => html`<div key=${node.node}>
      <${NodeLink} name=${node.node} /><span class="quiet" title=${node.reason || ""}> ${node.state}${node.reason ? `: ${node.reason}` : ""}</span>
      <div class="slots" role="img" aria-label=${`${node.users} users, ${node.placeholders} placeholders, ${node.free} free`}>
        ${[...node.drawn].map((letter) => html`<i class=${`k-${slotKind(letter)}`}>${letter}</i>`)}</div></div>`)}</div>
    ${pool.nextUser && html`<p>Next user: ${pool.nextUser}</p>`}
    ${(pool.moves || []).map((text) => html`<p>Planned move: ${text}</p>`)}
    ${pool.then && html`<p>Expected: ${pool.then}</p>`}</section>`)}`);
