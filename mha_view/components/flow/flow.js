// One layer, stage by stage: every cell a number of the trace. Steps, pointing and arithmetic stay in the browser.

const STEP_KEYS = { ArrowRight: 1, PageDown: 1, ArrowLeft: -1, PageUp: -1 };

export default function ({ data, parentElement, setStateValue }) {
  const keep = memory(parentElement), feeds = ((globalThis.headroomFeeds ??= {}).flow ??= {});
  Object.assign(keep, { words: data, set: setStateValue });
  feeds.wake = () => { cancelAnimationFrame(keep.waking); keep.waking = requestAnimationFrame(() => show(parentElement, keep, feeds)); };
  show(parentElement, keep, feeds);
  const stop = onWidth(parentElement, () => { keep.from = null; show(parentElement, keep, feeds); });
  return () => { stop(); clearTimeout(keep.timer); cancelAnimationFrame(keep.frame); feeds.wake = null; };
}

// Draw what the feeds hold, if all of it is here and something in it is new.
function show(parentElement, keep, feeds) {
  const { numbers, place } = feeds;
  if (!numbers || !place || numbers.key !== place.key || numbers.limits.step !== keep.words.stages.length) return;
  adopt(keep, numbers, place);
  if (keep.shown === signature(parentElement, keep, feeds)) return;
  const view = viewOf(keep, feeds), acts = actsOf(parentElement, keep, view, feeds);
  acts.draw();
  // A page that was left and opened again may have lost the weights that the server believes to be here.
  if (stageLacks(view, view.stages[keep.at.step]) && place.sentWeights) acts.report(0);
}

// All that a drawing depends on; what only echoes the browser's own place changes nothing on screen.
function signature(parentElement, keep, { numbers, place, weights }) {
  return JSON.stringify([numbers.key, weights?.key, { ...place, at: keep.at, echo: 0, sentWeights: 0 }, themeOf(parentElement.host), keep.width]);
}

// Where one stands is the browser's own, until the server says something new that is no echo of an older place.
function adopt(keep, numbers, place) {
  const said = JSON.stringify([place.at, place.key]);
  if (!keep.at) keep.count = place.echo;
  if (!keep.at || (keep.said !== said && !keep.timer && place.echo === keep.count)) keep.at = { ...place.at };
  keep.said = said;
  for (const [name, count] of Object.entries(numbers.limits)) keep.at[name] = Math.max(0, Math.min(keep.at[name], count - 1));
}

// Everything there is to draw from; the numbers are unpacked once.
function viewOf(keep, { numbers, place, weights }) {
  if (keep.numbers !== numbers) Object.assign(keep, { numbers, store: unpacked(numbers.blobs), angles: FLOAT(numbers.angles) });
  if (weights && keep.weights?.key !== weights.key) keep.weights = { key: weights.key, ...unpacked(weights.blobs) };
  const held = keep.weights?.key === place.weightsKey ? keep.weights : {};
  return { ...keep.words, ...numbers, ...place, angles: keep.angles, store: { ...keep.store, ...held } };
}

// Draw, step, and tell the server where one has come to rest.
function actsOf(parentElement, keep, view, feeds) {
  const report = (wait) => {
    clearTimeout(keep.timer);
    keep.timer = setTimeout(() => {
      Object.assign(keep, { timer: null, count: keep.count + 1 });
      keep.set("at", { ...keep.at, zoom: keep.zoom, have: keep.weights?.key ?? "", count: keep.count });
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
    keep.shown = signature(parentElement, keep, feeds);
    const root = rebuild(parentElement, (root, theme, inks) => buildOrTable(root, { view, keep, theme, inks, report, draw, go, width: widthOf(parentElement) }));
    root.onkeydown = (event) => {
      const by = STEP_KEYS[event.key], inCells = event.target.classList.contains("cells");
      if (!by || (inCells && event.key.startsWith("Arrow"))) return;
      event.preventDefault();
      go(keep.at.step + by);
    };
  };
  return { report, go, draw };
}

// Where the picture cannot be drawn, the same numbers stand as a table.
function buildOrTable(root, scene) {
  const { view, keep } = scene, stage = view.stages[keep.at.step];
  try {
    build(root, scene);
  } catch (error) {
    root.replaceChildren(el("h3", { className: "title" }, stage.title), el("p", { className: "text" }, `The picture cannot be drawn here (${error.message}); these are its numbers.`), tableOf(table(view, keep, stage)));
  }
}

function unpacked(blobs) {
  return Object.fromEntries(Object.entries(blobs).map(([name, blob]) => [name, { ...blob, all: blob.all && FLOAT(blob.all), one: blob.one && FLOAT(blob.one), pool: blob.pool && FLOAT(blob.pool) }]));
}

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
  const say = el("p", { className: "say num", "aria-live": "polite" }), lens = el("div", { className: "lens" }), whole = el("div");
  const show = (cell, quiet = false) => {
    Object.assign(keep, { cell, quiet });
    lightUp(pen, scene, plan, cell, quiet);
    say.replaceChildren(...(cell ? [el("b", {}, placeText(view, cell.name, cell.head, cell.row, cell.col)), arithmetic(view, plan, cell.name, cell.head, cell.row, cell.col)] : [el("span", { className: "muted" }, "Point at a cell, or tab to a matrix and use the arrow keys: what it was computed from lights up.")]));
    lens.replaceChildren(...(cell ? lensOf(view, plan, cell) : []));
    whole.replaceChildren(...(cell ? allProducts(view, keep, plan, cell) : []));
  };
  board.append(below, above, ...plan.blocks.map((block) => cellsOf(scene, block, show)), ...headButtons(scene, plan));
  const kept = keep.cell && plan.blocks.some(({ name, head }) => name === keep.cell.name && head === keep.cell.head) ? keep.cell : null;
  scene.lightAgain = () => lightUp(pen, scene, plan, keep.cell, keep.quiet);
  animate(below.getContext("2d"), scene, plan);
  show(kept ?? firstCell(view, keep, plan), !kept || keep.quiet);
  board.onmouseleave = () => show(keep.cell, true);
  return el("div", {}, board, el("div", { className: "reading" }, el("div", {}, say, whole), lens));
}

// A long sum in full, for whoever wants to add it up.
function allProducts(view, keep, plan, { name, head, row, col }) {
  const terms = termsOf(view, plan, name, head, row, col);
  if (!terms || terms.length <= 8) return [];
  const body = el("p", { className: "num" }), fill = () => { body.textContent = keep.longSum ? products(terms) : ""; };
  fill();
  return [el("details", { className: "products", open: keep.longSum, ontoggle: (event) => { keep.longSum = event.target.open; fill(); } },
    el("summary", { dataset: { focus: "products" } }, `all ${terms.length} products`), body)];
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
