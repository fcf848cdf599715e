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

// The true range; where a few numbers are far above the rest, full colour begins below the largest, and that is said.
function signedLegend(inks, colour, { full, most }, name) {
  const over = most > full * 1.001 ? ` and more (largest ${num(most)})` : "";
  return el("span", { className: "item" }, legendRamp(inks.other, inks.tile, `\u2212${num(full)}`, "0", ""), legendRamp(inks.tile, colour, "", `${num(full)}${over}`, name));
}
