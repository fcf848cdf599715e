// Every picture has this too: packed arrays, colours, legends, exports.

// Numbers come as base64, or from a feed as they are.
const FLOAT = (given) => (given instanceof Float32Array ? given : new Float32Array(BYTES(given).buffer));

function BYTES(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

function mix(from, to, t) {
  const a = rgb(from), b = rgb(to);
  return `#${a.map((v, i) => Math.round(v + (b[i] - v) * t).toString(16).padStart(2, "0")).join("")}`;
}

// The width to draw for. It is measured once and then kept up to date by onWidth: asking again would force a layout.
function widthOf(parentElement) {
  const keep = memory(parentElement);
  keep.width ??= Math.floor(parentElement.querySelector(".root").clientWidth);
  return keep.width;
}

// Draw again whenever the width changes; returns the clean-up.
function onWidth(parentElement, draw) {
  const keep = memory(parentElement);
  const observer = new ResizeObserver(([entry]) => {
    const now = Math.floor(entry.contentRect.width);
    if (now > 0 && Math.abs(now - keep.width) > 2) {
      keep.width = now;
      draw();
    }
  });
  observer.observe(parentElement.querySelector(".root"));
  return () => observer.disconnect();
}

function hueOf(kvHead, theme) {
  const hues = PALETTE.hues[theme];
  return hues[kvHead % hues.length];
}

function digits(weight) {
  if (weight !== 0 && Math.abs(weight) < 5e-4) return weight.toExponential(0);
  return weight.toFixed(3);
}

// How full a cell is painted, 0 to 1; null for a weight below the log scale.
function fullness(weight, scale, rowMax) {
  if (scale === "log") return weight < PALETTE.logFloor ? null : 1 - Math.log(weight) / Math.log(PALETTE.logFloor);
  if (scale === "row") return rowMax > 0 ? weight / rowMax : 0;
  return weight;
}

function hatchPattern(context, inks) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const pen = tile.getContext("2d");
  pen.strokeStyle = inks.hatch;
  pen.lineWidth = 1.2;
  for (const shift of [-8, 0, 8]) {
    pen.beginPath();
    pen.moveTo(shift, 8);
    pen.lineTo(shift + 8, 0);
    pen.stroke();
  }
  return context.createPattern(tile, "repeat");
}

function sizedCanvas(width, height) {
  const ratio = window.devicePixelRatio || 1;
  const canvas = el("canvas", { width: Math.round(width * ratio), height: Math.round(height * ratio) });
  Object.assign(canvas.style, { width: `${width}px`, height: `${height}px`, display: "block" });
  canvas.getContext("2d").scale(ratio, ratio);
  return canvas;
}

function legendRamp(from, to, low, high, name) {
  const ramp = el("span", { className: "ramp", style: { background: `linear-gradient(90deg, ${from}, ${to})` } });
  return el("span", { className: "item" }, el("span", { className: "num" }, low), ramp, el("span", { className: "num" }, high), name);
}

function legendSwatch(background, name) {
  return el("span", { className: "item" }, el("span", { className: "swatch", style: { background } }), name);
}

function hatchCss(inks) {
  return `repeating-linear-gradient(135deg, ${inks.hatch} 0 1px, transparent 1px 5px)`;
}

// --- getting it out -------------------------------------------------------------------------------------------------

function escapeXml(text) {
  return text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, "");
}

function svgText(x, y, text, { size = 12, ink, anchor = "start", rotate = 0, weight = 400 }) {
  const turn = rotate ? ` transform="rotate(${rotate} ${x} ${y})"` : "";
  return `<text x="${x}" y="${y}" font-size="${size}" font-weight="${weight}" fill="${ink}" text-anchor="${anchor}"${turn}>${escapeXml(text)}</text>`;
}

function svgRect(x, y, width, height, fill, extra = "") {
  return `<rect x="${x}" y="${y}" width="${width}" height="${height}" fill="${fill}" ${extra}/>`;
}

function svgDocument(width, height, inks, body) {
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="sans-serif">` +
    `<defs><pattern id="hidden" width="6" height="6" patternUnits="userSpaceOnUse"><path d="M0 6L6 0" stroke="${inks.hatch}" fill="none"/></pattern></defs>` +
    `${svgRect(0, 0, width, height, inks.paper)}${body}</svg>`;
}

// SVG text as an element: it is parsed as XML, and all text in it was escaped.
const node = (svg) => document.importNode(new DOMParser().parseFromString(svg, "image/svg+xml").documentElement, true);

function save(name, blob) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

async function pngOf(svg) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = el("canvas", { width: image.width * 2, height: image.height * 2 });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

function csvOf(rows) {
  const quote = (value) => (/[",\n\r]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  return rows.map((row) => row.map(quote).join(",")).join("\r\n") + "\r\n";
}

function tableOf(rows) {
  const [head, ...body] = rows;
  const cell = (value) => (typeof value === "number" && !Number.isInteger(value) ? digits(value) : String(value));
  return el("div", { className: "twin", tabIndex: 0, role: "region", "aria-label": "The same numbers as a table" },
    el("table", {},
      el("thead", {}, el("tr", {}, head.map((name) => el("th", { scope: "col" }, String(name))))),
      el("tbody", {}, body.map((row) => el("tr", {},
        row.map((value, i) => (i === 0 ? el("th", { scope: "row" }, String(value)) : el("td", {}, cell(value)))))))));
}

// The row of exports under a figure, and its table twin, which is only built when asked for.
function tools(name, { svg, rows, recipe }, open, onOpen) {
  const slot = el("div");
  const show = (wanted) => slot.replaceChildren(...(wanted ? [tableOf(rows())] : []));
  const button = (label, action) => el("button", { onclick: action, dataset: { focus: `tool-${label}` } }, label);
  const table = button(open ? "hide table" : "as a table", () => {
    open = !open;
    table.textContent = open ? "hide table" : "as a table";
    table.setAttribute("aria-expanded", String(open));
    onOpen(open);
    show(open);
  });
  show(open);
  const text = (kind, make) => button(kind.toUpperCase(), () => save(`${name}.${kind}`, new Blob([make()], { type: `text/${kind}` })));
  return el("div", {},
    el("div", { className: "tools" }, table,
      button("PNG", async () => save(`${name}.png`, await pngOf(svg()))),
      button("SVG", () => save(`${name}.svg`, new Blob([svg()], { type: "image/svg+xml" }))),
      text("csv", () => csvOf(rows())),
      button("recipe", () => save(`${name}.json`, new Blob([JSON.stringify(recipe, null, 2)], { type: "application/json" })))),
    slot);
}
