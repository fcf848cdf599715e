// The picture of a stage: bitmaps, digits, axes, wires; and the way from one stage to the next.

const BORN = { Q: "x", K: "x", V: "x", q: "Q", k: "K", v: "V", q_rot: "q", k_rot: "k", dots: "q_rot", scores: "dots", masked: "scores", pattern: "masked", z: "pattern", concat: "z", out: "concat", after: "before" };

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
