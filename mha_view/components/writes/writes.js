// The heads' writes into one token, as strips that add up line by line and as bars for a few dimensions.

export default function ({ parentElement, setStateValue }) {
  const keep = memory(parentElement), feeds = ((globalThis.headroomFeeds ??= {}).writes ??= {});
  Object.assign(keep, { set: setStateValue, seen: null });
  const draw = () => {
    const theme = themeOf(parentElement.host);
    if (!feeds.data || (keep.seen === feeds.data && keep.drawn === theme + keep.width)) return;
    rebuild(parentElement, (root, theme, inks) => buildOrTable(root, { view: opened(feeds.data), keep, theme, inks, width: widthOf(parentElement) }));
    Object.assign(keep, { seen: feeds.data, drawn: theme + keep.width });
  };
  feeds.wake = () => { cancelAnimationFrame(keep.waking); keep.waking = requestAnimationFrame(draw); };
  draw();
  const stop = onWidth(parentElement, draw);
  return () => { stop(); feeds.wake = null; };
}

// Where the picture cannot be drawn, the same numbers stand as a table.
function buildOrTable(root, scene) {
  try {
    build(root, scene);
  } catch (error) {
    root.replaceChildren(el("p", { className: "text" }, `The picture cannot be drawn here (${error.message}); these are its numbers.`), tableOf(table(scene.view)));
  }
}

function opened(data) {
  const lines = data.lines.map((line) => {
    const [norm, cosine, share] = FLOAT(line.figures);
    return { ...line, norm, cosine, share, z: line.z ? FLOAT(line.z) : null, write: FLOAT(line.write), running: FLOAT(line.running) };
  });
  const rows = (text) => { const all = FLOAT(text), wide = data.dims.length; return lines.map((_, i) => [...all.subarray(i * wide, (i + 1) * wide)]); };
  const { writes, running, out, changed } = data.bars;
  const bars = { writes: rows(writes), running: rows(running), out: [...FLOAT(out)], changed: changed && [...FLOAT(changed)] };
  return { ...data, lines, bars, out: FLOAT(data.out), changed: data.changed && FLOAT(data.changed) };
}

const kvOf = (view, line) => Math.floor(line.heads[0] / view.perKv);
const percent = (share) => `${Math.round(100 * share) || 0} %`.replace("-", "\u2212");
const nameOf = (line) => (line.heads.length === 1 ? `head ${line.heads[0]}` : `${line.heads.length} more`);

function build(root, scene) {
  const { view, keep, theme, inks } = scene;
  const say = el("p", { className: "say num", "aria-live": "polite" });
  scene.say = (text) => { say.textContent = text; };
  scene.say("Point at a strip or a bar, or tab to a strip and use the arrow keys.");
  const mark = view.sum.ok ? "\u2713" : "\u2717 broken:";
  root.append(el("h3", { className: "title" }, `Concat meets W_O: what \u201c${view.token}\u201d receives from each head`),
    el("p", { className: "text" }, "Each piece of concat is multiplied with its own rows of W_O. The results are as wide as the model and add up, line by line, to the output."),
    lineGrid(scene),
    el("p", { className: view.sum.ok ? "check" : "check broken" }, `${mark} the ${view.heads} ${view.heads === 1 ? "write is" : "writes add up to"} the output: largest difference ${view.sum.deviation}; the shares sum to ${view.lines.reduce((sum, line) => sum + line.share, 0).toFixed(3)}`),
    ...(view.told ? [el("p", { className: "changed" }, view.told)] : []),
    el("h3", {}, view.dModel > view.dims.length ? `The same sum in the ${view.dims.length} dimensions where the output is largest` : "The same sum, dimension by dimension"),
    bars(scene), say, legend(view, theme, inks),
    el("p", { className: "caption" }, `${notice(view)} Click a cell above to choose another token.`),
    tools("headroom-writes", { svg: () => svgOf(scene), rows: () => table(view), recipe: { ...globalThis.headroomFeeds.flow?.place?.recipe, figure: "writes", token: view.token, off: view.off, swap: view.swap } }, keep.open, (open) => { keep.open = open; }));
}

function notice(view) {
  const best = view.lines.filter((line) => line.heads.length === 1).reduce((a, b) => (b.share > a.share ? b : a));
  return `Of all single heads, ${nameOf(best)} makes most of this output: ${percent(best.share)} along its direction. A negative share works against the sum.`;
}

function lineGrid(scene) {
  const { view, keep, width } = scene, tight = width < 760, figures = tight ? 126 : 178, room = width - 70 - figures - 96 - 20 - 48;
  const sizes = { z: room * 0.13, slice: room * 0.17, write: room * 0.38, running: room * 0.32 }, tall = view.lines.length > 8 ? 20 : 26;
  scene.sizes = { ...sizes, tall };
  const head = (text, title) => el("span", { className: "head", title }, text);
  const grid = el("div", { className: "lines", style: { gridTemplateColumns: `70px ${sizes.z}px 10px ${sizes.slice}px 10px ${sizes.write}px ${figures}px ${sizes.running}px 96px` } },
    head(""), head(tight ? "z" : `z, d_k = ${view.dk}`), head(""), head(tight ? "W_O" : "rows of W_O"), head(""), head(tight ? "writes" : `writes, d_model = ${view.dModel}`),
    el("span", { className: "numbers head" }, ...["norm", "cosine", "share"].map((text) => el("span", {}, text))), head("sum so far"), head(""));
  const change = (off, swap) => keep.set("change", { off, swap: swap[0], with: swap[1], at: Date.now() });
  view.lines.forEach((line) => grid.append(...lineParts(scene, line, change)));
  const full = (values, what) => [el("span", { className: "name" }, what), ...Array.from({ length: 4 }, () => el("span")), strip(scene, values, null, view.ranges.out, sizes.write, tall, what), el("span", { className: "numbers num" }, ""), el("span"), el("span")];
  grid.append(el("span", { className: "rule" }), ...full(view.out, "output"));
  if (view.changed) grid.append(...full(view.changed, "changed"));
  return grid;
}

function lineParts(scene, line, change) {
  const { view, keep } = scene, { z, slice, write, running, tall } = scene.sizes, kv = kvOf(view, line), alone = line.heads.length === 1, head = line.heads[0];
  const gone = alone && view.off === head, swapped = alone && view.swap.includes(head);
  const button = (text, pressed, action, title) => el("button", { className: "act", "aria-pressed": String(pressed), title, dataset: { focus: `${text}-${head}` }, onclick: action }, text);
  const pickSwap = () => {
    if (swapped) return change(view.off, [-1, -1]);
    if (keep.first === undefined || keep.first === head) { keep.first = keep.first === head ? undefined : head; scene.say(keep.first === undefined ? "No head is chosen." : `Head ${head}: now press swap at another head.`); return undefined; }
    const pair = [keep.first, head];
    keep.first = undefined;
    return change(view.off, pair);
  };
  return [
    el("span", { className: gone ? "name gone" : "name" }, el("span", { className: "swatch", style: { background: alone ? hueOf(kv, scene.theme) : scene.inks.other } }), nameOf(line)),
    alone ? strip(scene, line.z, kv, view.zRange, z, tall, `z of head ${head}`) : el("span"),
    el("span", { className: "sign" }, alone ? "\u00d7" : ""),
    alone ? sliceOf(scene, line, kv, slice, tall) : el("span"),
    el("span", { className: "sign" }, "="),
    strip(scene, line.write, alone ? kv : null, view.ranges.writes, write, tall, `${nameOf(line)} writes`),
    el("span", { className: "numbers num" }, el("span", {}, line.norm.toFixed(3)), el("span", {}, line.cosine.toFixed(2).replace("-", "\u2212")), el("span", {}, percent(line.share))),
    strip(scene, line.running, null, view.ranges.out, running, tall, `sum up to ${nameOf(line)}`),
    el("span", { className: "acts" }, alone ? button("off", gone, () => change(gone ? -1 : head, view.swap), gone ? "switch it on again" : `compute the layer without head ${head}`) : null,
      alone && view.heads > 1 ? button("swap", swapped || keep.first === head, pickSwap, "press at two heads: their slices of W_O change places") : null),
  ];
}

function sliceOf({ theme, inks }, { slice, heads }, kv, width, tall) {
  const raw = BYTES(slice.levels), levels = Float32Array.from(raw, (byte) => (byte > 127 ? byte - 256 : byte) / 127), canvas = sizedCanvas(width, tall), pen = canvas.getContext("2d");
  pen.imageSmoothingEnabled = false;
  pen.drawImage(bitmapOf({ values: levels, rows: slice.rows, cols: levels.length / slice.rows }, (value) => value, rampsFor(kv, theme, inks), null), 0, 0, width, tall);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `thumbnail of the rows of W_O that belong to head ${heads[0]}`);
  return canvas;
}

// From zero, one bar a line on top of the last; the output beside them; hollow where it was computed anew.
function barPlan({ view, width }) {
  const tall = 190, all = [...view.bars.running.flat(), ...view.bars.out, ...(view.bars.changed ?? []), 0], top = Math.max(...all), low = Math.min(...all), span = top - low || 1;
  const step = width / view.dims.length, count = view.lines.length + (view.bars.changed ? 2 : 1), bar = Math.min(24, (step - 22) / count);
  const y = (value) => 18 + ((top - value) / span) * (tall - 36);
  return { tall: tall + 22, step, bar, y, left: (i) => i * step + (step - bar * count) / 2 };
}

function eachBar(scene, visit) {
  const { view, theme, inks } = scene, plan = barPlan(scene);
  view.dims.forEach((dim, d) => {
    const left = plan.left(d), last = view.lines.length;
    view.lines.forEach((line, i) => visit({ dim, x: left + i * plan.bar, from: i ? view.bars.running[i - 1][d] : 0, to: view.bars.running[i][d], fill: line.heads.length === 1 ? hueOf(kvOf(view, line), theme) : inks.other, text: `${nameOf(line)} adds ${num(view.bars.writes[i][d])}` }, plan));
    visit({ dim, x: left + last * plan.bar, from: 0, to: view.bars.out[d], fill: inks.ink, total: true, text: `output ${num(view.bars.out[d])}` }, plan);
    if (view.bars.changed) visit({ dim, x: left + (last + 1) * plan.bar, from: 0, to: view.bars.changed[d], hollow: inks.ink, text: `changed output ${num(view.bars.changed[d])}` }, plan);
  });
  return plan;
}

function bars(scene) {
  const { width, inks, say } = scene, plan = barPlan(scene), canvas = sizedCanvas(width, plan.tall), pen = canvas.getContext("2d"), places = [];
  pen.textAlign = "center";
  eachBar(scene, (bar) => {
    const [y1, y2] = [plan.y(Math.max(bar.from, bar.to)), plan.y(Math.min(bar.from, bar.to))];
    places.push({ ...bar, y1, y2 });
    if (bar.hollow) { pen.strokeStyle = bar.hollow; pen.strokeRect(bar.x + 1, y1, plan.bar - 3, Math.max(1, y2 - y1)); return; }
    pen.fillStyle = bar.fill;
    pen.fillRect(bar.x, y1, Math.max(1, plan.bar - 1.5), Math.max(1, y2 - y1));
    pen.fillStyle = inks.muted;
    if (!bar.total) pen.fillRect(bar.x, plan.y(bar.to), plan.bar, 0.8);
    if (!bar.total) return;
    pen.font = "600 11px sans-serif";
    pen.fillStyle = inks.ink;
    pen.fillText(short(bar.to), bar.x + plan.bar / 2, bar.to >= 0 ? y1 - 4 : y2 + 12);
  });
  pen.font = "11px sans-serif";
  scene.view.dims.forEach((dim, d) => {
    pen.fillStyle = inks.line;
    pen.fillRect(d * plan.step + 6, plan.y(0), plan.step - 12, 1);
    pen.fillStyle = inks.muted;
    pen.fillText(`dimension ${dim}`, (d + 0.5) * plan.step, plan.tall - 4, plan.step);
  });
  canvas.onmousemove = ({ offsetX }) => {
    const bar = places.find(({ x }) => offsetX >= x && offsetX < x + plan.bar);
    if (bar) say(`dimension ${bar.dim}: ${bar.text}`);
  };
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "the writes of the heads as bars that add up to the output; the numbers stand in the table");
  return canvas;
}

function legend(view, theme, inks) {
  const hue = hueOf(kvOf(view, view.lines[0]), theme);
  return el("div", { className: "legend" }, signedLegend(inks, hue, view.ranges.writes, "what a head writes"), signedLegend(inks, inks.stream, view.ranges.out, "sum and output"),
    legendSwatch(inks.ink, "output"), view.changed ? el("span", {}, "hollow: computed anew") : null);
}

function table(view) {
  return [["writes", "norm", "cosine with the output", "share", ...view.dims.map((dim) => `dimension ${dim}`)],
    ...view.lines.map((line, i) => [nameOf(line), line.norm, line.cosine, line.share, ...view.bars.writes[i]]), ["output", view.length, 1, 1, ...view.bars.out],
    ...(view.bars.changed ? [["changed output", "", "", "", ...view.bars.changed]] : [])];
}

function svgOf(scene) {
  const { view, inks, width } = scene, parts = [], plan = eachBar(scene, (bar, at) => {
    const [y1, y2] = [at.y(Math.max(bar.from, bar.to)), at.y(Math.min(bar.from, bar.to))];
    parts.push(svgRect(bar.x.toFixed(1), (y1 + 30).toFixed(1), Math.max(1, at.bar - 1.5).toFixed(1), Math.max(1, y2 - y1).toFixed(1), bar.hollow ? "none" : bar.fill, bar.hollow ? `stroke="${bar.hollow}"` : ""));
    if (bar.total) parts.push(svgText(bar.x + at.bar / 2, (bar.to >= 0 ? y1 - 4 : y2 + 12) + 30, short(bar.to), { size: 11, ink: inks.ink, anchor: "middle" }));
  });
  view.dims.forEach((dim, d) => parts.push(svgText((d + 0.5) * plan.step, plan.tall + 26, `dimension ${dim}`, { size: 11, ink: inks.muted, anchor: "middle" })));
  parts.push(svgText(10, 20, `What \u201c${view.token}\u201d receives from each head; largest difference of the sum ${view.sum.deviation}`, { size: 13, weight: 600, ink: inks.ink }));
  return svgDocument(width, plan.tall + 40, inks, parts.join(""));
}
