// Tokens left and right, one line per weight. Hover a token, show one head alone: all of it happens here.

const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3], [12, 5], [4, 2]];
const CSS_DASHES = ["solid", "dashed", "dotted"];

export default function ({ data, parentElement }) {
  const keep = memory(parentElement);
  const view = { ...data, from: BYTES(data.from), to: BYTES(data.to), head: BYTES(data.head), weight: FLOAT(data.weight) };
  if (keep.stamp !== data.stamp) Object.assign(keep, { stamp: data.stamp, alone: null });
  const draw = () => rebuild(parentElement, (root, theme, inks) => build(root, theme, inks, view, keep, draw, widthOf(parentElement)));
  draw();
  return onWidth(parentElement, draw);
}

function build(root, theme, inks, view, keep, draw, room) {
  const n = view.labels.length, rowHeight = n > 40 ? 14 : 24, width = Math.min(room, 620), side = Math.min(110, width / 4);
  const say = el("p", { className: "say", "aria-live": "polite" });
  const wires = el("div", { className: "wires", style: { width: `${width}px`, height: `${n * rowHeight}px` } });
  const canvas = sizedCanvas(width, n * rowHeight);
  wires.append(canvas);
  const plan = { rowHeight, width, side, theme, inks };
  const focus = (token, isFrom) => {
    drawLines(canvas, view, keep, plan, token, isFrom);
    say.textContent = token === null ? hint(view, keep) : sentence(view, keep, token, isFrom);
  };
  for (const isFrom of [true, false]) view.labels.forEach((label, i) => wires.append(tokenButton(label, i, isFrom, plan, keep, focus)));
  root.append(el("h3", {}, view.title), headButtons(view, keep, theme, draw), wires, say);
  root.append(legend(view, plan), el("p", { className: "caption" }, view.caption),
    tools(view.file, { svg: () => svgOf(view, keep, plan), rows: () => table(view, keep), recipe: view.recipe }, keep.open, (open) => { keep.open = open; }));
  focus(null, true);
}

const shown = (keep, head) => keep.alone === null || keep.alone === undefined || keep.alone === head;

function headButtons(view, keep, theme, draw) {
  return el("div", { className: "heads", role: "toolbar", "aria-label": "show one head alone" }, view.kv.map((kv, head) =>
    el("button", {
      "aria-pressed": String(shown(keep, head)), dataset: { focus: `alone-${head}` },
      title: keep.alone === head ? "show all heads" : `show head ${head} alone`,
      onclick: () => { keep.alone = keep.alone === head ? null : head; draw(); },
    }, el("span", { className: "dash", style: { borderTopColor: hueOf(kv, theme), borderTopStyle: CSS_DASHES[view.dash[head] % 3] } }), `H${head}`)));
}

function tokenButton(label, i, isFrom, plan, keep, focus) {
  const button = el("button", {
    className: isFrom ? "token from" : "token", title: label, dataset: { focus: `${isFrom ? "from" : "to"}-${i}`, token: i },
    "aria-label": isFrom ? `what \u201c${label}\u201d looks at` : `who looks at \u201c${label}\u201d`,
    style: { top: `${i * plan.rowHeight}px`, height: `${plan.rowHeight}px`, lineHeight: `${plan.rowHeight}px`, width: `${plan.side - 6}px`, left: isFrom ? "0" : `${plan.width - plan.side + 6}px` },
  }, label);
  button.onmouseenter = button.onfocus = () => focus(i, isFrom);
  button.onmouseleave = button.onblur = () => focus(null, isFrom);
  return button;
}

function eachLine(view, keep, visit) {
  for (let i = 0; i < view.weight.length; i++) if (shown(keep, view.head[i])) visit(view.from[i], view.to[i], view.head[i], view.weight[i]);
}

function ends(plan, from, to) {
  return [plan.side, (from + 0.5) * plan.rowHeight, plan.width - plan.side, (to + 0.5) * plan.rowHeight];
}

function drawLines(canvas, view, keep, plan, token, isFrom) {
  const pen = canvas.getContext("2d");
  pen.clearRect(0, 0, canvas.width, canvas.height);
  eachLine(view, keep, (from, to, head, weight) => {
    const lit = token === null || (isFrom ? from : to) === token;
    pen.globalAlpha = lit ? Math.max(0.06, weight) : 0.03;
    pen.strokeStyle = hueOf(view.kv[head], plan.theme);
    pen.lineWidth = 0.8 + 2.4 * weight;
    pen.setLineDash(DASHES[view.dash[head] % DASHES.length]);
    const [x1, y1, x2, y2] = ends(plan, from, to);
    pen.beginPath();
    pen.moveTo(x1, y1);
    pen.lineTo(x2, y2);
    pen.stroke();
  });
  pen.globalAlpha = 1;
}

function hint(view, keep) {
  return keep.alone === null || keep.alone === undefined ? "Hover or tab to a token; press a head to see it alone." : `Head ${keep.alone} alone; press it again for all heads.`;
}

function sentence(view, keep, token, isFrom) {
  const found = [];
  eachLine(view, keep, (from, to, head, weight) => { if ((isFrom ? from : to) === token) found.push([weight, head, isFrom ? to : from]); });
  found.sort((a, b) => b[0] - a[0]);
  const told = found.slice(0, 4).map(([weight, head, other]) => `${view.labels[other]} ${digits(weight)} (H${head})`).join(", ");
  const start = isFrom ? `\u201c${view.labels[token]}\u201d looks at` : `\u201c${view.labels[token]}\u201d is looked at by`;
  return told ? `${start} ${told}` : `${start} nothing above ${digits(view.threshold)}`;
}

function table(view, keep) {
  const rows = [];
  eachLine(view, keep, (from, to, head, weight) => rows.push([view.labels[from], view.labels[to], head, view.kv[head], from, to, weight]));
  return [["from", "to", "head", "KV head", "from (position)", "to (position)", "weight"], ...rows];
}

function legend(view, plan) {
  return el("div", { className: "legend" }, legendRamp(plan.inks.tile, plan.inks.ink, digits(view.threshold), "1", "weight: strength of the line"),
    el("span", {}, "hue: KV head; dash: query head within it"));
}

function svgOf(view, keep, plan) {
  const parts = [], n = view.labels.length;
  eachLine(view, keep, (from, to, head, weight) => {
    const [x1, y1, x2, y2] = ends(plan, from, to), dash = DASHES[view.dash[head] % DASHES.length].join(" ");
    parts.push(`<line x1="${x1}" y1="${y1 + 30}" x2="${x2}" y2="${y2 + 30}" stroke="${hueOf(view.kv[head], plan.theme)}" stroke-opacity="${Math.max(0.06, weight).toFixed(3)}" stroke-width="${(0.8 + 2.4 * weight).toFixed(2)}" stroke-dasharray="${dash}"/>`);
  });
  view.labels.forEach((label, i) => {
    const y = (i + 0.5) * plan.rowHeight + 34;
    parts.push(svgText(plan.side - 8, y, label, { ink: plan.inks.ink, anchor: "end" }), svgText(plan.width - plan.side + 8, y, label, { ink: plan.inks.ink }));
  });
  parts.push(svgText(8, 18, view.title, { size: 14, weight: 600, ink: plan.inks.ink }), svgText(8, n * plan.rowHeight + 48, view.caption, { size: 10, ink: plan.inks.muted }));
  return svgDocument(plan.width, n * plan.rowHeight + 60, plan.inks, parts.join(""));
}
