// Heads as points in the plane of two measures; the axes change here and are told to Python for the link.

const EDGE = { left: 52, right: 16, top: 12, bottom: 44 }, TALL = 340;

export default function ({ data, parentElement, setStateValue }) {
  const keep = memory(parentElement), values = FLOAT(data.values), wide = data.measures.length;
  const column = (name) => data.measures.findIndex((measure) => measure.name === name);
  const view = { ...data, at: (point, name) => values[point * wide + column(name)], measure: (name) => data.measures[column(name)] };
  const draw = () => rebuild(parentElement, (root, theme, inks) => {
    const shown = { ...view, plan: layOut(view, Math.min(widthOf(parentElement), 760)) };
    const say = el("p", { className: "say", "aria-live": "polite" });
    const pick = (picked) => setStateValue("picked", { picked, at: Date.now() });
    root.append(el("h3", {}, data.title), choosers(view, (axes) => { view.axes = axes; setStateValue("axes", { x: axes[0], y: axes[1], at: Date.now() }); draw(); }),
      plane(shown, theme, inks, pick, say), say, legend(shown, inks), el("p", { className: "caption" }, data.caption),
      tools("headroom-evidence", { svg: () => svgOf(shown, theme, inks), rows: () => rowsOf(view), recipe: { ...data.recipe, axes: view.axes } }, keep.open, (open) => { keep.open = open; }));
  });
  draw();
  return onWidth(parentElement, draw);
}

function choosers(view, change) {
  const chooser = (label, which) => {
    const select = el("select", { dataset: { focus: `axis-${label}` }, onchange: () => change(view.axes.map((axis, i) => (i === which ? select.value : axis))) },
      view.measures.map((measure) => el("option", { value: measure.name, selected: measure.name === view.axes[which] }, measure.words)));
    return el("label", {}, `${label} `, select);
  };
  return el("div", { className: "choosers" }, chooser("across", 0), chooser("up", 1));
}

// The range of an axis is that of its values and its control, widened to whole ticks.
function rangeOf(view, name) {
  const found = view.names.map((_, i) => view.at(i, name)), control = view.measure(name).control;
  if (control !== null) found.push(control);
  let low = Math.min(...found, 0), high = Math.max(...found);
  if (high - low < 1e-9) high = low + 1;
  const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  low = Math.floor(low / step + 1e-9) * step;
  const ticks = [];
  for (let i = 0; low + (i - 1) * step < high - 1e-9; i++) ticks.push(+(low + i * step).toPrecision(10));
  return { low, high: ticks[ticks.length - 1], ticks };
}

function layOut(view, width) {
  const [x, y] = view.axes.map((name) => rangeOf(view, name));
  const across = (value) => EDGE.left + ((value - x.low) / (x.high - x.low)) * (width - EDGE.left - EDGE.right);
  const up = (value) => TALL - EDGE.bottom - ((value - y.low) / (y.high - y.low)) * (TALL - EDGE.top - EDGE.bottom);
  return { width, x, y, across, up };
}

function frame(view, inks) {
  const { plan } = view, [first, second] = view.axes.map(view.measure), parts = [];
  const line = (x1, y1, x2, y2, extra = "") => parts.push(`<line x1="${x1.toFixed(1)}" y1="${y1.toFixed(1)}" x2="${x2.toFixed(1)}" y2="${y2.toFixed(1)}" stroke="${inks.line}" ${extra}/>`);
  const left = plan.across(plan.x.low), right = plan.across(plan.x.high), bottom = plan.up(plan.y.low), top = plan.up(plan.y.high);
  for (const tick of plan.x.ticks) { line(plan.across(tick), bottom, plan.across(tick), top); parts.push(svgText(plan.across(tick), bottom + 15, String(tick), { size: 11, ink: inks.muted, anchor: "middle" })); }
  for (const tick of plan.y.ticks) { line(left, plan.up(tick), right, plan.up(tick)); parts.push(svgText(left - 6, plan.up(tick) + 4, String(tick), { size: 11, ink: inks.muted, anchor: "end" })); }
  const dashed = `stroke-dasharray="5 4" style="stroke:${inks.muted}"`;
  if (first.control !== null) line(plan.across(first.control), bottom, plan.across(first.control), top, dashed);
  if (second.control !== null) line(left, plan.up(second.control), right, plan.up(second.control), dashed);
  parts.push(svgText((left + right) / 2, TALL - 8, first.words, { size: 12, ink: inks.ink, anchor: "middle" }));
  parts.push(svgText(14, (top + bottom) / 2, second.words, { size: 12, ink: inks.ink, anchor: "middle", rotate: -90 }));
  return parts.join("");
}

function spot(view, point) {
  return [view.plan.across(view.at(point, view.axes[0])), view.plan.up(view.at(point, view.axes[1]))];
}

function plane(view, theme, inks, pick, say) {
  const board = el("div", { className: "plane", style: { width: `${view.plan.width}px`, height: `${TALL}px` } });
  board.innerHTML = `<svg width="${view.plan.width}" height="${TALL}" aria-hidden="true">${frame(view, inks)}</svg>`;
  const buttons = view.names.map((name, point) => {
    const [x, y] = spot(view, point), hue = view.hues[point], picked = point === view.picked;
    const sentence = `${name}${view.letters[point] ? ` (${view.letters[point]})` : ""}: ${view.axes.map((axis) => `${view.measure(axis).words} ${digits(view.at(point, axis))}`).join(", ")}.`;
    const tell = () => { say.textContent = sentence; };
    if (picked) tell();
    return el("button", {
      className: "point", tabIndex: picked ? 0 : -1, "aria-pressed": String(picked), "aria-label": sentence, dataset: { focus: `point-${point}` },
      onmouseenter: tell, onfocus: tell, onclick: () => pick(point),
      style: { left: `${x - 7}px`, top: `${y - 7}px`, background: hue === null ? "" : hueOf(hue, theme), borderColor: hue === null ? inks.muted : inks.paper },
    });
  });
  buttons.forEach((button, i) => {
    button.onkeydown = (event) => {
      const next = buttons[i + ({ ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key] || NaN)];
      if (next) { event.preventDefault(); next.focus(); }
    };
    const [x, y] = spot(view, i);
    if (view.letters[i] || i === view.picked) board.append(el("span", { className: "tag", style: { left: `${x + 8}px`, top: `${y - 8}px` } }, view.names[i]));
  });
  board.append(...buttons);
  return board;
}

function legend(view, inks) {
  const dash = `repeating-linear-gradient(90deg, ${inks.muted} 0 5px, transparent 5px 9px)`;
  return el("div", { className: "legend" }, el("span", {}, "filled: has a name, in the colour of its first; hollow: no clear role"),
    view.axes.some((axis) => view.measure(axis).control !== null) ? legendSwatch(dash, "control") : null);
}

function rowsOf(view) {
  return [["head", "names", ...view.measures.map((measure) => measure.words)],
    ["control", "", ...view.measures.map((measure) => measure.control ?? "")], ...view.names.map((name, i) => [name, view.letters[i], ...view.measures.map((measure) => view.at(i, measure.name))])];
}

function svgOf(view, theme, inks) {
  const points = view.names.map((name, i) => {
    const [x, y] = spot(view, i), hue = view.hues[i];
    return `<circle cx="${x.toFixed(1)}" cy="${y.toFixed(1)}" r="5" fill="${hue === null ? inks.paper : hueOf(hue, theme)}" stroke="${inks.muted}"/>` + (view.letters[i] ? svgText(x + 8, y + 4, name, { size: 10, ink: inks.ink }) : "");
  });
  return svgDocument(view.plan.width, TALL, inks, frame(view, inks) + points.join(""));
}
