// Contributions to the difference of two logits as bars from zero, largest first; a head's bar opens its map.

const ROW = 20, TOP = 8;

export default function ({ parentElement, setStateValue }) {
  const keep = memory(parentElement), feeds = ((globalThis.headroomFeeds ??= {}).attribution ??= {});
  keep.set = setStateValue;
  const draw = () => {
    const { data } = feeds, shown = themeOf(parentElement.host) + keep.width;
    if (!data || (keep.data === data && keep.shown === shown)) return;
    Object.assign(keep, { data, shown });
    rebuild(parentElement, (root, theme, inks) => buildOrTable(root, { view: data, keep, theme, inks, width: Math.min(widthOf(parentElement), 980) }));
    keep.shown = themeOf(parentElement.host) + keep.width;
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

const signed = (value) => `${value > 0 ? "+" : ""}${value !== 0 && Math.abs(value) < 5e-4 ? value.toExponential(0) : value.toFixed(3)}`.replaceAll("-", "\u2212");
const nameOf = ({ name, kind }) => (kind === "norm bias" ? "final norm's bias" : name);

// All lines of the picture: the parts, what was put together, and the sum.
function linesOf({ bars, others, total }) {
  const more = others.count ? [{ name: `${others.count} others`, kind: "others", kv: null, value: others.value }] : [];
  return [...bars, ...more, { name: "sum", kind: "sum", kv: null, value: total }];
}

function build(root, scene) {
  const { view } = scene, lines = linesOf(view), plan = planOf(scene, lines), [word, against] = view.words, { sum } = view;
  const board = el("div", { className: "board", role: "toolbar", "aria-label": "contributions, largest first; arrow keys move, Enter opens a head", style: { height: `${plan.height}px` } }, node(svgOf(scene)), lines.map((line, i) => lineButton(scene, plan, line, i)));
  arrows(board);
  root.append(el("h3", { className: "title" }, `What makes \u201c${word}\u201d likelier than \u201c${against}\u201d after \u201c${view.token}\u201d`),
    el("p", { className: "text" }, `The logit of \u201c${word}\u201d minus that of \u201c${against}\u201d, split over everything that was written into the stream. The final norm subtracts the mean, which is linear, and divides by the standard deviation, held fixed here at its real value ${num(view.spread)}: then it is linear too, and its own bias is a part of its own.`),
    board, el("p", { className: sum.ok ? "check" : "check broken" }, `${sum.ok ? "\u2713" : "\u2717 broken:"} the ${view.bars.length + view.others.count} parts add up to ${signed(view.total)}, the model's logits differ by ${signed(view.difference)}: difference ${sum.deviation} ${sum.ok ? "\u2264" : ">"} ${sum.tolerance}`),
    legend(scene), el("p", { className: "caption" }, `${view.told}${othersWords(view)} A direct contribution is not the whole effect: a head also acts through the later layers that read what it wrote. Press a head's bar to see where it looks.`),
    tools("headroom-attribution", { svg: () => svgOf(scene, true), rows: () => table(view), recipe: view.recipe }, scene.keep.open, (open) => { scene.keep.open = open; }));
}

const othersWords = ({ others }) => (others.count ? ` The ${others.count} smallest are together in one bar.` : "");
const num = (value) => value.toFixed(3).replace("-", "\u2212");

function planOf({ view, width }, lines) {
  const names = Math.min(130, width * 0.28), values = lines.map(({ value }) => value), low = Math.min(0, ...values), high = Math.max(0, ...values), span = high - low || 1;
  const room = width - names - 130, x = (value) => names + 62 + (room * (value - low)) / span;
  return { names, x, low, high, height: TOP + ROW * lines.length + 8 };
}

const inkOf = ({ kind, kv }, theme, inks) => (kv !== null ? hueOf(kv, theme) : kind === "sum" ? inks.ink : kind === "embedding" ? inks.stream : inks.other);

function svgOf(scene, whole = false) {
  const { view, theme, inks, width } = scene, lines = linesOf(view), plan = planOf(scene, lines), parts = [];
  lines.forEach((line, i) => {
    const y = TOP + i * ROW, from = plan.x(Math.min(0, line.value)), to = plan.x(Math.max(0, line.value)), bold = line.kind === "sum" ? 700 : 400;
    if (line.kind === "sum") parts.push(svgRect(0, y - 1, width, 1, inks.line));
    parts.push(svgText(plan.names, y + 14, nameOf(line), { ink: inks.ink, anchor: "end", weight: bold }), svgRect(from.toFixed(1), y + 4, Math.max(1, to - from).toFixed(1), ROW - 8, inkOf(line, theme, inks), 'rx="2"'),
      svgText(line.value < 0 ? from - 5 : to + 5, y + 14, signed(line.value), { size: 11, ink: line.kind === "sum" ? inks.ink : inks.muted, weight: bold, anchor: line.value < 0 ? "end" : "start" }));
  });
  parts.push(svgRect(plan.x(0), 2, 1, plan.height - 4, inks.muted));
  if (!whole) return svgDocument(width, plan.height, inks, parts.join(""));
  return svgDocument(width, plan.height + 30, inks, parts.join("") + svgText(4, plan.height + 18, `\u201c${view.words[0]}\u201d minus \u201c${view.words[1]}\u201d after \u201c${view.token}\u201d, in logits; the model's logits differ by ${signed(view.difference)}`, { ink: inks.ink }));
}

function lineButton({ keep, width }, plan, line, i) {
  const head = line.kv !== null;
  return el("button", {
    className: head ? "line opens" : "line", tabIndex: i ? -1 : 0, "aria-label": `${nameOf(line)}: ${signed(line.value)}${head ? ". Opens on page Heads" : ""}`, title: head ? "open on page Heads" : null,
    dataset: { focus: `line-${i}`, part: line.link ?? line.kind }, onclick: () => { if (head) keep.set("open", { stage: line.link, at: Date.now() }); }, style: { top: `${TOP + i * ROW}px`, width: `${width}px`, height: `${ROW}px` },
  });
}

function arrows(board) {
  const lines = [...board.querySelectorAll(".line")];
  board.onkeydown = (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key], next = lines[lines.indexOf(event.target) + by];
    if (!by || !next) return;
    event.preventDefault();
    next.focus();
  };
}

function legend({ view, theme, inks }) {
  const values = view.bars.map(({ value }) => value), hues = [...new Set(view.bars.filter(({ kv }) => kv !== null).map(({ kv }) => kv))].sort((a, b) => a - b);
  return el("div", { className: "legend" }, hues.slice(0, 8).map((kv) => legendSwatch(hueOf(kv, theme), `KV head ${kv}${hues.length > 8 ? ", \u2026" : ""}`)), legendSwatch(inks.other, "MLPs and biases"), legendSwatch(inks.stream, "embedding"), legendSwatch(inks.ink, "sum"),
    el("span", {}, `right: for \u201c${view.words[0]}\u201d, left: for \u201c${view.words[1]}\u201d; logits from ${signed(Math.min(...values))} to ${signed(Math.max(...values))}`));
}

function table(view) {
  return [["part", `logit of ${view.words[0]} minus ${view.words[1]}`], ...linesOf(view).map((line) => [nameOf(line), line.value]), ["the model's logits", view.difference]];
}
