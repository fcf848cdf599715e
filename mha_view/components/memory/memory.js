// One projection in memory: four steps in which cells move on screen, and only the last one moves them in memory.

const FOLD_KEYS = { ArrowRight: 1, PageDown: 1, ArrowLeft: -1, PageUp: -1 }, PLAY_MS = 2200;
const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

export default function ({ data, parentElement, setStateValue }) {
  const keep = memory(parentElement), feeds = ((globalThis.headroomFeeds ??= {}).memory ??= {});
  Object.assign(keep, { words: data, set: setStateValue });
  const show = () => draw(parentElement, keep, feeds);
  feeds.wake = () => { cancelAnimationFrame(keep.waking); keep.waking = requestAnimationFrame(show); };
  show();
  const stop = onWidth(parentElement, () => { keep.shown = null; show(); });
  return () => { stop(); clearTimeout(keep.timer); clearTimeout(keep.playing); feeds.wake = null; };
}

function draw(parentElement, keep, feeds) {
  const sent = feeds.window;
  if (!sent) return;
  adopt(keep, sent);
  const shown = JSON.stringify([{ ...sent, at: keep.at, echo: 0 }, themeOf(parentElement.host), keep.width]);
  if (keep.shown === shown) return;
  keep.shown = shown;
  if (keep.sent !== sent) Object.assign(keep, { sent, values: FLOAT(sent.values), wrongValues: FLOAT(sent.wrongValues) });
  const again = () => { keep.shown = null; draw(parentElement, keep, feeds); };
  const width = widthOf(parentElement), view = { ...sent, at: keep.at, values: keep.values, wrongValues: keep.wrongValues, left: width < 640 ? 60 : 84 };
  const acts = actsOf(keep, again);
  onKeys(rebuild(parentElement, (root, theme, inks) => buildOrTable(root, { view, keep, theme, inks, width, ...acts })), keep, acts.go);
  keep.from = keep.at.fold;
}

// Where one stands is the browser's own, until the server says something new that is no echo of an older place.
function adopt(keep, sent) {
  const said = JSON.stringify(sent.at);
  if (!keep.at) keep.count = sent.echo;
  if (!keep.at || (keep.said !== said && !keep.timer && sent.echo === keep.count)) keep.at = { ...sent.at };
  keep.said = said;
  const [n] = sent.sizes, limits = { row: n, head: sent.queryHeads, from: sent.sizes[2] };
  for (const [name, count] of Object.entries(limits)) keep.at[name] = Math.min(keep.at[name], count - 1);
}

function actsOf(keep, again) {
  const report = (wait) => {
    clearTimeout(keep.timer);
    keep.timer = setTimeout(() => {
      Object.assign(keep, { timer: null, count: keep.count + 1 });
      keep.set("at", { ...keep.at, count: keep.count });
    }, wait);
  };
  const pause = () => { clearTimeout(keep.playing); keep.playing = null; };
  const go = (fold) => {
    if (!keep.words.folds[fold] || fold === keep.at.fold) return;
    keep.at.fold = fold;
    again();
    report(500);
  };
  const play = () => {
    const next = () => { keep.playing = null; if (keep.at.fold < 3) { keep.playing = setTimeout(next, PLAY_MS); go(keep.at.fold + 1); } else again(); };
    keep.playing = setTimeout(next, keep.at.fold === 3 ? PLAY_MS : 0);
    if (keep.at.fold === 3) go(0);
    else again();
  };
  const choose = (place) => { Object.assign(keep.at, place); again(); report(0); };
  return { go: (fold) => { pause(); go(fold); }, play, pause: () => { pause(); again(); }, choose };
}

// Where the picture cannot be drawn, the same numbers stand as a table.
function buildOrTable(root, scene) {
  try {
    build(root, scene);
  } catch (error) {
    root.replaceChildren(el("p", { className: "text" }, `The picture cannot be drawn here (${error.message}); these are its numbers.`), tableOf(table(scene.view)), tableOf(wrongTable(scene.view)));
  }
}

function build(root, scene) {
  const { view, keep, inks, theme } = scene, fold = keep.at.fold, [title, text] = keep.words.folds[fold], layout = view.layouts[fold];
  const story = fold === 3 && !layout.copied ? keep.words.nothingCopied : text;
  root.append(foldBar(scene), el("h3", { className: "title" }, `${fold + 1}. ${title}`), el("p", { className: "text", "aria-live": "polite" }, story), shapes(view, layout), choosers(scene), ...story3d(scene),
    el("div", { className: "legend" }, fold === 0 ? signedLegend(inks, inks.stream, { full: view.most, most: view.most }, letter(view)) : signedLegend(inks, hueOf(kvOf(view, view.spans[1][0]), theme), { full: view.most, most: view.most }, `${letter(view)}, in the hue of its KV head`), el("span", {}, "framed: the chosen token")),
    el("p", { className: "caption" }, windowWords(view)),
    tools(`headroom-memory-${fold}`, { svg: () => svgOf(scene), rows: () => table(view), recipe: { ...view.recipe, at: keep.at } }, keep.open, (open) => { keep.open = open; }), ...wrongPart(scene));
}

// Arrow keys step, but where they move over cells or through a list.
function onKeys(root, keep, go) {
  root.onkeydown = (event) => {
    const by = FOLD_KEYS[event.key], own = event.target.classList.contains("board") || event.target.tagName === "SELECT";
    if (!by || event.defaultPrevented || (own && event.key.startsWith("Arrow"))) return;
    event.preventDefault();
    go(keep.at.fold + by);
  };
}

function foldBar({ view, keep, go, play, pause }) {
  const at = keep.at.fold, turn = (label, by, sign) => el("button", { className: "turn", "aria-label": label, disabled: !keep.words.folds[at + by], dataset: { focus: label }, onclick: () => go(at + by) }, sign);
  const steps = view.layouts.map((layout, i) => el("button", { className: "fold", "aria-current": i === at ? "step" : undefined, tabIndex: i === at ? 0 : -1, dataset: { focus: i === at ? "fold" : `fold-${i}`, fold: i }, onclick: () => go(i) }, layout.madeBy));
  const player = calm() ? [] : [el("button", { className: "turn", dataset: { focus: "play" }, onclick: keep.playing ? pause : play }, keep.playing ? "Pause" : "Play")];
  return el("div", { className: "bar", role: "toolbar", "aria-label": "steps; arrow keys step" }, turn("Back", -1, "\u2190"), ...steps, turn("Next", 1, "\u2192"), ...player);
}

function shapes(view, layout) {
  const moved = layout.copied ? "copied: memory of its own" : "nothing moved in memory";
  return el("p", { className: "shapes" }, el("span", { className: "code" }, `shape ${lettered(layout)}`), el("span", { className: "code" }, `strides (${layout.strides.join(", ")})`), el("span", { className: layout.copied ? "moved copied" : "moved" }, moved));
}

function choosers({ view, choose }) {
  const [n, heads, d_k] = view.sizes, select = (label, focus, count, value, words, place) => {
    const box = el("select", { dataset: { focus }, onchange: () => choose(place(Number(box.value))) }, Array.from({ length: count }, (_, i) => el("option", { value: i, selected: i === value }, words(i))));
    return el("label", {}, `${label} `, box);
  };
  const perHead = view.matrix === "q" ? 1 : view.perKv;
  return el("div", { className: "choosers" }, select("token", "token", n, view.at.row, (i) => `${i}: ${view.labels[i]}`, (row) => ({ row })),
    select(letterOf(view), "head", heads, Math.floor(view.at.head / perHead), String, (head) => ({ head: head * perHead })),
    d_k > 4 ? select("columns from", "from", d_k, view.at.from, String, (from) => ({ from })) : null);
}

// The board of cells and the whole memory under it; cells move to their new places one after the other.
function story3d(scene) {
  const { view, keep } = scene, blocks = Math.max(view.spans[0][1], view.spans[1][1]), say = el("p", { className: "say num", "aria-live": "polite" });
  const fit = { ...fitted(view, scene.width, blocks), tall: blocks }, fold = keep.at.fold, was = keep.from ?? fold, moving = was !== fold && !calm();
  scene.fit = fit;
  view.fitCols = fit.cols;
  const looks = looksOf(view, fit, fold), before = moving ? looksOf(view, fit, was) : looks;
  const slots = looks.map((look, i) => slotOf(scene, fit, { ...look, x: before[i].x, y: before[i].y, kv: before[i].kv }));
  const board = el("div", { className: "board", tabIndex: 0, role: "application", dataset: { focus: "cells" }, "aria-label": "memory cells; arrow keys move over them, Enter chooses a token, Page Up and Page Down step", style: { height: `${boardHeight(fit, 1, 99)}px` } }, ...slots, ...marksOf(view, fit, fold).map(markNode));
  if (moving) requestAnimationFrame(() => { void board.offsetWidth; slots.forEach((slot, i) => settle(scene, slot, looks[i], i)); });
  walk(board, looks, (look) => { say.textContent = look.told; }, (look) => scene.choose({ row: look.t, head: view.matrix === "q" ? look.i : look.i * view.perKv }));
  say.textContent = looks.find((look) => look.mine)?.told ?? "";
  return [board, say, lane(scene)];
}

function settle(scene, slot, look, order) {
  slot.style.transitionDelay = `${order * 9}ms`;
  Object.assign(slot.style, { transform: `translate(${look.x}px, ${look.y}px)`, ...painted(scene, look.value, look.kv) });
}

function looksOf(view, fit, fold) {
  return cellsOf({ ...view, cols: fit.cols }).map((cell) => {
    const [x, y] = cornerOf(view, fit, fold, cell), address = addressIn(view, fold, cell.t, cell.i, cell.j);
    const told = `${named(view, cell.t, cell.i, cell.j)}: ${num(cell.value)} lies at address ${sumOf(view, fold, cell.t, cell.i, cell.j)} = ${address}`;
    return { ...cell, x, y, address, told, kv: fold === 0 ? null : kvOf(view, cell.i), mine: cell.t === view.at.row, fresh: fold === 3 && address !== addressIn(view, 0, cell.t, cell.i, cell.j) };
  });
}

// Pointing at cells and arrow keys over them: the nearest cell in that direction.
function walk(board, looks, tell, choose) {
  const slots = [...board.querySelectorAll(".slot")];
  let at = -1;
  const show = (i) => { slots[at]?.classList.remove("here"); at = i; slots[at].classList.add("here"); tell(looks[at]); };
  board.onpointermove = (event) => { const i = slots.indexOf(event.target.closest(".slot")); if (i >= 0 && i !== at) show(i); };
  board.onfocus = () => { if (at < 0) show(Math.max(0, looks.findIndex((look) => look.mine))); };
  board.onclick = (event) => { const i = slots.indexOf(event.target.closest(".slot")); if (i >= 0) choose?.(looks[i]); };
  board.onkeydown = (event) => {
    if (event.key === "Enter" && at >= 0 && choose) { event.preventDefault(); choose(looks[at]); return; }
    const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [0, 0];
    if (!dx && !dy) return;
    event.preventDefault();
    const here = looks[Math.max(at, 0)], ahead = (look) => (look.x - here.x) * dx + (look.y - here.y) * dy, aside = (look) => Math.abs((look.x - here.x) * dy) + Math.abs((look.y - here.y) * dx);
    const best = looks.map((look, i) => [ahead(look) + 20 * aside(look), i, look]).filter(([, , look]) => ahead(look) > 1).sort((a, b) => a[0] - b[0])[0];
    if (best) show(best[1]);
  };
}

// All of the memory as one line; the chosen token's cells in full colour.
function lane(scene) {
  const { view, keep, theme, inks, width } = scene, [n, heads, d_k] = view.sizes, all = n * heads * d_k, fold = keep.at.fold, canvas = sizedCanvas(width, 20), pen = canvas.getContext("2d"), starts = [];
  pen.fillStyle = inks.tile;
  pen.fillRect(0, 0, width, 20);
  const runs = (mine) => { for (let t = 0; t < n; t++) if ((t === keep.at.row) === mine) for (let i = 0; i < heads; i++) paint(t, i, mine); };
  const paint = (t, i, mine) => {
    const start = addressIn(view, fold, t, i, 0), full = fold === 0 ? inks.stream : hueOf(kvOf(view, i), theme);
    if (mine) starts.push(start);
    pen.fillStyle = mix(inks.tile, full, mine ? 1 : 0.22);
    pen.fillRect((start / all) * width, mine ? 0 : 3, Math.max(mine ? 1.5 : 0.3, (d_k / all) * width), mine ? 20 : 14);
  };
  runs(false);
  runs(true);
  canvas.setAttribute("role", "img");
  const words = laneWords(view, fold, starts), count = (value) => value.toLocaleString("en");
  canvas.setAttribute("aria-label", words);
  return el("div", { className: "lane" }, canvas, el("div", { className: "ends num" }, el("span", {}, "address 0"), el("span", { className: "runs" }, words), el("span", {}, count(all - 1))));
}

function laneWords(view, fold, starts) {
  const [, , d_k] = view.sizes, token = `\u201c${view.labels[view.at.row]}\u201d`, first = Math.min(...starts), count = (value) => value.toLocaleString("en");
  const together = starts.length === 1 || starts[1] - starts[0] === d_k;
  if (together) return `${token}: ${count(starts.length * d_k)} cells in one run, ${count(first)} to ${count(first + starts.length * d_k - 1)}`;
  return `${token}: ${starts.length} runs of ${d_k} cells, one every ${count(starts[1] - starts[0])}`;
}

function windowWords(view) {
  const [[t0, T], [i0, I], [j0]] = view.spans, cols = view.fitCols, [n, heads, d_k] = view.sizes, count = (value) => value.toLocaleString("en"), all = n * heads * d_k;
  const span = (from, size, of, what) => (size === of ? `all ${of} ${what}` : `${what} ${from} to ${from + size - 1} of ${count(of)}`);
  if (T * I * cols === all) return `All ${count(all)} cells. Click one to choose its token.`;
  return `A window of ${T * I * cols} of ${count(all)} cells: ${span(t0, T, n, "tokens")}, ${span(i0, I, heads, view.matrix === "q" ? "heads" : "KV heads")}, ${span(j0, cols, d_k, "columns of a head")}. The line under it is the whole memory. Click a cell to choose its token.`;
}

function table(view) {
  return [["token", letterOf(view), "column", letter(view), "address", "address after contiguous()"],
    ...cellsOf({ ...view, cols: 4 }).map(({ t, i, j, value }) => [view.labels[t], i, j, value, addressIn(view, 1, t, i, j), addressIn(view, 3, t, i, j)])];
}

function svgOf(scene) {
  const { view, keep, inks, width, fit } = scene, fold = keep.at.fold, layout = view.layouts[fold];
  const title = svgText(0, 16, `${letter(view)}: ${keep.words.folds[fold][0]}, shape ${lettered(layout)}, strides (${layout.strides.join(", ")})`, { size: 13, weight: 600, ink: inks.ink });
  return svgDocument(width, boardHeight(fit, 1, 99) + 36, inks, title + svgCells(scene, fit, looksOf(view, fit, fold), marksOf(view, fit, fold), 28));
}
