// Rates and latencies over time.
import { html } from "./preact.js";
import { store } from "./store.js";
import { Chart, number } from "./ui.js";
import { Cards } from "./cluster.js";

const OUTCOMES = ["placed", "unschedulable", "error"];

export function Rates() {
  const past = store.history, times = past.map((one) => one.at);
  const line = (name, key = name) => ({ name, values: past.map((one) => one[key] || 0) });
  return html`<${Cards} />
    <div class="charts">
      <${Chart} title="Bound" unit="pods per second" times=${times} lines=${[line("bound")]} />
      <${Chart} title="Attempts by outcome" unit="per second" times=${times} lines=${OUTCOMES.map((name) => line(name))} />
      <${Chart} title="Arrival to bound" unit="seconds, of the last 2,000 pods" times=${times} lines=${[line("p50"), line("p99")]} />
      <${Chart} title="Pending" unit="pods" times=${times} lines=${[line("waiting")]} />
      <${Chart} title="Events processed" unit="per second" times=${times} lines=${[line("events")]} />
    </div>
    <p class="quiet">Since the start: ${Object.entries(store.counts).map(([name, n]) => `${number(n)} ${name}`).join(", ") || "nothing"}.</p>`;
}
