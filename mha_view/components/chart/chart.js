// Lines or stacked bars on shared axes. The same SVG text is shown and exported; pointing and arrow keys read off every series at one x.

const DASH = ["", "7 4", "2 3", "10 3 2 3", "4 2", "12 4"], TOP = 10, BOTTOM = 42;
const MARK = [
  (x, y) => `M${x - 3.5} ${y}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0Z`,
  (x, y) => `M${x - 3.2} ${y - 3.2}h6.4v6.4h-6.4Z`,
  (x, y) => `M${x} ${y - 4.2}l4.2 7.4h-8.4Z`,
  (x, y) => `M${x} ${y - 4.6}l4.6 4.6l-4.6 4.6l-4.6 -4.6Z`,
  (x, y) => `M${x - 4.2} ${y - 3.2}h8.4l-4.2 7.4Z`,
];

export default function ({ data, parentElement }) {
  const keep = memory(parentElement);
  const draw = () => rebuild(parentElement, (root, theme, inks) => {
    const plan = layOut(data, Math.max(260, Math.min(widthOf(parentElement), 900)), theme, inks);
    const chart = el("div", { className: "chart", tabIndex: 0, role: "group", "aria-label": `${data.title}; arrow keys read it off`, dataset: { focus: "chart" }, style: { width: `${plan.width}px` } }, node(svgOf(data, plan)));
    const say = el("p", { className: "say", "aria-live": "polite" });
    root.append(el("h3", {}, data.title), chart, say, legend(data, plan), el("p", { className: "caption" }, data.caption),
      tools(data.file, { svg: () => svgOf(data, plan, true), rows: () => table(data), recipe: data.recipe }, keep.open, (open) => { keep.open = open; }));
    wire(chart, say, data, plan, keep);
  });
  if (!upToDate(parentElement, data)) draw();
  return onWidth(parentElement, draw);
}

function reach(values, wanted) {
  const all = [...values, ...(wanted || [])];
  return all.length ? [Math.min(...all), Math.max(...all)] : [0, 1];
}

function ticks([low, high], count) {
  const rough = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power, found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(+(i * step).toPrecision(12));
  return found;
}

// Ticks with both ends of the axis, each in place of a tick that would touch it.
function ended([low, high], count) {
  const inner = ticks([low, high], count), step = inner[1] - inner[0] || 0;
  return [low, ...inner.filter((value) => value - low >= step / 2 && high - value >= step / 2), high];
}

// Where each point is drawn: at its value, or on top of the series before it.
function heights(data) {
  if (!data.stacked) return data.series.map((one) => one.y);
  const below = new Map();
  return data.series.map((one) => one.x.map((x, at) => (below.set(x, (below.get(x) || 0) + one.y[at]), below.get(x))));
}

// Steps of the y axis: round numbers, of bytes round in their unit; on a log axis powers of two.
function levels(data, [low, high]) {
  if (data.log) {
    const first = Math.ceil(Math.log2(low)), last = Math.floor(Math.log2(high)), step = Math.max(1, Math.ceil((last - first) / 6));
    return Array.from({ length: Math.max(1, Math.floor((last - first) / step) + 1) }, (_, i) => 2 ** (first + i * step));
  }
  const size = data.bytes ? (UNITS.find((unit) => high >= unit[1]) || ["B", 1])[1] : 1;
  return ticks([low / size, high / size], 5).map((value) => value * size);
}

function layOut(data, width, theme, inks) {
  const of = (name) => data.series.flatMap((one) => one[name]), tops = heights(data);
  const x = reach(of("x"), data.xRange), stops = stopsOf(data);
  const y = reach(data.bars ? stops.map((at) => total(data, at)) : [...tops.flat(), ...of("low"), ...of("high"), ...(data.stacked ? [0] : [])], data.yRange);
  const LEFT = data.bytes ? 66 : 52, RIGHT = data.series.some((one) => one.look === "fan") ? 76 : 14;
  const height = Math.round(Math.min(380, Math.max(data.bytes ? 280 : 220, width * 0.5))), wide = width - LEFT - RIGHT, tall = height - TOP - BOTTOM;
  const place = data.doubling ? Math.log2 : (value) => value, [first, last] = x.map(place);
  const across = (value) => { const t = data.bars ? (stops.indexOf(value) + 0.5) / stops.length : (place(value) - first) / (last - first || 1); return +(LEFT + wide * (data.falling ? 1 - t : t)).toFixed(2); };
  const rise = data.log ? Math.log2 : (value) => value, [bottom, top] = y.map(rise);
  const down = (value) => +(TOP + tall * (1 - (rise(value) - bottom) / (top - bottom || 1))).toFixed(2);
  return { width, height, wide, tall, x, y, across, down, inks, tops, LEFT, RIGHT, hue: (i) => hueOf(data.series[i].hue, theme) };
}

const total = (data, x) => data.series.reduce((sum, one) => sum + (one.y[one.x.indexOf(x)] ?? 0), 0);
const compact = (value) => (Math.abs(value) < 10000 ? String(value) : new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(value));
const stopsOf = (data) => [...new Set(data.series.flatMap((one) => one.x))].sort((a, b) => (data.falling ? b - a : a - b));

function svgOf(data, plan, whole = false) {
  const { inks, across, down, LEFT, RIGHT } = plan, parts = [], bottom = plan.height - BOTTOM;
  const line = (x1, y1, x2, y2) => `<line x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}" stroke="${inks.line}"/>`;
  for (const value of levels(data, plan.y)) parts.push(line(LEFT, down(value), plan.width - RIGHT, down(value)), svgText(LEFT - 7, down(value) + 4, data.bytes ? bytesText(value) : compact(value), { size: 11, ink: inks.muted, anchor: "end" }));
  const marks = data.xTicks || (data.doubling || data.bars ? stopsOf(data) : ended(plan.x, plan.width < 420 ? 5 : 10)).map((value) => [value, String(value)]);
  for (const [value, label] of marks) parts.push(line(across(value), bottom, across(value), bottom + 4), svgText(across(value), bottom + 16, label, { size: 11, ink: value === data.marked ? inks.ink : inks.muted, weight: value === data.marked ? 700 : 400, anchor: "middle" }));
  parts.push(svgText(LEFT + plan.wide / 2, plan.height - 8, data.xLabel, { ink: inks.muted, anchor: "middle" }), svgText(14, TOP + plan.tall / 2, data.yLabel, { ink: inks.muted, anchor: "middle", rotate: -90 }));
  parts.push(...(data.bars ? stopsOf(data).map((x) => stack(data, plan, x)) : lines(data, plan)));
  if (!whole) return svgDocument(plan.width, plan.height, inks, parts.join(""));
  data.series.forEach((one, i) => { const y = plan.height + 14 + 18 * i; parts.push(swatch(data, LEFT, y - 4, i, plan), svgText(LEFT + 42, y, one.name, { ink: inks.ink })); });
  const end = plan.height + 18 * data.series.length;
  parts.push(svgText(LEFT, end + 20, data.title, { weight: 600, ink: inks.ink }));
  return svgDocument(plan.width, end + 34, inks, parts.join(""));
}

// One bar: its series from the bottom up with their names, where there is room, and the sum on top.
function stack(data, { across, down, hue, wide, inks }, x) {
  const room = wide / stopsOf(data).length, broad = Math.min(64, room * 0.72), left = across(x) - broad / 2, parts = [];
  let sum = 0;
  data.series.forEach((one, i) => {
    const value = one.y[one.x.indexOf(x)] ?? 0, top = down(sum + value), tall = down(sum) - top;
    parts.push(svgRect(left, top, broad, Math.max(tall - 1, 0.5), hue(i), 'fill-opacity="0.85"'));
    if (tall >= 14 && broad >= 30) parts.push(svgText(across(x), top + tall / 2 + 4, one.name, { size: 11, ink: inks.paper, anchor: "middle" }));
    sum += value;
  });
  const told = [sum.toLocaleString("en"), compact(sum)].find((text) => text.length * 6.6 < room) ?? (x === data.marked ? compact(sum) : "");
  return parts.join("") + svgText(across(x), down(sum) - 4, told, { size: 11, weight: x === data.marked ? 700 : 400, ink: inks.ink, anchor: "middle" });
}

// Bands or areas, and on them the lines; what the chart is about lies on top.
function lines(data, plan) {
  const points = (i) => data.series[i].x.map((x, at) => [plan.across(x), plan.down(plan.tops[i][at])]);
  const order = data.series.map((_, i) => i).sort((a, b) => (data.series[a].look === "main") - (data.series[b].look === "main"));
  return [...data.series.map((one, i) => (data.stacked ? area(one, plan, i) : band(one, plan, i))), ...order.map((i) => sample(points(i), i, plan, data.series[i].look)), ends(data, plan, points)];
}

function band(one, { across, down, hue }, i) {
  if (!one.low.length) return "";
  const upper = one.x.map((x, at) => `${across(x)},${down(one.high[at])}`), lower = one.x.map((x, at) => `${across(x)},${down(one.low[at])}`).reverse();
  return `<polygon points="${[...upper, ...lower].join(" ")}" fill="${hue(i)}" fill-opacity="0.16"/>`;
}

// An area between a series and those it stands on.
function area(one, { across, down, hue, tops }, i) {
  const upper = one.x.map((x, at) => `${across(x)},${down(tops[i][at])}`), lower = one.x.map((x, at) => `${across(x)},${down(tops[i][at] - one.y[at])}`).reverse();
  return `<polygon points="${[...upper, ...lower].join(" ")}" fill="${hue(i)}" fill-opacity="0.3"/>`;
}

// The names of a family's lines where they end, pushed apart so that each can be read.
function ends(data, { inks, width, RIGHT, height }, points) {
  const found = data.series.map((one, i) => ({ name: one.name, look: one.look, y: points(i).at(-1)?.[1] })).filter((one) => one.look === "fan").sort((a, b) => a.y - b.y);
  found.forEach((one, i) => { one.at = Math.max(one.y, i ? found[i - 1].at + 12 : TOP); });
  found.reverse().forEach((one, i) => { one.at = Math.min(one.at, i ? found[i - 1].at - 12 : height - BOTTOM); });
  return found.map((one) => svgText(width - RIGHT + 6, one.at + 4, one.name, { size: 11, ink: inks.muted })).join("");
}

// A line through points with its dash, and its marker on them; every second or third where they would touch.
function sample(points, i, { hue, inks }, look = "") {
  if (!points.length) return "";
  const path = points.map((point) => point.join(",")).join(" ");
  if (look === "fan") return `<polyline points="${path}" fill="none" stroke="${inks.muted}" stroke-opacity="0.7"/>`;
  if (look === "main") return `<polyline points="${path}" fill="none" stroke="${hue(0)}" stroke-width="4" stroke-linecap="round"/>`;
  const every = points.length > 2 ? Math.max(1, Math.ceil(12 / Math.abs(points[1][0] - points[0][0]))) : 1, ink = hue(i);
  const marks = points.filter((_, at) => at % every === 0 || at === points.length - 1).map(([x, y]) => MARK[i % MARK.length](x, y)).join("");
  return `<polyline points="${path}" fill="none" stroke="${ink}" stroke-width="2" stroke-dasharray="${DASH[i % DASH.length]}"/><path d="${marks}" fill="${ink}"/>`;
}

const swatch = (data, x, y, i, plan) => (data.bars ? svgRect(x, y - 5, 26, 10, plan.hue(i)) : sample([[x, y], [x + 26, y]], i, plan, data.series[i].look));

function legend(data, plan) {
  const item = (one, i) => el("span", { className: "item" }, node(`<svg xmlns="http://www.w3.org/2000/svg" width="36" height="12">${swatch(data, 5, 6, i, plan)}</svg>`), one.name);
  return el("div", { className: "legend" }, data.series.map(item));
}

const rounded = (value, data) => (data.bytes ? bytesText(value) : Number.isInteger(value) ? String(value) : digits(value));

function sentence(data, x) {
  const parts = data.series.flatMap((one) => {
    const at = one.x.indexOf(x);
    if (at < 0) return [];
    return [`${one.name} ${rounded(one.y[at], data)}${one.low.length ? ` (${rounded(one.low[at], data)} to ${rounded(one.high[at], data)})` : ""}`];
  });
  if (data.bars) parts.push(`together ${total(data, x)}`);
  return `${data.xLabel} ${x.toLocaleString("en-US")}: ${parts.join(" · ")}`;
}

function wire(chart, say, data, plan, keep) {
  const stops = stopsOf(data);
  if (!stops.length) return;
  const guide = el("div", { className: "at", hidden: true, style: { top: `${TOP}px`, height: `${plan.tall}px` } });
  chart.append(guide);
  const show = (index) => {
    keep.at = index;
    guide.hidden = false;
    guide.style.left = `${plan.across(stops[index])}px`;
    say.textContent = sentence(data, stops[index]);
  };
  chart.onpointermove = (event) => {
    const x = event.clientX - chart.getBoundingClientRect().left;
    show(stops.reduce((best, stop, i) => (Math.abs(plan.across(stop) - x) < Math.abs(plan.across(stops[best]) - x) ? i : best), 0));
  };
  chart.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    show(Math.min(stops.length - 1, Math.max(0, (keep.at ?? -step) + step)));
  };
  say.textContent = "Point at the chart, or use the arrow keys, to read it off.";
}

function table(data) {
  const stops = stopsOf(data);
  const names = data.series.flatMap((one) => (one.low.length ? [one.name, `${one.name}, lowest`, `${one.name}, highest`] : [data.bytes ? `${one.name}, bytes` : one.name]));
  const cells = (one, x) => { const at = one.x.indexOf(x), of = one.low.length ? [one.y, one.low, one.high] : [one.y]; return of.map((list) => (at < 0 ? "" : list[at])); };
  return [[data.xLabel, ...names], ...stops.map((x) => [x, ...data.series.flatMap((one) => cells(one, x))])];
}
