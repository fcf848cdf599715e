// Pictures of matrices: signed colours, pooled bitmaps, digits.

const num = (value) => (value !== 0 && (Math.abs(value) >= 1e4 || Math.abs(value) < 5e-4) ? value.toExponential(1) : value.toFixed(3)).replace("-", "\u2212");
const short = (value) => value.toFixed(2).replace(/^(-?)0\./, "$1.").replace("-", "\u2212");

// Above zero in the hue of the KV head (in the stream's colour where no head is involved), below zero in grey.
function rampsFor(kv, theme, inks) {
  const ramp = (full) => Array.from({ length: 256 }, (_, step) => rgb(mix(inks.tile, full, step / 255)));
  return { above: ramp(kv === null ? inks.stream : hueOf(kv, theme)), below: ramp(inks.other) };
}

// The largest in size of each block of cells, at most `most` blocks a side: what a thumbnail of a large matrix shows.
function pooled(values, rows, cols, most = 256) {
  const tall = Math.ceil(rows / most), wide = Math.ceil(cols / most);
  if (tall === 1 && wide === 1) return { values, rows, cols, tall, wide };
  const R = Math.ceil(rows / tall), C = Math.ceil(cols / wide), out = new Float32Array(R * C);
  for (let r = 0; r < rows; r++) for (let c = 0; c < cols; c++) {
    const at = Math.floor(r / tall) * C + Math.floor(c / wide), value = values[r * cols + c];
    if (Math.abs(value) > Math.abs(out[at])) out[at] = value;
  }
  return { values: out, rows: R, cols: C, tall, wide };
}

// One pixel per cell; hidden cells stay clear, so that a hatch can show through.
function bitmapOf({ values, rows, cols }, fill, ramps, hidden) {
  const canvas = document.createElement("canvas");
  canvas.width = cols;
  canvas.height = rows;
  const pen = canvas.getContext("2d"), image = pen.createImageData(cols, rows);
  for (let i = 0; i < rows * cols; i++) {
    const part = fill(values[i], Math.floor(i / cols)), colour = (part < 0 ? ramps.below : ramps.above)[Math.min(255, Math.round(255 * Math.abs(part)))];
    image.data.set([...colour, hidden && hidden(i) ? 0 : 255], 4 * i);
  }
  pen.putImageData(image, 0, 0);
  return canvas;
}

// One vector as a strip: colours, digits where there is room, and each number on pointing or by arrow keys.
function strip(scene, values, kv, range, width, tall, what) {
  const { theme, inks, view } = scene, count = values.length, cell = width / count, canvas = sizedCanvas(width, tall), pen = canvas.getContext("2d");
  pen.imageSmoothingEnabled = count > width;
  pen.drawImage(bitmapOf(pooled(values, 1, count), (value) => value / range.full, rampsFor(kv, theme, inks), null), 0, 0, width, tall);
  if (cell >= 6) { pen.fillStyle = inks.paper; for (let i = 1; i < count; i++) pen.fillRect(i * cell - 0.5, 0, 1, tall); }
  if (cell >= 25) {
    Object.assign(pen, { font: `${Math.min(11, cell / 2.7)}px sans-serif`, textAlign: "center", textBaseline: "middle" });
    values.forEach((value, i) => { pen.fillStyle = Math.abs(value) / range.full > 0.55 ? inks.paper : inks.ink; pen.fillText(short(value), (i + 0.5) * cell, tall / 2 + 0.5); });
  }
  let at = 0;
  const block = what.startsWith("z of") ? 1 : Math.ceil(view.dModel / count);
  const tell = () => scene.say(`${what}, dimension ${block === 1 ? at : `${at * block} to ${Math.min(view.dModel, (at + 1) * block) - 1}, the largest in size`}: ${num(values[at])}`);
  Object.assign(canvas, { tabIndex: 0, onfocus: tell, onmousemove: (event) => { at = Math.max(0, Math.min(count - 1, Math.floor(event.offsetX / cell))); tell(); } });
  canvas.onkeydown = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    at = Math.max(0, Math.min(count - 1, at + by));
    tell();
  };
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-label", `${what}: ${count} numbers, arrow keys move`);
  return canvas;
}

// The true range; where a few numbers are far above the rest, full colour begins below the largest, and that is said.
function signedLegend(inks, colour, { full, most }, name) {
  const over = most > full * 1.001 ? ` and more (largest ${num(most)})` : "";
  return el("span", { className: "item" }, legendRamp(inks.other, inks.tile, `\u2212${num(full)}`, "0", ""), legendRamp(inks.tile, colour, "", `${num(full)}${over}`, name));
}
