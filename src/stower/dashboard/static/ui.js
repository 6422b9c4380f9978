// Small parts of which pages are made.
import { html } from "./preact.js";
import { link } from "./store.js";

export const number = (value) =>
  (value || 0).toLocaleString(undefined, { maximumFractionDigits: value < 10 ? 1 : 0 });
export const seconds = (value) =>
  !value ? "–" : value < 1 ? `${Math.round(value * 1000)} ms` : `${value.toFixed(1)} s`;
export const amount = (name, value) =>
  name === "cpu" ? `${value / 1000} CPU` : name === "memory" ? `${(value / 1024).toFixed(1)} Gi` : value;
export const clock = (ns) => new Date(ns / 1e6).toLocaleTimeString();

const SUFFIXES = { n: 1e-9, u: 1e-6, m: 1e-3, "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60 };
// A Kubernetes quantity as a number; NaN for what is none.
export function quantity(text) {
  const found = /^([+-]?[0-9.]+)(e[+-]?[0-9]+|E[+-]?[0-9]+|[a-zA-Z]*)$/.exec(String(text));
  if (!found) return NaN;
  const [, digits, suffix] = found;
  return suffix in SUFFIXES ? Number(digits) * SUFFIXES[suffix] : Number(digits + suffix);
}

export const PodLink = ({ name }) => html`<a href=${link("pod", name)}>${name}</a>`;
export const NodeLink = ({ name }) => html`<a href=${link("node", name)}>${name}</a>`;

// Columns are names, or [name, "n"] for numbers.
export function Table({ columns, rows }) {
  const kinds = columns.map((column) => Array.isArray(column) ? column : [column, null]);
  return html`<div class="wrap"><table><thead><tr>${kinds.map(([name]) => html`<th>${name}</th>`)}</tr></thead>
    <tbody>${rows.map(({ key, cells }) => html`<tr key=${key}>
      ${cells.map((cell, i) => html`<td class=${kinds[i][1]}>${cell}</td>`)}</tr>`)}</tbody></table></div>`;
}

// Parts of a whole side by side: {share, kind, title}. Shares are of 1.
export function Bar({ parts, label }) {
  return html`<span class="meter" role="img" aria-label=${label}>
    ${parts.map((part) => html`<i class=${`k-${part.kind}`} title=${part.title}
      style=${{ width: `${100 * Math.max(0, Math.min(1, part.share || 0))}%` }}></i>`)}</span>`;
}

export function Spark({ values }) {
  const most = Math.max(1e-9, ...values);
  const points = values.map((v, i) => `${i},${27 - (25 * v) / most}`).join(" ");
  return html`<svg viewBox=${`0 0 ${Math.max(1, values.length - 1)} 28`} preserveAspectRatio="none" aria-hidden="true">
    <polyline points=${points} /></svg>`;
}

// Lines over time. `lines`: {name, values}; `times`: seconds since the epoch.
export function Chart({ title, unit, times, lines }) {
  const WIDE = 600, HIGH = 150, LEFT = 56, UNDER = 20;
  const most = Math.max(1e-9, ...lines.flatMap((line) => line.values)) * 1.05;
  const first = times[0] || 0, last = times[times.length - 1] || 1;
  const x = (at) => LEFT + ((WIDE - LEFT) * (at - first)) / Math.max(1e-9, last - first);
  const y = (value) => 8 + (HIGH - 8 - UNDER) * (1 - value / most);
  return html`<figure><figcaption>${title} <span class="quiet">(${unit})</span>
      ${lines.length > 1 && lines.map((line, i) => html`<span class="key"><i class=${`line-${i}`}></i>${line.name}</span>`)}</figcaption>
    ${times.length < 2 ? html`<p class="quiet">Not enough data yet.</p>` : html`
    <svg class="chart" viewBox=${`0 0 ${WIDE} ${HIGH}`} role="img" aria-label=${`${title}, ${unit}`}>
      ${[0, 0.5, 1].map((part) => html`<line x1=${LEFT} x2=${WIDE} y1=${y(part * most)} y2=${y(part * most)} />
        <text x=${LEFT - 6} y=${y(part * most) + 4} text-anchor="end">${number(part * most)}</text>`)}
      ${[0, 0.5, 1].map((part) => html`<text x=${x(first + part * (last - first))} y=${HIGH - 4}
        text-anchor=${["start", "middle", "end"][2 * part]}>${clock((first + part * (last - first)) * 1e9)}</text>`)}
      ${lines.map((line, i) => html`<polyline class=${`line-${i}`}
        points=${line.values.map((v, at) => `${x(times[at]).toFixed(1)},${y(v).toFixed(1)}`).join(" ")} />`)}
    </svg>`}</figure>`;
}

// What a view says while it is not there.
export function Waiting({ view, empty }) {
  if (view.error) return html`<p class="bad" role="alert">${view.error}</p>`;
  if (view.data === null) return html`<p class="quiet">Loading…</p>`;
  return html`<p class="quiet">${empty}</p>`;
}

export const More = ({ count }) => count > 0 ? html`<p class="quiet">and ${count.toLocaleString()} more</p>` : null;
