// One pattern, large: rows look, columns are looked at. Hover, keys and the sorted row stay in the browser.

const ROWS_IN_BARS = 12;

export default function ({ data, parentElement, setStateValue }) {
  const keep = memory(parentElement);
  const view = { ...data, weights: FLOAT(data.weights), visible: BYTES(data.visible), n: data.labels.length };
  if (keep.stamp !== data.stamp) Object.assign(keep, { stamp: data.stamp, row: data.picked[0], key: data.picked[1] });
  const draw = () => rebuild(parentElement, (root, theme, inks) => build(root, theme, inks, view, keep, setStateValue, draw, widthOf(parentElement)));
  draw();
  return onWidth(parentElement, draw);
}

const at = (view, row, key) => view.weights[row * view.n + key];
const seen = (view, row, key) => view.visible[row * view.n + key] === 1;

function build(root, theme, inks, view, keep, setStateValue, draw, width) {
  const wide = width >= 560 && view.bars;
  const cols = el("div", { className: wide ? "cols" : "cols narrow" });
  root.append(cols);
  const left = el("div"), say = el("p", { className: "say", "aria-live": "polite" });
  const title = el("h3", {}, view.title);
  left.append(title);
  cols.append(left);
  const plan = layOut(view, wide ? width - 260 : width);
  const pick = (row, key) => {
    keep.row = row;
    keep.key = key;
    if (view.clickable) setStateValue("picked", { row: row + view.offset, key: key + view.offset, at: Date.now() });
    draw();
  };
  left.append(mapOf(view, keep, plan, theme, inks, say, pick), say);
  left.append(legend(view, theme, inks), el("p", { className: "caption" }, view.caption));
  const rows = () => [["looks \\ at", ...view.labels], ...view.labels.map((label, r) => [label, ...view.labels.map((_, k) => (seen(view, r, k) ? at(view, r, k) : ""))])];
  left.append(tools(view.file, { svg: () => svgOf(view, keep, theme, inks), rows, recipe: view.recipe }, keep.open, (open) => { keep.open = open; }));
  if (view.bars && view.n > 0) cols.append(barsOf(view, keep, theme, pick));
}

function layOut(view, width) {
  const longest = Math.max(...view.labels.map((label) => label.length), 2);
  const side = Math.min(92, 10 + 7 * Math.min(longest, 12)), top = Math.min(78, 14 + 5.2 * Math.min(longest, 12));
  const cell = Math.max(3, Math.min(30, Math.floor((width - side - 34) / Math.max(view.n, 1))));
  return { side, top, cell, gap: cell >= 10 ? 2 : cell >= 6 ? 1 : 0, every: Math.ceil(13 / cell), size: cell * view.n };
}

function mapOf(view, keep, plan, theme, inks, say, pick) {
  const plane = el("div", { className: "plane", style: { width: `${plan.side + plan.size + 40}px`, height: `${plan.top + plan.size + 2}px` } });
  const canvas = sizedCanvas(plan.size, plan.size);
  Object.assign(canvas.style, { left: `${plan.side}px`, top: `${plan.top}px` });
  paint(canvas.getContext("2d"), view, plan, theme, inks);
  plane.append(canvas);
  nameAxes(plane, view, keep, plan, pick);
  const frame = (name) => plane.appendChild(el("div", { className: `frame ${name}` }));
  const rowFrame = frame("row"), cellFrame = frame("cell"), cursor = frame("cursor");
  const place = (node, row, key, width) => Object.assign(node.style, {
    display: row === undefined || row < 0 || key < 0 ? "none" : "block", left: `${plan.side + key * plan.cell - 1}px`, top: `${plan.top + row * plan.cell - 1}px`,
    width: `${width * plan.cell + 2 - plan.gap}px`, height: `${plan.cell + 2 - plan.gap}px`,
  });
  place(rowFrame, keep.row, 0, view.n);
  place(cellFrame, keep.row, keep.key, 1);
  place(cursor, undefined, 0, 1);
  const tell = (row, key) => { say.textContent = sentence(view, row, key); };
  if (keep.row >= 0 && keep.key >= 0) tell(keep.row, keep.key);
  plane.append(gridOf(view, keep, plan, { tell, pick, cursor: (row, key) => place(cursor, row, key, 1) }));
  return el("div", { className: "map" }, plane);
}

function sentence(view, row, key) {
  const from = view.labels[row], to = view.labels[key];
  if (!seen(view, row, key)) return `\u201c${from}\u201d may not look at \u201c${to}\u201d: hidden by the mask.`;
  const weight = at(view, row, key);
  if (view.kind === "difference") {
    const who = weight > 0 ? view.names[0] : view.names[1];
    return `\u201c${from}\u201d to \u201c${to}\u201d: ${weight === 0 ? "no difference" : `${who} looks more, by ${digits(Math.abs(weight))}`}.`;
  }
  return `\u201c${from}\u201d looks at \u201c${to}\u201d: ${digits(weight)}`;
}

// The surface that is pointed at and walked over with the arrow keys.
function gridOf(view, keep, plan, { tell, pick, cursor }) {
  let row = Math.max(keep.row, 0), key = Math.max(keep.key, 0);
  const grid = el("div", {
    className: "grid", tabIndex: 0, role: "application", dataset: { focus: "grid" },
    "aria-label": `${view.title}: arrow keys move over the cells, Enter opens the arithmetic of a cell`,
    style: { left: `${plan.side}px`, top: `${plan.top}px`, width: `${plan.size}px`, height: `${plan.size}px` },
  });
  const under = (event) => {
    const box = grid.getBoundingClientRect(), limit = view.n - 1;
    return [Math.floor((event.clientY - box.top) / plan.cell), Math.floor((event.clientX - box.left) / plan.cell)].map((i) => Math.max(0, Math.min(limit, i)));
  };
  grid.onmousemove = (event) => { [row, key] = under(event); tell(row, key); cursor(row, key); };
  grid.onmouseleave = () => { cursor(undefined, 0); if (keep.row >= 0 && keep.key >= 0) { [row, key] = [keep.row, keep.key]; tell(row, key); } };
  grid.onclick = (event) => pick(...under(event));
  const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  grid.onkeydown = (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pick(row, key); return; }
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    row = Math.max(0, Math.min(view.n - 1, row + move[0]));
    key = Math.max(0, Math.min(view.n - 1, key + move[1]));
    tell(row, key);
    cursor(row, key);
  };
  return grid;
}

function nameAxes(plane, view, keep, plan, pick) {
  const unknown = (i) => view.unknown.includes(i);
  view.labels.forEach((label, i) => {
    const crowded = plan.every > 1 && i !== keep.row && Math.abs(i - keep.row) < plan.every;
    if ((i % plan.every || crowded) && i !== keep.row) return;
    const line = Math.max(plan.cell, 13), top = plan.top + i * plan.cell + (plan.cell - line) / 2;
    plane.append(el("button", {
      className: `rowname${i === keep.row ? " chosen" : ""}${unknown(i) ? " unknown" : ""}`, title: unknown(i) ? `${label}: not known, read as <unk>` : label, tabIndex: i === keep.row ? 0 : -1, dataset: { focus: `row-${i}` },
      "aria-label": `what \u201c${label}\u201d looks at`, onclick: () => pick(i, topKey(view, i)),
      style: { top: `${top}px`, height: `${line}px`, lineHeight: `${line}px`, width: `${plan.side - 8}px` },
    }, label));
    const left = plan.side + (i + 0.5) * plan.cell;
    const className = `keyname${i === keep.key && keep.row >= 0 ? " chosen" : ""}${unknown(i) ? " unknown" : ""}`;
    plane.append(el("span", { className, title: label, style: { left: `${left}px`, top: `${plan.top - 20}px` } }, label));
  });
}

function topKey(view, row) {
  let best = 0;
  for (let key = 1; key < view.n; key++) if (Math.abs(at(view, row, key)) > Math.abs(at(view, row, best))) best = key;
  return best;
}

// The colours a cell can have, in 256 steps from empty to full; mixing them cell by cell takes longer than painting.
function rampsOf(view, theme, inks) {
  const ramp = (full) => Array.from({ length: 256 }, (_, step) => mix(inks.tile, full, step / 255));
  return [ramp(hueOf(view.kv, theme)), view.kind === "difference" ? ramp(inks.other) : null];
}

function colourOf(view, row, key, rowMax, [ramp, otherRamp]) {
  const weight = at(view, row, key);
  const step = (full) => Math.round(255 * Math.max(0, Math.min(1, full)));
  if (view.kind === "difference") return (weight >= 0 ? ramp : otherRamp)[step(Math.abs(weight) / view.range)];
  return ramp[step(fullness(weight, view.scale, rowMax) ?? 0)];
}

// Calls back once per cell with its colour ("hidden" under the mask), and whether it lies below a log scale.
function eachCell(view, theme, inks, visit) {
  const ramps = rampsOf(view, theme, inks);
  for (let row = 0; row < view.n; row++) {
    let rowMax = 0;
    for (let key = 0; key < view.n; key++) rowMax = Math.max(rowMax, at(view, row, key));
    for (let key = 0; key < view.n; key++) {
      if (!seen(view, row, key)) visit(row, key, "hidden", false);
      else visit(row, key, colourOf(view, row, key, rowMax, ramps), view.scale === "log" && view.kind !== "difference" && at(view, row, key) > 0 && at(view, row, key) < PALETTE.logFloor);
    }
  }
}

function paint(pen, view, plan, theme, inks) {
  const hatch = hatchPattern(pen, inks);
  eachCell(view, theme, inks, (row, key, colour, faint) => {
    pen.fillStyle = colour === "hidden" ? hatch : colour;
    const gap = colour === "hidden" ? 0 : plan.gap;
    pen.fillRect(key * plan.cell, row * plan.cell, plan.cell - gap, plan.cell - gap);
    if (faint && plan.cell >= 6) {
      pen.fillStyle = inks.muted;
      pen.fillRect(key * plan.cell + plan.cell / 2 - 2, row * plan.cell + plan.cell / 2 - 2, 2, 2);
    }
  });
}

function barsOf(view, keep, theme, pick) {
  const row = Math.max(keep.row, 0), keys = view.labels.map((_, key) => key).filter((key) => seen(view, row, key));
  keys.sort((a, b) => at(view, row, b) - at(view, row, a) || a - b);
  const shown = keys.slice(0, ROWS_IN_BARS), rest = keys.slice(ROWS_IN_BARS);
  const bar = (key) => el("button", {
    className: "bar", dataset: { focus: `bar-${key}` }, "aria-pressed": String(key === keep.key), onclick: () => pick(row, key),
    title: "show how this weight comes about",
  }, el("span", { className: "name" }, view.labels[key]),
  el("span", { className: "track" }, el("span", { className: "fill", style: { display: "block", width: `${100 * Math.min(1, at(view, row, key))}%`, background: hueOf(view.kv, theme) } })),
  el("span", { className: "value num" }, digits(at(view, row, key))));
  const left = rest.reduce((sum, key) => sum + at(view, row, key), 0);
  const note = keys.length === 0 ? "This token may look at nothing." : rest.length ? `and ${rest.length} more with ${digits(left)} in all` : "";
  return el("div", {}, el("h3", {}, `\u201c${view.labels[row]}\u201d looks at`), el("div", { className: "bars" }, shown.map(bar)), el("p", { className: "caption" }, note));
}

function legend(view, theme, inks) {
  const hue = hueOf(view.kv, theme), parts = [];
  if (view.kind === "difference") {
    const most = digits(view.range);
    parts.push(legendRamp(inks.tile, hue, "0", most, `${view.names[0]} looks more`), legendRamp(inks.tile, inks.other, "0", most, `${view.names[1]} looks more`));
  } else parts.push(legendRamp(inks.tile, hue, ...view.legend));
  if (view.scale === "log" && view.kind !== "difference") parts.push(el("span", {}, `a dot: above 0, below ${PALETTE.logFloor}`));
  if (view.unknown.length) parts.push(el("span", {}, el("span", { className: "unknown" }, "dotted"), ": a word the model does not know"));
  if (view.visible.some((bit) => bit === 0)) parts.push(legendSwatch(hatchCss(inks), "hidden by the mask"));
  return el("div", { className: "legend" }, parts);
}

function svgOf(view, keep, theme, inks) {
  const cell = Math.max(6, Math.min(26, Math.floor(900 / Math.max(view.n, 1)))), side = 100, top = 110, parts = [];
  eachCell(view, theme, inks, (row, key, colour) => {
    parts.push(svgRect(side + key * cell, top + row * cell, cell - 1, cell - 1, colour === "hidden" ? "url(#hidden)" : colour));
  });
  view.labels.forEach((label, i) => {
    const size = Math.min(12, cell + 2), chosen = i === keep.row ? 700 : 400;
    parts.push(svgText(side - 6, top + (i + 0.75) * cell, label, { size, ink: inks.ink, anchor: "end", weight: chosen }));
    parts.push(svgText(side + (i + 0.6) * cell, top - 6, label, { size, ink: inks.ink, rotate: -48 }));
  });
  if (keep.row >= 0) parts.push(svgRect(side - 1, top + keep.row * cell - 1, view.n * cell + 1, cell + 1, "none", `stroke="${inks.ink}"`));
  const range = view.kind === "difference" ? `-${digits(view.range)} to ${digits(view.range)}` : `${view.legend[0]} to ${view.legend[1]}`;
  const foot = top + view.n * cell + 20;
  parts.push(svgText(10, 20, view.title, { size: 14, ink: inks.ink, weight: 600 }), svgText(10, foot, `Rows look, columns are looked at. Scale: ${range} ${view.legend[2]}.`, { ink: inks.muted }));
  return svgDocument(Math.max(side + view.n * cell + 60, 420), foot + 14, inks, parts.join(""));
}
