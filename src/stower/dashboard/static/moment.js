// Of a recording: which moment is shown, and how to get to another.
import { html, useEffect, useState } from "./preact.js";
import { goTo, store } from "./store.js";
import { clock } from "./ui.js";

export function Moment() {
  const about = store.standing.recording;
  const [held, hold] = useState(null);
  const [plays, play] = useState(false);
  useEffect(() => {
    if (!plays) return undefined;
    const timer = setInterval(() => {
      const now = store.standing.recording;
      if (now.at >= now.seconds) play(false);
      else if (now.at >= now.wanted) goTo(Math.min(now.seconds, now.at + Math.max(0.5, now.seconds / 120)));
    }, 500);
    return () => clearInterval(timer);
  }, [plays]);
  useEffect(() => { if (about && held !== null && Math.abs(about.wanted - held) < 0.01) hold(null); });
  if (!about) return null;
  const at = held === null ? about.wanted : held;
  const is_there = Math.abs(about.at - about.wanted) < 0.001;
  return html`<div class="moment">
    <button onClick=${() => { if (!plays && about.at >= about.seconds) goTo(0); play(!plays); }}>${plays ? "Pause" : "Play"}</button>
    <input type="range" id="moment" min="0" max=${about.seconds} step=${Math.max(0.001, about.seconds / 1000)} value=${at}
      aria-label="Time in the recording, in seconds since its start"
      onInput=${(e) => { hold(Number(e.target.value)); goTo(Number(e.target.value)); }} />
    <span role="status" id="at">${clock(about.beganNs + at * 1e9)} <span class="quiet">${at.toFixed(1)} of ${about.seconds.toFixed(1)} s
      ${is_there ? "" : `, replayed to ${about.at.toFixed(1)} s`}</span></span></div>`;
}
