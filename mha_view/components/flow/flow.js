// One layer, stage by stage: every cell a number of the trace. Steps, pointing and arithmetic stay in the browser.

const LANES = 8, BIG = 250, FLOOR = 20, GAP = 18, MOVE = 380;
const ALIAS = { Q: "q", K: "k", V: "v", concat: "z", masked: "scores" };
const LANE = new Set(["q", "k", "v", "q_rot", "k_rot", "dots", "scores", "mask", "masked", "pattern", "z"]);
const BORN = { Q: "x", K: "x", V: "x", q: "Q", k: "K", v: "V", q_rot: "q", k_rot: "k", dots: "q_rot", scores: "dots", masked: "scores", pattern: "masked", z: "pattern", concat: "z", out: "concat", after: "before" };
const STEP_KEYS = { ArrowRight: 1, PageDown: 1, ArrowLeft: -1, PageUp: -1 };
const SQUARE = new Set(["dots", "scores", "mask", "masked", "pattern"]);

export default function ({ data, parentElement, setStateValue }) {
  const keep = memory(parentElement), feeds = ((globalThis.headroomFeeds ??= {}).flow ??= {});
  Object.assign(keep, { words: data, set: setStateValue, seen: null });
  feeds.wake = () => { cancelAnimationFrame(keep.waking); keep.waking = requestAnimationFrame(() => show(parentElement, keep, feeds)); };
  show(parentElement, keep, feeds);
  const stop = onWidth(parentElement, () => { Object.assign(keep, { from: null, seen: null }); show(parentElement, keep, feeds); });
  return () => { stop(); clearTimeout(keep.timer); cancelAnimationFrame(keep.frame); feeds.wake = null; };
}

// Draw what the feeds hold, if all of it is here and something in it is new.
function show(parentElement, keep, feeds) {
  const { numbers, place } = feeds, theme = themeOf(parentElement.host);
  if (!numbers || !place || numbers.key !== place.key || numbers.limits.step !== keep.words.stages.length) return;
  const seen = [numbers, place, feeds.weights, theme];
  if (keep.seen?.every((part, i) => part === seen[i])) return;
  keep.seen = seen;
  adopt(keep, numbers, place);
  if (keep.numbers !== numbers) Object.assign(keep, { numbers, store: unpacked(numbers.blobs), angles: FLOAT(numbers.angles) });
  if (feeds.weights && keep.weights?.key !== feeds.weights.key) keep.weights = { key: feeds.weights.key, ...unpacked(feeds.weights.blobs) };
  const weights = keep.weights?.key === place.weightsKey ? keep.weights : {};
  const view = { ...keep.words, ...numbers, ...place, angles: keep.angles, store: { ...keep.store, ...weights } };
  const report = (wait) => {
    clearTimeout(keep.timer);
    keep.timer = setTimeout(() => {
      keep.timer = null;
      keep.set("at", { ...keep.at, zoom: keep.zoom, have: keep.weights?.key ?? "" });
    }, wait);
  };
  const go = (step) => {
    if (!view.stages[step] || step === keep.at.step) return;
    Object.assign(keep, { cell: null, moving: true });
    keep.at.step = step;
    draw();
    report(stageLacks(view, view.stages[step]) ? 0 : 500);
  };
  const draw = () => {
    const root = rebuild(parentElement, (root, theme, inks) => build(root, { view, keep, theme, inks, report, draw, go, width: widthOf(parentElement) }));
    root.onkeydown = (event) => {
      const by = STEP_KEYS[event.key], inCells = event.target.classList.contains("cells");
      if (!by || (inCells && event.key.startsWith("Arrow"))) return;
      event.preventDefault();
      go(keep.at.step + by);
    };
  };
  draw();
  // A page that was left and opened again may have lost the weights that the server believes to be here.
  if (stageLacks(view, view.stages[keep.at.step]) && place.sentWeights) report(0);
}

// Where one stands is the browser's own, until the server says something new.
function adopt(keep, numbers, place) {
  const said = JSON.stringify([place.at, place.key]);
  if (!keep.at || (keep.said !== said && !keep.timer)) keep.at = { ...place.at };
  keep.said = said;
  for (const [name, count] of Object.entries(numbers.limits)) keep.at[name] = Math.max(0, Math.min(keep.at[name], count - 1));
}

function unpacked(blobs) {
  return Object.fromEntries(Object.entries(blobs).map(([name, blob]) => [name, { ...blob, all: blob.all && FLOAT(blob.all), one: blob.one && FLOAT(blob.one), pool: blob.pool && FLOAT(blob.pool) }]));
}

const base = (name) => ALIAS[name] ?? name;
const about = (view, name) => view.matrices[base(name)];

const blobOf = (view, name) => view.store[base(name)];

// The exact numbers of one head's matrix, or null where only a thumbnail was sent.
function exact(view, name, head) {
  const blob = blobOf(view, name), { rows, cols } = about(view, name);
  if (blob?.all) return blob.all.subarray(head * rows * cols, (head + 1) * rows * cols);
  return blob?.one && blob.head === head ? blob.one : null;
}

function valueAt(view, name, head, row, col) {
  if (name === "mask") return hidden(view, row, col) ? 0 : 1;
  const values = exact(view, name, head), { cols } = about(view, name);
  if (values) return values[row * cols + col];
  const zoom = view.zoom;
  if (zoom?.name !== base(name) || zoom.head !== head) return null;
  const r = row - zoom.row, c = col - zoom.col;
  return r >= 0 && r < zoom.rows && c >= 0 && c < zoom.cols ? zoom.values[r * zoom.cols + c] : null;
}

const hidden = (view, row, key) => view.mask[row * view.labels.length + key] === "0";
const kvOf = (view, name, head) => ({ query: Math.floor(head / view.perKv), kv: head, none: null })[about(view, name).heads === 1 && about(view, name).kind === "none" ? "none" : about(view, name).kind];

// --- where everything stands ------------------------------------------------------------------------------------------

function laneHeads(view, keep) {
  const first = Math.floor(keep.at.head / LANES) * LANES;
  return Array.from({ length: Math.min(LANES, view.heads - first) }, (_, i) => first + i);
}

function layOut({ view, keep, width }) {
  const stage = view.stages[keep.at.step], n = view.labels.length, heads = laneHeads(view, keep);
  const inLanes = stage.columns.some((names) => LANE.has(names[0]));
  const left = inLanes ? 142 : 84, top = 44;
  const big = Math.max(34, Math.min(BIG, n * 42));
  const small = heads.length > 1 ? Math.min(big, Math.max(FLOOR, (430 - big) / (heads.length - 1) - GAP)) : big;
  const lanes = [];
  let y = top;
  for (const head of heads) {
    const h = head === keep.at.head ? big : small;
    lanes.push({ head, y, h, mid: y + h / 2 });
    y += h + GAP;
  }
  const stacked = Math.max(...stage.columns.map((names) => names.length));
  const height = inLanes ? y : top + (stacked > 1 ? 410 : Math.min(300, Math.max(...stage.columns.flat().map((name) => tallOf(view, name)))) + 8);
  const gaps = stage.columns.slice(1).map((_, i) => (!stage.signs[i] ? 30 : stage.signs[i].length > 2 ? 62 : Math.min(62, width / 16)));
  const room = width - left - 8 - gaps.reduce((sum, gap) => sum + gap, 0);
  const natural = stage.columns.map((names) => Math.max(...names.map((name) => naturalWidth(view, name, names.length, big / n, height - top, stage.columns.length === 1))));
  const shrink = Math.min(1, room / natural.reduce((sum, w) => sum + w, 0));
  const plan = { lanes, left, top, height: height + 10, inLanes, blocks: [], signs: [], stage };
  let x = left;
  stage.columns.forEach((names, i) => {
    const w = Math.max(22, natural[i] * shrink);
    names.forEach((name, at) => place(plan, view, keep, name, x, w, names.length, at));
    if (i < gaps.length) plan.signs.push({ x: x + w + gaps[i] / 2, y: inLanes ? lanes.find((lane) => lane.head === keep.at.head).mid : (top + height) / 2, text: stage.signs[i] });
    x += w + (gaps[i] ?? 0);
  });
  return plan;
}

// Rows of a matrix that stands by itself, W_O with all its slices.
const rowsOf = (view, name) => about(view, name).rows * (name === "W_O" ? about(view, name).heads : 1);
const tallOf = (view, name) => rowsOf(view, name) * 28;

function naturalWidth(view, name, stacked, cell, height, alone) {
  const { cols, heads } = about(view, name);
  if (LANE.has(name)) return SQUARE.has(name) ? Math.max(100, Math.min(cols * cell, BIG + 20)) : Math.max(60, Math.min(cols * Math.max(Math.min(cell, 34), 10), 330));
  const all = name === "W_O" ? cols : cols * heads;
  const side = Math.min(40, Math.max(3, (height / stacked - 36) / rowsOf(view, name)));
  return Math.max(48, Math.min(all * side, stacked > 1 ? 330 : alone ? 1000 : 430));
}

function place(plan, view, keep, name, x, w, stacked, index) {
  const { heads } = about(view, name), add = (head, y, h, left, wide, big) => plan.blocks.push({ id: `${name}/${head}`, name, head, x: left, y, w: wide, h, big });
  if (LANE.has(name)) {
    if (heads === 1 && about(view, name).kind === "none") {
      const lane = plan.lanes.find(({ head }) => head === keep.at.head);
      return add(0, lane.y, lane.h, x, w, true);
    }
    if (about(view, name).kind === "query") return plan.lanes.forEach((lane) => add(lane.head, lane.y, lane.h, x, w, lane.head === keep.at.head));
    return sharedPlaces(plan, view, keep).forEach(({ kv, y, h, big }) => add(kv, y, h, x, w, big));
  }
  const total = rowsOf(view, name), share = (plan.height - plan.top - 10) / stacked;
  const h = Math.max(20, Math.min(total * 28, share - (stacked > 1 ? 40 : 0), stacked > 1 ? 999 : 320));
  const y = plan.top + index * share + (stacked > 1 ? 0 : plan.inLanes ? Math.max(0, (share - h) / 2) : 0);
  for (let head = 0; head < heads; head++) {
    if (name === "W_O") add(head, y + (head * h) / heads, h / heads, x, w, head === 0);
    else add(head, y, h, x + (head * w) / heads, w / heads, head === 0);
  }
}

// A KV head stands in the lane of the chosen head if that reads it, else in the middle of the lanes that do.
function sharedPlaces(plan, view, keep) {
  const found = new Map();
  for (const lane of plan.lanes) {
    const kv = Math.floor(lane.head / view.perKv);
    found.set(kv, [...(found.get(kv) ?? []), lane]);
  }
  return [...found].map(([kv, lanes]) => {
    const chosen = lanes.find(({ head }) => head === keep.at.head), first = lanes[0], last = lanes[lanes.length - 1];
    if (chosen) return { kv, y: chosen.y, h: chosen.h, big: true };
    return { kv, y: (first.y + last.y + last.h) / 2 - first.h / 2, h: first.h, big: false };
  });
}

// --- painting -----------------------------------------------------------------------------------------------------------

function bitmap({ view, keep, theme, inks }, name, head) {
  const cacheKey = [view.key, view.weightsKey, theme, view.scale].join("|");
  if (keep.bitmapsOf !== cacheKey) Object.assign(keep, { bitmapsOf: cacheKey, bitmaps: new Map() });
  const id = `${name}/${head}`;
  if (keep.bitmaps.has(id)) return keep.bitmaps.get(id);
  const { rows, cols } = about(view, name), blob = name === "mask" ? { full: 4 } : blobOf(view, name);
  const values = name === "mask" ? Float32Array.from(view.mask, Number) : exact(view, name, head);
  if (!values && !blob?.pool) return null;
  const seen = values ? pooled(values, rows, cols) : { values: blob.pool.subarray(head * blob.R * blob.C, (head + 1) * blob.R * blob.C), rows: blob.R, cols: blob.C, tall: Math.ceil(rows / blob.R), wide: Math.ceil(cols / blob.C) };
  const rowMax = name === "pattern" && view.scale === "row" ? rowLargest(seen) : null;
  const fill = name === "pattern" ? (value, row) => fullness(value, view.scale, rowMax?.[row]) ?? 0 : (value) => value / blob.full;
  const n = view.labels.length, masked = (name === "masked" || name === "pattern" || name === "mask") && seen.tall === 1 && seen.wide === 1;
  const made = { canvas: bitmapOf(seen, fill, rampsFor(kvOf(view, name, head), theme, inks), masked ? (i) => hidden(view, Math.floor(i / n), i % n) : null), masked, ...seen, sent: values !== null };
  keep.bitmaps.set(id, made);
  return made;
}

function rowLargest({ values, rows, cols }) {
  return Array.from({ length: rows }, (_, r) => values.subarray(r * cols, (r + 1) * cols).reduce((a, b) => Math.max(a, b), 0));
}

function paint(pen, scene, plan, blocks, still) {
  const { view, inks } = scene;
  pen.clearRect(0, 0, scene.width, plan.height + 60);
  const hatch = hatchPattern(pen, inks);
  if (still) wires(pen, scene, plan);
  for (const block of blocks) {
    const image = bitmap(scene, block.name, block.head);
    pen.globalAlpha = block.alpha ?? 1;
    if (!image || image.masked) { pen.fillStyle = hatch; pen.fillRect(block.x, block.y, block.w, block.h); }
    if (image) { pen.imageSmoothingEnabled = image.cols > block.w * 2; pen.drawImage(image.canvas, block.x, block.y, block.w, block.h); }
    const { rows, cols } = about(view, block.name), cw = block.w / cols, ch = block.h / rows;
    if (cw >= 5 && ch >= 5) gridLines(pen, block, rows, cols, inks.paper);
    pen.strokeStyle = inks.line;
    pen.lineWidth = 1;
    pen.strokeRect(block.x - 0.5, block.y - 0.5, block.w + 1, block.h + 1);
    if (still && cw >= 25 && ch >= 13) cellDigits(pen, scene, block, cw, ch);
  }
  pen.globalAlpha = 1;
  if (still) captions(pen, scene, plan);
}

function gridLines(pen, { x, y, w, h }, rows, cols, paper) {
  pen.fillStyle = paper;
  for (let c = 1; c < cols; c++) pen.fillRect(x + (c * w) / cols - 0.5, y, 1, h);
  for (let r = 1; r < rows; r++) pen.fillRect(x, y + (r * h) / rows - 0.5, w, 1);
}

function cellDigits(pen, { view, theme, inks }, block, cw, ch) {
  const { rows, cols } = about(view, block.name), full = blobOf(view, block.name)?.full ?? 1, masks = block.name === "masked" || block.name === "mask";
  pen.font = `${Math.min(12, ch - 3, cw / 2.6)}px sans-serif`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  for (let r = 0; r < rows; r++) for (let c = 0; c < cols; c++) {
    const value = valueAt(view, block.name, block.head, r, c);
    if (value === null || (masks && hidden(view, r, c)) || block.name === "mask") continue;
    const part = block.name === "pattern" ? value : Math.abs(value) / full;
    pen.fillStyle = part > 0.55 ? inks.paper : inks.ink;
    pen.fillText(short(value), block.x + (c + 0.5) * cw, block.y + (r + 0.5) * ch);
  }
  pen.textBaseline = "alphabetic";
}

// From each KV head to every query head that reads it, and from each slice to its lane.
function wires(pen, { view, keep, theme }, plan) {
  const find = (name, head) => plan.blocks.find((block) => block.name === name && block.head === head);
  const pairs = { dots: ["k_rot", true], z: ["v", true], q: ["Q", false], concat: ["z", false] };
  for (const block of plan.blocks) {
    const [name, shared] = pairs[block.name] ?? [];
    const from = name && find(name, shared ? Math.floor(block.head / view.perKv) : block.head);
    if (!from || from.x > block.x) continue;
    const last = name === "Q" ? find("Q", view.heads - 1) : from, mid = from.y + from.h / 2;
    const [x1, y1, x2, y2] = block.name === "concat" ? [from.x + from.w, mid, block.x + block.w / 2, mid > block.y + block.h / 2 ? block.y + block.h + 2 : block.y - 2] : [last.x + last.w + 2, mid, block.x - 3, block.y + block.h / 2];
    pen.globalAlpha = block.head === keep.at.head ? 0.9 : 0.35;
    pen.strokeStyle = hueOf(Math.floor(block.head / view.perKv), theme);
    pen.lineWidth = 1.4;
    pen.beginPath();
    pen.moveTo(x1, y1);
    pen.bezierCurveTo((x1 + x2) / 2, y1, (x1 + x2) / 2, y2, x2, y2);
    pen.stroke();
  }
  pen.globalAlpha = 1;
}

// Names over the columns, the axes with their letters and ticks, tokens beside the rows, signs between the columns.
function captions(pen, { view, keep, inks }, plan) {
  const write = (text, x, y, { size = 12, ink = inks.muted, align = "left", weight = 400, most } = {}) => {
    pen.font = `${weight} ${size}px sans-serif`;
    pen.fillStyle = ink;
    pen.textAlign = align;
    pen.fillText(text, x, y, most);
  };
  for (const name of new Set(plan.blocks.map((block) => block.name))) {
    const mine = plan.blocks.filter((block) => block.name === name), lead = mine.find((block) => block.big) ?? mine[0];
    const wide = LANE.has(name) ? lead : { ...lead, x: mine[0].x, w: mine[mine.length - 1].x + mine[mine.length - 1].w - mine[0].x, h: mine[mine.length - 1].y + mine[mine.length - 1].h - mine[0].y };
    const at = LANE.has(name) ? plan.lanes[0].y : wide.y, spec = about(view, name);
    write(view.names[name], wide.x, at - 22, { weight: 600, ink: inks.ink, most: wide.w + 24 });
    axis(pen, write, wide.x, at - 8, wide.w, name === "mask" || SQUARE.has(name) ? `${spec.axes[1]} = ${spec.cols}` : view.widths[name], inks);
    if (LANE.has(name) && spec.kind === "kv" && view.perKv > 1) mine.forEach((block) => write(sharing(view, block.head), block.x, block.y + block.h + 12, { size: 10, most: block.w + 26 }));
  }
  rowNames(write, view, keep, plan, inks);
  for (const sign of plan.signs) {
    const size = sign.text.length > 2 ? 11 : 18;
    pen.font = `${size}px sans-serif`;
    const wide = pen.measureText(sign.text).width + 6;
    pen.fillStyle = inks.paper;
    if (sign.text) pen.fillRect(sign.x - wide / 2, sign.y - 14, wide, 20);
    write(sign.text, sign.x, sign.y, { size, align: "center", ink: inks.ink });
  }
}

const sharing = (view, kv) => `KV head ${kv}: heads ${kv * view.perKv}\u2013${(kv + 1) * view.perKv - 1}`;

function axis(pen, write, x, y, w, text, inks) {
  pen.strokeStyle = inks.muted;
  pen.lineWidth = 1;
  pen.beginPath();
  for (const [x1, y1, x2, y2] of [[x, y, x + w, y], [x, y - 3, x, y + 3], [x + w, y - 3, x + w, y + 3]]) { pen.moveTo(x1, y1); pen.lineTo(x2, y2); }
  pen.stroke();
  pen.font = "10px sans-serif";
  const wide = pen.measureText(text).width + 8;
  if (wide < w) { pen.fillStyle = inks.paper; pen.fillRect(x + w / 2 - wide / 2, y - 5, wide, 10); }
  write(text, wide < w ? x + w / 2 : x + w + 4, y + 3.5, { size: 10, align: wide < w ? "center" : "left" });
}

function rowNames(write, view, keep, plan, inks) {
  const first = plan.blocks.find((block) => block.big && about(view, block.name).axes[0] === "n") ?? plan.blocks[0];
  const step = first.h / view.labels.length, every = Math.max(1, Math.ceil(11 / step));
  view.labels.forEach((label, i) => {
    if (i !== keep.at.row && (i % every || Math.abs(i - keep.at.row) < every)) return;
    const chosen = i === keep.at.row;
    write(label, first.x - 10, first.y + (i + 0.5) * step + 4, { size: Math.min(12, Math.max(9, step)), align: "right", weight: chosen ? 700 : 400, ink: chosen ? inks.ink : inks.muted, most: 68 });
  });
  write(`n = ${view.labels.length}`, first.x - 10, first.y - 5, { size: 10, align: "right" });
}

// --- moving from stage to stage ---------------------------------------------------------------------------------------

function animate(pen, scene, plan) {
  const { keep, view } = scene, from = keep.from, was = new Map((from ?? []).map((block) => [block.id, block]));
  keep.from = plan.blocks;
  cancelAnimationFrame(keep.frame);
  const still = !from || matchMedia("(prefers-reduced-motion: reduce)").matches || !keep.moving;
  keep.moving = false;
  if (still) return paint(pen, scene, plan, plan.blocks, true);
  const start = performance.now(), gone = from.filter((block) => !plan.blocks.some(({ id }) => id === block.id));
  const origin = (block) => was.get(block.id) ?? was.get(`${BORN[block.name]}/${block.head}`) ?? was.get(`${BORN[block.name]}/${kvOf(view, block.name, block.head) ?? 0}`) ?? was.get(`${BORN[block.name]}/0`) ?? block;
  const step = (now) => {
    const t = Math.min(1, (now - start) / MOVE), ease = t < 0.5 ? 2 * t * t : 1 - 2 * (1 - t) * (1 - t);
    const between = plan.blocks.map((block) => {
      const o = origin(block), mid = (name) => o[name] + (block[name] - o[name]) * ease;
      return { ...block, x: mid("x"), y: mid("y"), w: mid("w"), h: mid("h"), alpha: o === block ? ease : was.has(block.id) ? 1 : 0.25 + 0.75 * ease };
    });
    paint(pen, scene, plan, t < 1 ? [...gone.map((block) => ({ ...block, alpha: 0.8 * (1 - ease) })), ...between] : plan.blocks, t === 1);
    if (t < 1) keep.frame = requestAnimationFrame(step);
    else scene.lightAgain?.();
  };
  step(start);
}

// --- what a cell is computed from -----------------------------------------------------------------------------------

const READ_AS = { masked: "scores", Q: "q", K: "k", V: "v" };

// The cells behind one cell that are on screen, by the core's table of sources.
function sourcesOf(view, plan, name, head, row, col) {
  const moved = { q: "Q", k: "K", v: "V" }[name];
  if (moved && plan.blocks.some((block) => block.name === moved)) return [{ name: moved, head, rows: [row, row + 1], cols: [col, col + 1] }];
  if (name === "masked") return [{ name: "scores", head, rows: [row, row + 1], cols: [col, col + 1] }, { name: "mask", head: 0, rows: [row, row + 1], cols: [col, col + 1] }];
  const half = view.dk / 2, found = [];
  for (const [matrix, which, rows, cols] of view.sources[READ_AS[name] ?? name] ?? []) {
    const at = matrix === "scores" && plan.blocks.some((block) => block.name === "masked") ? "masked" : matrix, spec = about(view, at);
    const heads = { same: [Math.min(head, spec.heads - 1)], kv: [Math.floor(head / view.perKv)], all: [...Array(spec.heads).keys()], part: [head] }[which];
    const span = { row: [row, row + 1], col: [col, col + 1], part: [col, col + 1] };
    const columns = cols === "pair" ? [[col, col + 1], [(col + half) % view.dk, ((col + half) % view.dk) + 1]] : [span[cols] ?? [0, spec.cols]];
    for (const h of heads) for (const c of columns) found.push({ name: at, head: h, rows: span[rows] ?? [0, spec.rows], cols: c });
  }
  return found;
}

function lightUp(pen, scene, plan, cell, quiet) {
  const { view, inks, width } = scene;
  pen.clearRect(0, 0, width, plan.height + 60);
  if (!cell) return;
  const lit = sourcesOf(view, plan, cell.name, cell.head, cell.row, cell.col);
  if (lit.length && !quiet) {
    pen.globalAlpha = 0.62;
    pen.fillStyle = inks.paper;
    for (const block of plan.blocks) pen.fillRect(block.x - 1, block.y - 1, block.w + 2, block.h + 2);
    pen.globalAlpha = 1;
  }
  const chosen = { ...cell, rows: [cell.row, cell.row + 1], cols: [cell.col, cell.col + 1] };
  const places = lit.map((part) => partPlace(view, plan, part)).filter(Boolean), mine = partPlace(view, plan, chosen);
  places.forEach((at) => reveal(pen, scene, at));
  frames(pen, inks, places, 1.4);
  if (mine) { reveal(pen, scene, mine); frames(pen, inks, [mine], 2.6); }
}

function partPlace(view, plan, { name, head, rows, cols }) {
  const block = plan.blocks.find((b) => b.name === name && b.head === head), spec = about(view, name);
  if (!block) return null;
  const cw = block.w / spec.cols, ch = block.h / spec.rows;
  return { name, all: rows[1] - rows[0] === spec.rows || cols[1] - cols[0] === spec.cols, x: block.x + cols[0] * cw, y: block.y + rows[0] * ch, w: (cols[1] - cols[0]) * cw, h: (rows[1] - rows[0]) * ch };
}

function reveal(pen, { below }, { x, y, w, h }) {
  const ratio = window.devicePixelRatio || 1;
  pen.drawImage(below, x * ratio, y * ratio, Math.max(1, w * ratio), Math.max(1, h * ratio), x, y, w, h);
}

// One frame around all pieces of a matrix that are read as a whole.
function frames(pen, inks, places, thick) {
  const joined = [];
  for (const at of places) {
    const last = joined[joined.length - 1];
    if (last?.name === at.name && at.all) Object.assign(last, { w: Math.max(last.x + last.w, at.x + at.w) - last.x, h: Math.max(last.y + last.h, at.y + at.h) - last.y });
    else joined.push({ ...at });
  }
  pen.strokeStyle = inks.ink;
  pen.lineWidth = thick;
  for (const { x, y, w, h } of joined) pen.strokeRect(x - 1, y - 1, Math.max(2, w + 2), Math.max(2, h + 2));
}

// The numbers behind one cell: pairs to be multiplied, or the row of a softmax; null where only a thumbnail is here.
function sumOf(view, name, head, row, col) {
  const cell = view.cell;
  const dot = (length, a, b) => {
    const terms = [];
    for (let i = 0; i < length; i++) terms.push([a(i), b(i)]);
    return terms.some(([x, y]) => x === null || y === null || x === undefined || y === undefined) ? null : terms;
  };
  const kv = Math.floor(head / view.perKv), n = view.labels.length, at = (m, h, r, c) => valueAt(view, m, h, r, c);
  const width = about(view, "x").cols;
  const made = {
    q: () => dot(width, (i) => at("x", 0, row, i), (i) => at("W_Q", head, i, col)),
    k: () => dot(width, (i) => at("x", 0, row, i), (i) => at("W_K", head, i, col)),
    v: () => dot(width, (i) => at("x", 0, row, i), (i) => at("W_V", head, i, col)),
    dots: () => dot(view.dk, (i) => at("q_rot", head, row, i), (i) => at("k_rot", kv, col, i)),
    z: () => dot(n, (i) => at("pattern", head, row, i), (i) => at("v", kv, i, col)),
    out: () => dot(view.heads * view.dk, (i) => at("z", Math.floor(i / view.dk), row, i % view.dk), (i) => at("W_O", Math.floor(i / view.dk), i % view.dk, col)),
  }[name]?.();
  if (made) return made;
  return cell && cell.name === name && cell.head === head && cell.row === row && cell.col === col ? cell.terms : null;
}

const signed = (value) => (value < 0 ? `(${num(value)})` : num(value));

function sumText(terms, value) {
  const shown = terms.length <= 8 ? terms : terms.slice(0, 4);
  const text = shown.map(([a, b]) => `${signed(a)} \u00d7 ${signed(b)}`).join(" + ");
  return `${text}${terms.length > shown.length ? ` + \u2026 (${terms.length} products)` : ""} = ${value}`;
}

// One sentence of arithmetic for a cell, with the digits of the trace.
function arithmetic(view, plan, name, head, row, col) {
  const value = valueAt(view, name, head, row, col);
  if (value === null) return "Only the thumbnail of this matrix is here; click, or press Enter, for the exact numbers around this cell.";
  const shown = num(value), on = (other) => plan.blocks.some((block) => block.name === other);
  if (name === "mask") return value ? "1: this query may see this key" : "0: this query may not see this key";
  if (name === "masked") return hidden(view, row, col) ? `${shown} is hidden by the mask: the softmax never sees it` : `${shown}, visible`;
  if (name === "concat") return `${shown}: number ${col} of head ${head}'s z, moved to place ${head * view.dk + col}`;
  if (["q", "k", "v"].includes(name) && on(name.toUpperCase())) return `${shown}: number ${head * view.dk + col} of the row, now number ${col} of head ${head}`;
  if (name === "q_rot" || name === "k_rot") return turned(view, name, head, row, col, shown);
  if (name === "scores" && on("dots")) return `${num(valueAt(view, "dots", head, row, col) ?? NaN)} \u00f7 \u221a${view.dk} = ${shown}`;
  if (name === "pattern") return softmaxText(view, head, row, col, shown);
  if (name === "after") return `${num(valueAt(view, "before", 0, row, col) ?? NaN)} + ${signed(valueAt(view, "out", 0, row, col) ?? NaN)} = ${shown}`;
  if (["x", "before", "dots", "q", "k", "v", "z", "out", "Q", "K", "V"].includes(name)) {
    const terms = ["x", "before"].includes(name) || (on("after") && name === "out") ? null : sumOf(view, READ_AS[name] ?? name, head, row, col);
    return terms && plan.stage.makes.includes(name) ? sumText(terms, shown) : shown;
  }
  return shown;
}

function turned(view, name, head, row, col, shown) {
  const half = view.dk / 2, angle = view.angles[row * half + (col % half)], first = col < half;
  const own = valueAt(view, name[0], head, row, col), other = valueAt(view, name[0], head, row, (col + half) % view.dk);
  if (own === null || other === null) return shown;
  return `${signed(own)} \u00d7 cos ${num(angle)} ${first ? "\u2212" : "+"} ${signed(other)} \u00d7 sin ${num(angle)} = ${shown}; the angle grows with the position`;
}

function softmaxText(view, head, row, col, shown) {
  if (hidden(view, row, col)) return "0: hidden by the mask";
  const seen = view.labels.map((_, key) => key).filter((key) => !hidden(view, row, key)), scores = seen.map((key) => valueAt(view, "scores", head, row, key));
  if (scores.some((score) => score === null)) return shown;
  const top = Math.max(...scores), total = scores.reduce((sum, score) => sum + Math.exp(score - top), 0);
  return `e^(${num(valueAt(view, "scores", head, row, col))} \u2212 ${signed(top)}) \u00f7 ${num(total)} = ${shown}; ${num(total)} is the sum over ${seen.length} visible ${seen.length === 1 ? "key" : "keys"}`;
}

function placeText(view, name, head, row, col) {
  const spec = about(view, name), label = (axis, i) => (axis === "n" ? `\u201c${view.labels[i]}\u201d` : `${i}`);
  const whose = spec.kind === "query" && spec.heads > 0 ? `, head ${head}` : spec.kind === "kv" ? `, KV head ${head}` : "";
  return `${view.names[name]}${whose}, row ${label(spec.axes[0], row)}, ${spec.axes[1] === "n" ? "key" : "column"} ${label(spec.axes[1], col)}: `;
}

// --- the parts on screen ------------------------------------------------------------------------------------------------

function build(root, scene) {
  const { view, keep } = scene, stage = view.stages[keep.at.step];
  root.append(stepBar(scene), el("div", { className: "told" },
    el("h3", { className: "title" }, `${keep.at.step + 1}. ${stage.title}`), el("p", { className: "text", "aria-live": "polite" }, stage.text),
    el("p", { className: "formulas" }, stage.formulas.map((text) => el("span", { className: "formula" }, text)), el("span", { className: "shapes" }, view.shapes[keep.at.step]))));
  root.append(picture(scene), legend(scene), el("p", { className: "caption" }, stage.notice + pooledWords(view, stage)));
  root.append(tools(`headroom-flow-${keep.at.step}`, { svg: () => svgOf(scene), rows: () => table(view, keep, stage), recipe: { ...view.recipe, shown: { ...view.recipe.shown, ...keep.at } } }, keep.open, (open) => { keep.open = open; }));
}

const stageLacks = (view, stage) => stage.weights.some((name) => !blobOf(view, name));

function stepBar(scene) {
  const { view, keep, go } = scene, at = keep.at.step;
  const steps = view.stages.map((stage, i) => el("button", {
    className: "step", "aria-current": i === at ? "step" : undefined, tabIndex: i === at ? 0 : -1, dataset: { focus: i === at ? "step" : `step-${i}`, step: i }, title: stage.title, onclick: () => go(i),
  }, thumb(scene, stage), el("span", {}, stage.name)));
  const arrow = (label, by, sign) => el("button", { className: "turn", "aria-label": label, disabled: !view.stages[at + by], dataset: { focus: label }, onclick: () => go(at + by) }, sign);
  const bar = el("div", { className: "steps", role: "toolbar", "aria-label": "stages; arrow keys step" }, arrow("Back", -1, "\u2190"), el("div", { className: "strip" }, steps), arrow("Next", 1, "\u2192"));
  return bar;
}

// What a stage makes, for the chosen head, as a stamp.
function thumb(scene, stage) {
  const { view, keep, inks } = scene, name = stage.makes[0], spec = about(view, name);
  const canvas = sizedCanvas(52, 30), pen = canvas.getContext("2d"), heads = LANE.has(name) ? [Math.min(spec.kind === "kv" ? Math.floor(keep.at.head / view.perKv) : keep.at.head, spec.heads - 1)] : [...Array(spec.heads).keys()];
  heads.forEach((head, i) => {
    const image = bitmap(scene, name, head), square = SQUARE.has(name), w = (square ? 30 : 52) / heads.length;
    const x = (square ? 11 : 0) + i * w;
    if (!image || image.masked) { pen.fillStyle = hatchPattern(pen, inks); pen.fillRect(x, 0, w, 30); }
    if (image) { pen.imageSmoothingEnabled = image.cols > w; pen.drawImage(image.canvas, x, 0, w, 30); }
  });
  canvas.setAttribute("aria-hidden", "true");
  return canvas;
}

function picture(scene) {
  const { view, keep, width } = scene, plan = layOut(scene);
  const board = el("div", { className: "board", style: { height: `${plan.height}px` } });
  const below = sizedCanvas(width, plan.height), above = sizedCanvas(width, plan.height), pen = above.getContext("2d");
  scene.below = below;
  const say = el("p", { className: "say num", "aria-live": "polite" }), lens = el("div", { className: "lens" });
  const show = (cell, quiet = false) => {
    Object.assign(keep, { cell, quiet });
    lightUp(pen, scene, plan, cell, quiet);
    say.replaceChildren(...(cell ? [el("b", {}, placeText(view, cell.name, cell.head, cell.row, cell.col)), arithmetic(view, plan, cell.name, cell.head, cell.row, cell.col)] : [el("span", { className: "muted" }, "Point at a cell, or tab to a matrix and use the arrow keys: what it was computed from lights up.")]));
    lens.replaceChildren(...(cell ? lensOf(view, plan, cell) : []));
  };
  board.append(below, above, ...plan.blocks.map((block) => cellsOf(scene, block, show)), ...headButtons(scene, plan));
  const kept = keep.cell && plan.blocks.some(({ name, head }) => name === keep.cell.name && head === keep.cell.head) ? keep.cell : null;
  scene.lightAgain = () => lightUp(pen, scene, plan, keep.cell, keep.quiet);
  animate(below.getContext("2d"), scene, plan);
  show(kept ?? firstCell(view, keep, plan), !kept || keep.quiet);
  board.onmouseleave = () => show(keep.cell, true);
  return el("div", {}, board, el("div", { className: "reading" }, say, lens));
}

// A stage opens with one cell of what it makes already explained: the chosen row's.
function firstCell(view, keep, plan) {
  const name = plan.stage.makes[0], block = plan.blocks.find((b) => b.name === name && (b.big || b.head === keep.at.head)) ?? plan.blocks.find((b) => b.name === name);
  const spec = about(view, name);
  return block ? { name, head: block.head, row: Math.min(keep.at.row, spec.rows - 1), col: Math.min(keep.at.col, spec.cols - 1) } : null;
}

function cellsOf(scene, block, show) {
  const { view, keep, report } = scene, { rows, cols } = about(view, block.name);
  let row = Math.min(keep.at.row, rows - 1), col = Math.min(keep.at.col, cols - 1);
  const cells = el("div", {
    className: "cells", tabIndex: block.big ? 0 : -1, role: "application", dataset: { focus: `cells-${block.id}`, name: block.name, head: block.head },
    "aria-label": `${view.names[block.name]}, ${rows} rows, ${cols} columns; arrow keys move over the cells, Page Up and Page Down step`,
    style: { left: `${block.x}px`, top: `${block.y}px`, width: `${block.w}px`, height: `${block.h}px` },
  });
  const tell = () => show({ name: block.name, head: block.head, row, col });
  const choose = () => {
    const spec = about(view, block.name), wanted = { row: spec.axes[0] === "n" ? row : keep.at.row, col: Math.min(col, view.limits.col - 1) };
    if (spec.kind === "query" && LANE.has(block.name)) wanted.head = block.head;
    const moved = wanted.head !== undefined && wanted.head !== keep.at.head;
    Object.assign(keep.at, wanted);
    keep.zoom = valueAt(view, block.name, block.head, row, col) === null || needsServer(view, block) ? { name: base(block.name), head: block.head, row, col } : null;
    keep.cell = { name: block.name, head: block.head, row, col };
    keep.moving = moved;
    scene.draw();
    report(keep.zoom ? 0 : 300);
  };
  cells.onmousemove = (event) => {
    const box = cells.getBoundingClientRect();
    row = Math.max(0, Math.min(rows - 1, Math.floor(((event.clientY - box.top) / box.height) * rows)));
    col = Math.max(0, Math.min(cols - 1, Math.floor(((event.clientX - box.left) / box.width) * cols)));
    tell();
  };
  cells.onfocus = tell;
  cells.onclick = choose;
  const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  cells.onkeydown = (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); return; }
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    event.stopPropagation();
    row = Math.max(0, Math.min(rows - 1, row + move[0]));
    col = Math.max(0, Math.min(cols - 1, col + move[1]));
    tell();
  };
  return cells;
}

// Whether the sum behind a cell takes numbers that were not sent.
function needsServer(view, block) {
  const name = READ_AS[block.name] ?? block.name;
  return ["q", "k", "v", "dots", "z", "out"].includes(name) && sumOf({ ...view, cell: null }, name, block.head, 0, 0) === null;
}

function headButtons({ view, keep, draw, report }, plan) {
  if (!plan.inLanes) return [];
  const choose = (head) => { keep.at.head = head; keep.cell = null; keep.moving = true; draw(); report(view.oneHead ? 0 : 300); };
  const buttons = plan.lanes.map((lane) => el("button", {
    className: "lane", "aria-pressed": String(lane.head === keep.at.head), dataset: { focus: `lane-${lane.head}` }, onclick: () => choose(lane.head), style: { top: `${lane.mid - 10}px` },
  }, `head ${lane.head}`));
  if (view.heads <= LANES) return buttons;
  const first = plan.lanes[0].head, turn = (label, head, left) => el("button", { className: "lane more", disabled: head < 0 || head >= view.heads, dataset: { focus: label }, onclick: () => choose(head), style: { top: "2px", left } , "aria-label": label }, left === "0px" ? "\u2191 8" : "\u2193 8");
  return [...buttons, turn("eight heads before", first - LANES, "0px"), turn("eight heads after", first + LANES, "36px")];
}

// The cell and its neighbours with all their digits, where the picture is too small to write them.
function lensOf(view, plan, { name, head, row, col }) {
  const block = plan.blocks.find((b) => b.name === name && b.head === head), { rows, cols, axes } = about(view, name);
  if (!block || (block.w / cols >= 25 && block.h / rows >= 13)) return [];
  const span = (at, count, most) => { const start = Math.max(0, Math.min(at - Math.floor(most / 2), count - most)); return Array.from({ length: Math.min(most, count) }, (_, i) => start + i); };
  const label = (axis, i) => (axis === "n" ? view.labels[i] : i), columns = span(col, cols, 7);
  const line = (r) => el("tr", {}, el("th", { scope: "row" }, String(label(axes[0], r))), columns.map((c) => {
    const value = valueAt(view, name, head, r, c);
    return el("td", { className: r === row && c === col ? "here" : "" }, value === null ? "\u00b7" : num(value));
  }));
  return [el("table", { "aria-label": "the cell and its neighbours" }, el("thead", {}, el("tr", {}, el("th", {}, ""), columns.map((c) => el("th", { scope: "col" }, String(label(axes[1], c)))))), el("tbody", {}, span(row, rows, 5).map(line)))];
}

function legend({ view, keep, theme, inks }) {
  const stage = view.stages[keep.at.step], parts = [], hue = hueOf(Math.floor(keep.at.head / view.perKv), theme);
  for (const name of new Set(stage.columns.flat().map(base))) {
    const spec = about(view, name), full = spec.kind === "none" ? inks.stream : hue;
    if (name === "mask" || !blobOf(view, name)) continue;
    if (name === "pattern") parts.push(legendRamp(inks.tile, full, ...view.patternLegend));
    else parts.push(signedLegend(inks, full, blobOf(view, name), view.names[stage.columns.flat().find((drawn) => base(drawn) === name)]));
  }
  if (stage.columns.flat().some((name) => ["mask", "masked", "pattern"].includes(name)) && view.mask.includes("0")) parts.push(legendSwatch(hatchCss(inks), "hidden by the mask"));
  return el("div", { className: "legend" }, parts);
}

function pooledWords(view, stage) {
  const small = [...new Set(stage.columns.flat())].filter((name) => blobOf(view, name)?.pool), lacks = stageLacks(view, stage);
  const told = small.map((name) => { const { rows, cols } = about(view, name), blob = blobOf(view, name); return `${view.names[name]}: ${Math.ceil(rows / blob.R)} x ${Math.ceil(cols / blob.C)} cells a dot`; });
  return (lacks ? " The weights are on their way." : "") + (told.length ? ` Too large to send whole, so each dot is the number that is largest in size of its block (${told.join("; ")}); click for exact values. ${view.sentText}` : "");
}

function table(view, keep, stage) {
  const name = stage.makes[0], spec = about(view, name), head = spec.heads === 1 ? 0 : spec.kind === "kv" ? Math.floor(keep.at.head / view.perKv) : keep.at.head;
  const label = (axis, i) => (axis === "n" ? view.labels[i] : i);
  const cell = (r, c) => { const value = valueAt(view, name, head, r, c); return value === null ? "not sent" : value; };
  return [[`${view.names[name]}${spec.kind === "none" ? "" : `, head ${head}`}`, ...Array.from({ length: spec.cols }, (_, c) => label(spec.axes[1], c))],
    ...Array.from({ length: spec.rows }, (_, r) => [label(spec.axes[0], r), ...Array.from({ length: spec.cols }, (_, c) => cell(r, c))])];
}

function svgOf(scene) {
  const { view, keep, inks, width } = scene, plan = layOut(scene), parts = [];
  for (const block of plan.blocks) {
    const image = bitmap(scene, block.name, block.head);
    parts.push(svgRect(block.x, block.y, block.w, block.h, "url(#hidden)"));
    if (!image) continue;
    parts.push(`<image x="${block.x}" y="${block.y}" width="${block.w}" height="${block.h}" preserveAspectRatio="none" style="image-rendering:pixelated" href="${image.canvas.toDataURL()}"/>`);
    if (block.big) parts.push(svgText(block.x, block.y - 6, `${view.names[block.name]} ${about(view, block.name).axes.join(" x ")}`, { size: 11, ink: inks.ink }));
  }
  const stage = view.stages[keep.at.step];
  parts.push(svgText(10, 18, `${stage.title}. ${stage.formulas.join("; ")}`, { size: 13, weight: 600, ink: inks.ink }));
  return svgDocument(width, plan.height + 20, inks, parts.join(""));
}
