// Parts of one memory as one bar. The line is where the memory ends.

const TOP = 22, TALL = 34, BOTTOM = 8;

export default function ({ data, parentElement }) {
  const keep = memory(parentElement);
  const draw = () => rebuild(parentElement, (root, theme, inks) => {
    const svg = () => svgOf(data, Math.max(260, widthOf(parentElement)), theme, inks);
    const items = data.parts.map(([name, bytes, hue]) => legendSwatch(hueOf(hue, theme), `${name} ${bytesText(bytes)}`));
    const used = data.parts.reduce((sum, [, bytes]) => sum + bytes, 0), left = data.memory - used;
    items.push(legendSwatch(left < 0 ? "transparent" : inks.tile, left < 0 ? `${bytesText(-left)} too much` : `${bytesText(left)} left`));
    root.append(el("h3", {}, data.title), node(svg()),
      el("div", { className: "legend" }, items), el("p", { className: "caption" }, data.caption),
      tools(data.file, { svg, rows: () => [["part", "bytes"], ...data.parts.map(([name, bytes]) => [name, bytes]), ["memory", data.memory]], recipe: data.recipe }, keep.open, (open) => { keep.open = open; }));
  });
  if (!upToDate(parentElement, data)) draw();
  return onWidth(parentElement, draw);
}

function svgOf(data, width, theme, inks) {
  const used = data.parts.reduce((sum, [, bytes]) => sum + bytes, 0), scale = (width - 2) / Math.max(used, data.memory, 1);
  const end = data.memory * scale, parts = [svgRect(0, TOP, end, TALL, inks.tile, `stroke="${inks.line}"`)];
  let x = 0;
  for (const [, bytes, hue] of data.parts) {
    parts.push(svgRect(x, TOP, bytes * scale, TALL, hueOf(hue, theme)));
    x += bytes * scale;
  }
  const label = `memory ${bytesText(data.memory)}`, anchor = end > width / 2 ? "end" : "start";
  parts.push(`<line x1="${end}" y1="${TOP - 8}" x2="${end}" y2="${TOP + TALL + 4}" stroke="${used > data.memory ? inks.bad : inks.ink}" stroke-width="2"/>`, svgText(anchor === "end" ? end - 6 : end + 6, TOP - 6, label, { size: 11, ink: inks.muted, anchor }));
  return svgDocument(width, TOP + TALL + BOTTOM, inks, parts.join(""));
}
