// All heads of a model as small maps, on one canvas; a button over each.

const HIDDEN = 255, FULL = 254, NAME_WIDTH = 26, MAX_COLUMNS = 16;

export default function ({ data, parentElement, setStateValue }) {
  const keep = memory(parentElement);
  const levels = BYTES(data.levels);
  const draw = () => rebuild(parentElement, (root, theme, inks) => {
    const plan = layOut(data, widthOf(parentElement));
    const board = el("div", { className: "board", style: { height: `${plan.height}px` } });
    root.append(el("h3", {}, data.title), board);
    const canvas = sizedCanvas(plan.width, plan.height);
    board.append(canvas);
    paint(canvas.getContext("2d"), data, levels, plan, theme, inks);
    names(board, data, plan);
    const pick = (layer, head) => setStateValue("picked", { layer, head, at: Date.now() });
    plan.cells.forEach((cell) => board.append(thumbButton(cell, data, plan, pick)));
    const say = el("p", { className: "say", "aria-live": "polite" });
    wire(board, data, say);
    root.append(say, legend(data, theme, inks), el("p", { className: "caption" }, data.caption),
      tools(data.file, { svg: () => svgOf(data, levels, plan, theme, inks), rows: () => data.table, recipe: data.recipe },
        keep.open, (open) => { keep.open = open; }));
  });
  draw();
  return onWidth(parentElement, draw);
}

// Where every map stands: rows of at most 16 heads, the same pixel size whatever the number of tokens.
function layOut(data, width) {
  const columns = Math.min(data.heads, MAX_COLUMNS), lines = Math.ceil(data.heads / columns);
  const pitch = Math.max(14, Math.min(56, Math.floor((width - NAME_WIDTH) / columns)));
  const gap = pitch > 30 ? 8 : 4, size = pitch - gap, rowHeight = size + (pitch > 30 ? 22 : 14);
  const cells = [];
  for (let layer = 0; layer < data.layers; layer++)
    for (let head = 0; head < data.heads; head++) {
      const line = layer * lines + Math.floor(head / columns);
      cells.push({ layer: data.first + layer, head, x: NAME_WIDTH + (head % columns) * pitch + gap / 2, y: 20 + line * rowHeight, kv: data.kv[head] });
    }
  return { columns, lines, pitch, gap, size, rowHeight, cells, width, height: 20 + data.layers * lines * rowHeight };
}

function paint(pen, data, levels, plan, theme, inks) {
  const hatch = hatchPattern(pen, inks), m = data.side;
  const small = document.createElement("canvas");
  small.width = small.height = m;
  const context = small.getContext("2d"), tile = rgb(inks.tile);
  plan.cells.forEach((cell, index) => {
    const hue = rgb(hueOf(cell.kv, theme)), image = context.createImageData(m, m);
    for (let i = 0; i < m * m; i++) {
      const level = levels[index * m * m + i], t = level === HIDDEN ? 0 : level / FULL;
      for (let c = 0; c < 3; c++) image.data[4 * i + c] = tile[c] + (hue[c] - tile[c]) * t;
      image.data[4 * i + 3] = level === HIDDEN ? 0 : 255;
    }
    context.putImageData(image, 0, 0);
    pen.fillStyle = hatch;
    pen.fillRect(cell.x, cell.y, plan.size, plan.size);
    pen.imageSmoothingEnabled = m > plan.size;
    pen.drawImage(small, cell.x, cell.y, plan.size, plan.size);
  });
  sharedBars(data, plan).forEach((bar) => {
    pen.fillStyle = hueOf(bar.kv, theme);
    pen.fillRect(bar.x, bar.y, bar.width, 3);
  });
}

// One bar under all heads that read the same keys and values.
function sharedBars(data, plan) {
  const bars = [];
  for (const cell of plan.cells) {
    const last = bars[bars.length - 1];
    const joins = last && last.kv === cell.kv && last.layer === cell.layer && cell.y === last.top;
    if (joins) last.width = cell.x + plan.size - last.x;
    else bars.push({ kv: cell.kv, layer: cell.layer, top: cell.y, x: cell.x, y: cell.y + plan.size + 2, width: plan.size });
  }
  return bars;
}

function names(board, data, plan) {
  const place = (x, y, width, text, className = "name") =>
    board.append(el("span", { className, style: { left: `${x}px`, top: `${y}px`, width: `${width}px` } }, text));
  const every = plan.pitch < 22 ? 2 : 1;
  if (plan.lines === 1) for (let h = 0; h < plan.columns; h += every) place(NAME_WIDTH + h * plan.pitch - 6, 0, plan.pitch + 12, `H${h}`);
  for (let layer = 0; layer < data.layers; layer++) place(0, 20 + layer * plan.lines * plan.rowHeight + plan.size / 2 - 9, NAME_WIDTH - 6, `L${data.first + layer}`);
  for (const cell of plan.cells) {
    const badge = data.badges[`${cell.layer}.${cell.head}`];
    if (badge && plan.pitch > 30) place(cell.x - 6, cell.y + plan.size + 5, plan.size + 12, badge, "badge");
  }
}

function thumbButton(cell, data, plan, pick) {
  const picked = cell.layer === data.picked[0] && cell.head === data.picked[1];
  return el("button", {
    className: "thumb", title: `layer ${cell.layer}, head ${cell.head}, KV head ${cell.kv}`, tabIndex: picked ? 0 : -1,
    "aria-pressed": String(picked), "aria-label": sentence(cell, data),
    dataset: { focus: `thumb-${cell.layer}-${cell.head}`, layer: cell.layer, head: cell.head },
    style: { left: `${cell.x}px`, top: `${cell.y}px`, width: `${plan.size}px`, height: `${plan.size}px` },
    onclick: () => pick(cell.layer, cell.head),
  });
}

function sentence(cell, data) {
  const line = data.table[1 + (cell.layer - data.first) * data.heads + cell.head];
  return `Layer ${cell.layer}, head ${cell.head} (KV head ${cell.kv}): \u201c${data.rowLabel}\u201d looks most at \u201c${line[4]}\u201d, ${digits(line[5])}; mean entropy ${line[3].toFixed(2)} bits.`;
}

// Hover and arrow keys stay in the browser; Enter or a click goes to Python.
function wire(board, data, say) {
  const buttons = [...board.querySelectorAll(".thumb")];
  const tell = (button) => { say.textContent = sentence({ layer: +button.dataset.layer, head: +button.dataset.head, kv: data.kv[+button.dataset.head] }, data); };
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: data.heads, ArrowUp: -data.heads };
  buttons.forEach((button, index) => {
    button.onmouseenter = button.onfocus = () => tell(button);
    button.onkeydown = (event) => {
      const next = buttons[index + steps[event.key]];
      if (!next) return;
      event.preventDefault();
      next.focus();
    };
  });
  const picked = buttons.find((button) => button.getAttribute("aria-pressed") === "true");
  if (picked) tell(picked);
}

function legend(data, theme, inks) {
  const hue = hueOf(data.kv[data.picked[1]], theme);
  return el("div", { className: "legend" }, legendRamp(inks.tile, hue, ...data.legend),
    data.masked ? legendSwatch(hatchCss(inks), "hidden by the mask") : null, el("span", {}, data.sharing));
}

function svgOf(data, levels, plan, theme, inks) {
  const m = data.side, step = plan.size / m, parts = [];
  plan.cells.forEach((cell, index) => {
    for (let i = 0; i < m * m; i++) {
      const level = levels[index * m * m + i];
      const fill = level === HIDDEN ? "url(#hidden)" : mix(inks.tile, hueOf(cell.kv, theme), level / FULL);
      parts.push(svgRect((cell.x + (i % m) * step).toFixed(2), (cell.y + Math.floor(i / m) * step).toFixed(2), step.toFixed(2), step.toFixed(2), fill));
    }
    parts.push(svgText(cell.x + plan.size / 2, cell.y - 3, `L${cell.layer}H${cell.head}`, { size: Math.min(9, plan.size / 3), ink: inks.muted, anchor: "middle" }));
  });
  sharedBars(data, plan).forEach((bar) => parts.push(svgRect(bar.x, bar.y, bar.width, 3, hueOf(bar.kv, theme))));
  parts.push(svgText(4, plan.height + 14, `${data.title}. Scale: ${data.legend[0]} to ${data.legend[1]} ${data.legend[2]}.`, { ink: inks.ink }));
  return svgDocument(plan.width, plan.height + 24, inks, parts.join(""));
}
