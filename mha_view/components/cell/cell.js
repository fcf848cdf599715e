// How one weight comes about: the products of q and k, their sum, the scale, the softmax, and the value it carries.

const BAR_HEIGHT = 74;

export default function ({ data, parentElement }) {
  const keep = memory(parentElement);
  const view = { ...data, q: FLOAT(data.q), k: FLOAT(data.k), products: FLOAT(data.products), value: FLOAT(data.value) };
  const draw = () => rebuild(parentElement, (root, theme, inks) => build(root, theme, inks, view, keep, widthOf(parentElement)));
  draw();
  return onWidth(parentElement, draw);
}

const number = (value) => (Math.abs(value) >= 1e4 || (value !== 0 && Math.abs(value) < 5e-3) ? value.toExponential(1) : value.toFixed(2)).replace("-", "\u2212");

function build(root, theme, inks, view, keep, room) {
  const panel = el("section", { className: "panel" }, el("h3", {}, view.title));
  root.append(panel);
  const grid = el("div", { className: room > 700 ? "two" : "two narrow" });
  const say = el("p", { className: "terms", "aria-live": "polite" });
  const hue = hueOf(view.kv, theme), width = Math.min(340, Math.max(200, room - 60));
  grid.append(el("div", {},
    bars(view.products, hue, inks, width, (i) => { say.textContent = `dimension ${i}: ${number(view.q[i])} \u00d7 ${number(view.k[i])} = ${number(view.products[i])}`; }),
    el("p", { className: "caption" }, `${view.products.length} products q\u1d62 k\u1d62, one per dimension of the head; full height is ${number(peak(view.products))}.`), say),
  el("div", {}, lines(view), valueBars(view, hue, inks, width, say)));
  panel.append(grid);
  const rows = () => [["dimension", "q", "k", "q times k", "v of the key", "weight times v"],
    ...[...view.products].map((product, i) => [i, view.q[i], view.k[i], product, view.value[i], view.weight * view.value[i]])];
  panel.append(tools(view.file, { svg: () => svgOf(view, hue, inks), rows, recipe: view.recipe }, keep.open, (open) => { keep.open = open; }));
}

function lines(view) {
  const b = (text) => el("b", { className: "num" }, text), what = (text) => el("span", { className: "what" }, ` ${text}`);
  const line = (...parts) => el("p", { className: "line" }, parts);
  const terms = view.products.length <= 8
    ? [...view.products].map((_, i) => `${number(view.q[i])}\u00b7${number(view.k[i])}`).join(" + ")
    : `${[0, 1, 2].map((i) => `${number(view.q[i])}\u00b7${number(view.k[i])}`).join(" + ")} + \u2026 (${view.products.length} terms)`;
  const out = [line("q\u00b7k = ", el("span", { className: "terms num" }, `${terms} = `), b(number(view.dot))),
    line("\u00f7 \u221a", String(view.headDim), " = ", b(number(view.score)), what("the score"))];
  if (!view.visible) return [...out, line("mask: hidden, weight ", b("0"), what("the softmax never sees this key"))];
  out.push(line("mask: visible", what(`one of ${view.nVisible} keys that \u201c${view.rowLabel}\u201d may see`)));
  out.push(line(`e^(${number(view.score)} \u2212 ${number(view.topScore)}) \u00f7 ${number(view.total)} = `, b(digits(view.weight)),
    what(`softmax over ${view.nVisible} visible ${view.nVisible === 1 ? "key" : "keys"}; ${number(view.topScore)} is the row's largest score`)));
  return [...out, line(b(digits(view.weight)), ` \u00d7 v(\u201c${view.keyLabel}\u201d)`, what(`goes into what \u201c${view.rowLabel}\u201d collects in this head`))];
}

function valueBars(view, hue, inks, width, say) {
  if (!view.visible) return null;
  return el("div", {}, bars(view.value, hue, inks, width, (i) => { say.textContent = `v, dimension ${i}: ${number(view.value[i])}; times the weight: ${number(view.weight * view.value[i])}`; }, 40),
    el("p", { className: "caption" }, `v of \u201c${view.keyLabel}\u201d: ${view.value.length} numbers; full height is ${number(peak(view.value))}.`));
}

const peak = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);

function bars(values, hue, inks, width, tell, height = BAR_HEIGHT) {
  const canvas = sizedCanvas(width, height), pen = canvas.getContext("2d");
  const step = width / values.length, top = peak(values) || 1, middle = height / 2;
  values.forEach((value, i) => {
    const tall = (Math.abs(value) / top) * (middle - 2);
    pen.fillStyle = value >= 0 ? hue : inks.other;
    pen.fillRect(i * step, value >= 0 ? middle - tall : middle, Math.max(0.6, step - (step > 4 ? 2 : 0)), tall);
  });
  pen.fillStyle = inks.muted;
  pen.fillRect(0, middle, width, 0.8);
  canvas.onmousemove = (event) => tell(Math.max(0, Math.min(values.length - 1, Math.floor(event.offsetX / step))));
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `${values.length} numbers as bars; the same numbers stand in the table`);
  return canvas;
}

function svgOf(view, hue, inks) {
  const width = 520, middle = 90, step = (width - 40) / view.products.length, top = peak(view.products) || 1;
  const parts = [...view.products].map((value, i) => {
    const tall = (Math.abs(value) / top) * 50;
    return svgRect(20 + i * step, value >= 0 ? middle - tall : middle, Math.max(0.6, step * 0.8), tall, value >= 0 ? hue : inks.other);
  });
  const text = view.visible
    ? `q\u00b7k = ${number(view.dot)}, \u00f7 \u221a${view.headDim} = ${number(view.score)}, softmax over ${view.nVisible} keys = ${digits(view.weight)}`
    : `q\u00b7k = ${number(view.dot)}, \u00f7 \u221a${view.headDim} = ${number(view.score)}, hidden by the mask`;
  parts.push(svgText(20, 24, view.title, { size: 14, weight: 600, ink: inks.ink }), svgText(20, 168, text, { ink: inks.ink }));
  return svgDocument(width, 184, inks, parts.join(""));
}
