// The cluster as tiles on a canvas: zones, racks, nodes; pods as slices where there is room for them.

const GAP = 2, HEAD = 20;

// Where each node is drawn, for a width: tiles and headings, and the height of all. Racks stand side by
// side as blocks, each about as wide as high, in the order of their zones; zones without racks too.
export function lay(nodes, width) {
  const zones = new Map();
  for (const node of nodes) {
    const racks = zones.get(node.zone) || new Map();
    zones.set(node.zone, racks);
    racks.set(node.rack, [...(racks.get(node.rack) || []), node]);
  }
  const room = (width * Math.max(320, width * 0.4)) / Math.max(1, nodes.length);
  const size = Math.max(7, Math.min(110, Math.floor(Math.sqrt(room) * 0.8)));
  const most = Math.max(1, Math.floor(width / size));
  const tiles = [], heads = [];
  let x = 0, y = 0, deepest = 0;
  for (const [zone, racks] of [...zones].sort((a, b) => order(a[0], b[0]))) {
    for (const [rack, some] of [...racks].sort((a, b) => order(a[0], b[0]))) {
      const alone = zones.size === 1 && racks.size === 1;
      const across = alone ? most : Math.min(most, Math.ceil(Math.sqrt(some.length * 1.3)));
      if (x > 0 && x + across * size > width) {
        y += deepest;
        x = deepest = 0;
      }
      const text = [zone || "no zone", rack].filter(Boolean).join(", ");
      heads.push({ text: fit(`${text} (${some.length})`, Math.max(across * size, 60)), x: x + 2, y: y + 14 });
      some.sort((a, b) => order(a.name, b.name)).forEach((node, at) => tiles.push({
        node, x: x + (at % across) * size, y: y + HEAD + Math.floor(at / across) * size, size: size - GAP,
      }));
      deepest = Math.max(deepest, HEAD + Math.ceil(some.length / across) * size + 10);
      x += across * size + 14;
    }
  }
  return { tiles, heads, height: y + deepest };
}

// The tile next to another in the direction of a key; the same where there is none.
export function beside(tiles, from, key) {
  const [dx, dy] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[key];
  let best = from, least = Infinity;
  for (const tile of tiles) {
    const x = tile.x - from.x, y = tile.y - from.y;
    const ahead = x * dx + y * dy, aside = Math.abs(x * dy) + Math.abs(y * dx);
    if (ahead > 0 && ahead + 3 * aside < least) {
      least = ahead + 3 * aside;
      best = tile;
    }
  }
  return best;
}

function order(a, b) {
  return a.localeCompare(b, undefined, { numeric: true });
}

export function share(node, resource) {
  const [used, all] = node.amounts[resource] || [0, 0];
  return all ? used / all : 0;
}

export function paint(canvas, plan, resource, chosen) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(plan.height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(plan.height * ratio);
    canvas.style.height = `${plan.height}px`;
  }
  const draw = canvas.getContext("2d");
  draw.setTransform(ratio, 0, 0, ratio, 0, 0);
  draw.clearRect(0, 0, width, plan.height);
  const empty = rgb(colour("empty")), full = rgb(colour("full"));
  const colours = Object.fromEntries(["pod", "user", "gang", "vm", "devices", "placeholder", "off", "over", "text", "panel", "quiet", "accent"].map((n) => [n, colour(n)]));
  draw.font = "12px system-ui, sans-serif";
  draw.fillStyle = colours.quiet;
  for (const head of plan.heads) draw.fillText(head.text, head.x, head.y);
  for (const { node, x, y, size } of plan.tiles) {
    const part = share(node, resource);
    draw.fillStyle = node.off ? colours.off : part > 1 ? colours.over : mix(empty, full, part);
    draw.fillRect(x, y, size, size);
    if (size >= 36) slices(draw, node, x, y, size, resource, colours);
    if (size >= 60) {
      draw.fillStyle = !node.off && part > 0.5 ? colours.panel : colours.text;
      draw.fillText(fit(node.name, size), x + 3, y + 12);
    }
    if (node === chosen) {
      draw.strokeStyle = colours.accent;
      draw.lineWidth = 2;
      draw.strokeRect(x - 1, y - 1, size + 2, size + 2);
    }
  }
}

// Pods from the bottom up, each as high as its share of the node.
function slices(draw, node, x, y, size, resource, colours) {
  const all = (node.amounts[resource] || [0, 0])[1];
  const at = resource === "memory" ? 3 : 2;
  draw.fillStyle = colours.placeholder;
  let top = y + size;
  const room = size - (size >= 60 ? 16 : 0);
  for (const pod of node.pods) {
    const part = resource === "pods" || !all ? 1 / Math.max(all, node.pods.length, 1) : pod[at] / all;
    const high = Math.max(1, part * room);
    top -= high;
    if (top < y) break;
    draw.fillStyle = colours[pod[1]] || colours.pod;
    draw.fillRect(x + 2, top, size - 4, Math.max(0.5, high - 0.5));
  }
}

function fit(text, size) {
  const most = Math.floor(size / 7);
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

function rgb(hex) {
  const n = parseInt(hex.slice(1), 16);
  return [n >> 16, (n >> 8) & 255, n & 255];
}

function mix(a, b, part) {
  const p = Math.max(0, Math.min(1, part));
  return `rgb(${a.map((v, i) => Math.round(v + (b[i] - v) * p)).join(",")})`;
}
