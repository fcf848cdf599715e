// A bar for each layer, as high as what it keeps; behind it, hatched, what it would keep if windows were ignored.

const LEFT = 66, TOP = 8, TALL = 104, BOTTOM = 22, LEAST = 2;

export default function ({ data, parentElement }) {
  const keep = memory(parentElement);
  const draw = () => rebuild(parentElement, (root, theme, inks) => {
    const plan = layOut(data, Math.max(260, widthOf(parentElement)), theme, inks);
    const strip = el("div", { className: "strip", tabIndex: 0, role: "group", "aria-label": `${data.title}; arrow keys read off a layer`, dataset: { focus: "strip" } }, node(svgOf(data, plan)));
    const say = el("p", { className: "say", "aria-live": "polite" }, "Point at a layer, or use the arrow keys, to read it off.");
    const kinds = data.kinds.map(([, words], i) => legendSwatch(plan.hue(i), words));
    if (data.layers.some(([, kept, all]) => all > kept)) kinds.push(legendSwatch(hatchCss(inks), "not kept, thanks to windows"));
    root.append(el("h3", {}, data.title), strip, say, el("div", { className: "legend" }, kinds), el("p", { className: "caption" }, data.caption),
      tools(data.file, { svg: () => svgOf(data, plan), rows: () => table(data), recipe: data.recipe }, keep.open, (open) => { keep.open = open; }));
    wire(strip, say, data, plan, keep);
  });
  if (!upToDate(parentElement, data)) draw();
  return onWidth(parentElement, draw);
}

function layOut(data, width, theme, inks) {
  const top = Math.max(1, ...data.layers.map(([, kept, all]) => Math.max(kept, all)));
  const step = (width - LEFT) / data.layers.length;
  return { width, top, step, inks, bar: Math.max(1, Math.min(step - Math.min(3, step * 0.25), 60)), high: (bytes) => (bytes ? Math.max(LEAST, (TALL * bytes) / top) : 0), hue: (kind) => hueOf(data.kinds[kind][2], theme) };
}

function svgOf(data, { width, top, step, bar, high, inks, hue }) {
  const floor = TOP + TALL, last = data.layers.length - 1, parts = [];
  for (const [value, y] of [[top, TOP], [top / 2, TOP + TALL / 2], [0, floor]]) {
    parts.push(`<line x1="${LEFT}" y1="${y}" x2="${width}" y2="${y}" stroke="${inks.line}"/>`, svgText(LEFT - 7, y + 4, bytesText(value), { size: 11, ink: inks.muted, anchor: "end" }));
  }
  data.layers.forEach(([kind, kept, all], i) => {
    const x = LEFT + i * step, ghost = high(all), tall = high(kept);
    if (all > kept) parts.push(svgRect(x, floor - ghost, bar, ghost, "url(#hidden)", `stroke="${inks.hatch}"`));
    parts.push(tall ? svgRect(x, floor - tall, bar, tall, hue(kind)) : svgRect(x, floor - 4, bar, 4, hue(kind), 'fill-opacity="0.45"'));
  });
  const every = Math.ceil(28 / step);
  for (let i = 0; i <= last; i += every) parts.push(svgText(LEFT + i * step + bar / 2, floor + 15, String(i), { size: 11, ink: inks.muted, anchor: "middle" }));
  parts.push(svgText(LEFT - 7, floor + 17, "layer", { size: 11, ink: inks.muted, anchor: "end" }));
  return svgDocument(width, floor + BOTTOM, inks, parts.join(""));
}

function wire(strip, say, data, plan, keep) {
  const frame = el("div", { className: "at", hidden: true, style: { top: `${TOP - 4}px`, height: `${TALL + 8}px`, width: `${plan.bar + 6}px` } });
  strip.append(frame);
  const show = (i) => {
    const [kind, kept, all] = data.layers[i];
    keep.at = i;
    frame.hidden = false;
    frame.style.left = `${LEFT + i * plan.step - 3}px`;
    say.textContent = `Layer ${i}, ${data.kinds[kind][0]}: ${bytesText(kept)} (${kept.toLocaleString("en-US")} B)${all > kept ? `; ${bytesText(all)} if windows were ignored` : ""}`;
  };
  const last = data.layers.length - 1;
  strip.onpointermove = (event) => show(Math.min(last, Math.max(0, Math.floor((event.clientX - strip.getBoundingClientRect().left - LEFT) / plan.step))));
  strip.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    show(Math.min(last, Math.max(0, (keep.at ?? -step) + step)));
  };
}

function table(data) {
  return [["layer", "kind", "bytes", "bytes, windows ignored"], ...data.layers.map(([kind, kept, all], i) => [i, data.kinds[kind][0], kept, all])];
}
