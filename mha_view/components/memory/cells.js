// Cells with a number and its address, laid out block by block; a cell keeps its address wherever it is drawn.

const GAP = 14, HEAD = 20;

const lettered = (layout) => `(${layout.axes.join(", ")}) = (${layout.shape.join(", ")})`;
const letterOf = (view) => (view.matrix === "q" ? "head" : "KV head");
const kvOf = (view, head) => (view.matrix === "q" ? Math.floor(head / view.perKv) : head);

// Where a number lies in memory in one step of the way; the product's two axes are three when a row is seen as heads.
function addressIn(view, fold, t, i, j) {
  const { strides } = view.layouts[fold], d_k = view.sizes[2];
  if (fold === 0) return t * strides[1] + (i * d_k + j) * strides[2];
  return fold === 1 ? t * strides[1] + i * strides[2] + j * strides[3] : i * strides[1] + t * strides[2] + j * strides[3];
}

function sumOf(view, fold, t, i, j) {
  const { strides } = view.layouts[fold], d_k = view.sizes[2], times = (a, b) => `${a} \u00b7 ${b}`;
  if (fold === 0) return `${times(t, strides[1])} + ${times(i, d_k)} + ${j}`;
  const [first, second] = fold === 1 ? [t, i] : [i, t];
  return `${times(first, strides[1])} + ${times(second, strides[2])} + ${times(j, strides[3])}`;
}

// The window as cells: token, head and column of each, and its number.
function cellsOf(view) {
  const [[t0, T], [i0, I], [j0, J]] = view.spans, found = [];
  for (let t = 0; t < T; t++) for (let i = 0; i < I; i++) for (let j = 0; j < Math.min(J, view.cols); j++) {
    const at = (t * I + i) * J + j;
    found.push({ t: t0 + t, i: i0 + i, j: j0 + j, dt: t, di: i, dj: j, value: view.values[at], wrong: view.wrongValues[at], owner: view.owners[at] });
  }
  return found;
}

// Width of a cell, and how many columns of a head fit: blocks side by side, with room for the words at the left.
function fitted(view, width, blocks) {
  const J = view.spans[2][1], room = (cols) => (width - view.left - (blocks - 1) * GAP) / (blocks * cols);
  const cols = [4, 3, 2, 1].find((count) => count <= J && room(count) >= 31) ?? 1;
  return { cols, w: Math.max(24, Math.min(66, Math.floor(room(cols)))), h: 36 };
}

// The top left corner of a cell in one step: rows, then a block for each token, then a block for each head.
function cornerOf(view, fit, fold, cell, wrap = 99) {
  const block = fold === 1 ? cell.dt : cell.di, line = fold === 1 ? cell.di : cell.dt;
  const wide = fit.cols * fit.w + (fold === 0 && view.sizes[2] === fit.cols ? 0 : GAP), tall = HEAD + fit.tall * fit.h + 6;
  return [view.left + (block % wrap) * wide + cell.dj * fit.w, HEAD + Math.floor(block / wrap) * tall + line * fit.h];
}

function boardHeight(fit, blocks, wrap) {
  return Math.ceil(blocks / wrap) * (HEAD + fit.tall * fit.h + 6);
}

function marksOf(view, fit, fold, wrap = 99) {
  const [[t0, T], [i0, I], [j0]] = view.spans, found = [], mark = (text, x, y, width, mine) => found.push({ text, x, y, width, mine });
  const blocks = fold === 1 ? T : I, lines = fold === 1 ? I : T, head = (i) => `${letterOf(view)} ${i0 + i}`, token = (t) => view.labels[t0 + t];
  for (let block = 0; block < blocks; block++) {
    const [x, y] = cornerOf(view, fit, fold, { dt: block, di: block, dj: 0, [fold === 1 ? "di" : "dt"]: 0 }, wrap);
    const d_k = view.sizes[2], from = (i0 + block) * d_k + j0;
    const text = fold === 0 ? (fit.cols === d_k ? String(from) : `${from} to ${from + fit.cols - 1} \u2026`) : fold === 1 ? `\u201c${token(block)}\u201d` : head(block);
    mark(text, x, y - HEAD + 2, fit.cols * fit.w, fold === 1 && t0 + block === view.at.row);
    if (block % wrap === 0) for (let line = 0; line < lines; line++) mark(fold === 1 ? head(line) : token(line), 0, y + line * fit.h + fit.h / 2 - 9, view.left - 8, fold !== 1 && t0 + line === view.at.row);
  }
  return found;
}

// Colour of a cell: hue of its KV head once it belongs to one, grey below zero, lightness by size.
function painted({ view, theme, inks }, value, kv) {
  const part = Math.min(1, Math.abs(value) / view.most), full = value < 0 ? inks.other : kv === null ? inks.stream : hueOf(kv, theme);
  const background = mix(inks.tile, full, part), stand = (ink) => Math.abs(brightness(ink) - brightness(background));
  return { background, color: stand(inks.ink) >= stand(inks.paper) ? inks.ink : inks.paper };
}

// As the eye sees it, 0 to 1: on it depends which ink can be read.
const brightness = (hex) => { const [r, g, b] = rgb(hex).map((value) => (value / 255) ** 2.2); return (0.2126 * r + 0.7152 * g + 0.0722 * b) ** (1 / 2.4); };

function slotOf(scene, fit, look) {
  const slot = el("div", { className: "slot", style: { width: `${fit.w - 2}px`, height: `${fit.h - 2}px`, transform: `translate(${look.x}px, ${look.y}px)`, ...painted(scene, look.value, look.kv) }, dataset: { address: look.address } },
    el("b", {}, short(look.value)), el("i", {}, String(look.address)));
  slot.classList.toggle("mine", look.mine);
  slot.classList.toggle("new", look.fresh === true);
  return slot;
}

const markNode = ({ text, x, y, width, mine }) => el("span", { className: mine ? "mark mine" : "mark", title: text, style: { left: `${x}px`, top: `${y}px`, maxWidth: `${width}px` } }, text);

function svgCells(scene, fit, looks, marks, top) {
  return [...looks.map((look) => {
    const paint = painted(scene, look.value, look.kv), text = (dy, words, size) => svgText(look.x + fit.w / 2, look.y + top + dy, words, { size, ink: paint.color, anchor: "middle" });
    return svgRect(look.x, look.y + top, fit.w - 2, fit.h - 2, paint.background, look.mine ? `stroke="${scene.inks.ink}" stroke-width="2"` : "") + text(15, short(look.value), 11) + text(28, String(look.address), 9);
  }), ...marks.map((mark) => svgText(mark.x, mark.y + top + 12, mark.text, { size: 11, ink: scene.inks.muted }))].join("");
}
