// The numbers behind a cell: which cells it was computed from, and the arithmetic with their digits.

const ALIAS = { Q: "q", K: "k", V: "v", concat: "z", masked: "scores" };

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

// The KV head whose hue a matrix has, null for those of no head.
function kvOf(view, name, head) {
  const kind = about(view, name).kind;
  return kind === "none" ? null : kind === "kv" ? head : Math.floor(head / view.perKv);
}


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

const products = (terms) => terms.map(([a, b]) => `${signed(a)} \u00d7 ${signed(b)}`).join(" + ");

function sumText(terms, value) {
  const shown = terms.length <= 8 ? terms : terms.slice(0, 4), text = products(shown);
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
  const terms = termsOf(view, plan, name, head, row, col);
  return terms ? sumText(terms, shown) : shown;
}

// The products that a cell of this stage is the sum of; null where it is none, or where not all of them are here.
function termsOf(view, plan, name, head, row, col) {
  const summed = ["dots", "q", "k", "v", "z", "out", "Q", "K", "V"].includes(name) && plan.stage.makes.includes(name);
  return summed && !plan.blocks.some((block) => block.name === "after" || block.name === name.toUpperCase() && block.name !== name) ? sumOf(view, READ_AS[name] ?? name, head, row, col) : null;
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
