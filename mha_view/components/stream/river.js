// Where everything stands, and the picture as SVG: the same text is shown and exported.

const BAR = 50, BASE = 74, JOIN = 112, WORD = 17, LENS_TALL = 88;

const kvOf = (view, part) => (part.kind === "head" ? Math.floor(part.head / view.perKv) : null);
const inkOf = (view, part, theme, inks) => (part.kind === "head" ? hueOf(kvOf(view, part), theme) : part.kind === "embedding" ? inks.stream : inks.other);
const cosineText = (value) => (value === null ? "" : `, cosine ${value.toFixed(2).replace("-", "\u2212")}`);
const afterWhat = (stage, last) => (last ? "in the end: the prediction" : `if it stopped after ${stage.kind === "embedding" ? "the embedding" : `the ${stage.kind === "mlp" ? "MLP" : "attention"} of layer ${stage.layer}`}`);

function layOut({ view, width }) {
  const left = Math.round(width * 0.44), half = Math.min(52, width * 0.05), x = left + half + 26, lens = x + half + 34;
  const most = Math.max(...view.stages.map(({ norm }) => norm)), longest = Math.max(...view.stages.flatMap(({ parts }) => parts.filter(({ kind }) => small(kind)).map(({ norm }) => norm)), 1e-9);
  const plan = { width, left, x, lens, most, longest, thick: (norm) => (2 * half * norm) / most, spots: [], rows: [] };
  let y = 4;
  for (const [s, stage] of view.stages.entries()) {
    // A band as wide as its norm must not run into the lines above and below.
    const attention = stage.kind === "attention", tall = attention ? 140 : Math.max(100, 28 + plan.thick(stage.parts[0].norm));
    plan.rows.push({ y, tall, join: y + (attention ? JOIN : tall / 2 + 3), stage });
    spotsOf(plan, stage, s, y, tall);
    y += tall;
  }
  return { ...plan, height: y + 12 };
}

const small = (kind) => kind === "head" || kind === "output bias";

// The places that can be pressed: a bar for each head, a line for what a stage wrote in all.
function spotsOf(plan, stage, s, y, tall) {
  const bars = stage.parts.filter(({ kind }) => small(kind)), pitch = Math.min(54, (plan.left - 8) / bars.length);
  for (const part of stage.parts) {
    const i = bars.indexOf(part), at = { part, stage, s };
    if (i < 0) plan.spots.push({ ...at, x: 0, y, w: bars.length ? Math.min(plan.left, 330) : plan.left, h: bars.length ? 22 : tall - 8 });
    else plan.spots.push({ ...at, bar: true, mid: (i + 0.5) * pitch, x: i * pitch, y: y + BASE - BAR - 3, w: pitch, h: BAR + 19, thin: Math.max(1, Math.min(26, pitch - (pitch > 9 ? 4 : 1))) });
  }
}

// The stream widens and narrows with its norm; the change lies where the part joins.
function riverPath(view, plan) {
  const right = [], left = [], point = (y, norm) => { right.push([plan.x + plan.thick(norm) / 2, y]); left.unshift([plan.x - plan.thick(norm) / 2, y]); };
  let before = 0;
  for (const { join, stage } of plan.rows) {
    point(join - 18, before);
    point(join + 18, stage.norm);
    before = stage.norm;
  }
  point(plan.height - 14, before);
  const curve = (points) => points.slice(1).map(([x, y], i) => { const [x0, y0] = points[i], mid = (y0 + y) / 2; return `C${x0} ${mid} ${x} ${mid} ${x} ${y}`; }).join("");
  return `M${right[0].join(" ")}${curve(right)}L${plan.x} ${plan.height}L${left[0].join(" ")}${curve(left)}Z`;
}

function svgOf(scene, whole = false) {
  const { view, inks } = scene, plan = layOut(scene), parts = [];
  parts.push(`<path d="${riverPath(view, plan)}" fill="${inks.stream}" fill-opacity="0.32" stroke="${inks.stream}"/>`);
  for (const spot of plan.spots) parts.push(spot.bar ? barOf(scene, plan, spot) : bandOf(scene, plan, spot));
  plan.rows.forEach((row, s) => parts.push(lensOf(scene, plan, row, s === plan.rows.length - 1)));
  if (!whole) return svgDocument(plan.width, plan.height, inks, parts.join(""));
  const title = svgText(4, plan.height + 18, `The stream of \u201c${view.token}\u201d. Width of the stream and of what joins it: norm, at most ${num(plan.most)}. Bars: norm of a head's write, at most ${num(plan.longest)}.`, { ink: inks.ink });
  return svgDocument(plan.width, plan.height + 30, inks, parts.join("") + title);
}

function barOf({ view, theme, inks }, plan, { part, stage, s, mid, thin, w }) {
  const { y, join } = plan.rows[s], ink = inkOf(view, part, theme, inks), tall = Math.max(1, (BAR * part.norm) / plan.longest), base = y + BASE, from = base + 15;
  const name = part.kind === "head" ? (w >= 13 || part.head % 8 === 0 ? String(part.head) : "") : "bias", edge = plan.x - plan.thick(stage.norm) / 2 + 3;
  return svgRect((mid - thin / 2).toFixed(1), (base - tall).toFixed(1), thin.toFixed(1), tall.toFixed(1), ink, 'rx="2"') + svgText(mid, base + 11, name, { size: 10, ink: inks.muted, anchor: "middle" }) +
    `<path d="M${mid} ${from}C${mid} ${join} ${(mid + edge) / 2} ${join} ${edge} ${join}" fill="none" stroke="${ink}" stroke-opacity="0.55" stroke-width="${Math.max(0.8, plan.thick(part.norm)).toFixed(1)}"/>`;
}

// What a stage writes in all, by name; an embedding or an MLP also as a band that joins.
function bandOf({ view, theme, inks }, plan, { part, stage, s }) {
  const { y, join } = plan.rows[s], ink = inkOf(view, part, theme, inks), thick = Math.max(1.5, plan.thick(part.norm)), edge = plan.x - plan.thick(stage.norm) / 2 + 3;
  const line = `<tspan font-size="13" font-weight="600" fill="${inks.ink}">${titleOf(part)}</tspan>`, figures = `norm ${num(part.norm)}${cosineText(part.cosine)}`;
  const muted = part.kind === "attention" ? `<tspan dx="8">${figures}</tspan>` : `<tspan x="6" dy="16">${figures}</tspan>`;
  const words = `<text x="6" y="${y + 16}" font-size="11" fill="${inks.muted}">${line}${muted}</text>`;
  if (part.kind === "attention") return words;
  const start = Math.min(150, plan.left * 0.6);
  return words + `<path d="M${start} ${join}H${edge}" fill="none" stroke="${ink}" stroke-opacity="0.55" stroke-width="${thick.toFixed(1)}"/>`;
}

const titleOf = (part) => ({ embedding: "embedding", attention: `layer ${layerOf(part)} attention`, mlp: `layer ${layerOf(part)} MLP`, head: `layer ${layerOf(part)}, head ${part.head}`, "output bias": `layer ${layerOf(part)}, output bias` })[part.kind];
const layerOf = (part) => part.name.match(/^L(\d+)/)?.[1];

// The likeliest words of the lens, and the ranks of the words that are followed.
function lensOf({ view, inks }, plan, { y, tall, join, stage }, last) {
  const top = y + (tall - LENS_TALL) / 2 + (stage.kind === "attention" ? 18 : 0), names = plan.lens + 74, room = plan.width - names - 52, edge = plan.x + plan.thick(stage.norm) / 2, from = join + 20, parts = [];
  parts.push(`<path d="M${edge} ${from}C${plan.lens - 14} ${from} ${edge + 8} ${top + 40} ${plan.lens - 6} ${top + 40}" fill="none" stroke="${inks.stream}"/>`);
  parts.push(svgText(plan.lens, top + 9, afterWhat(stage, last), { size: 11, weight: last ? 700 : 400, ink: last ? inks.ink : inks.muted }));
  stage.top.forEach(([word, chance], i) => {
    const at = top + 15 + i * WORD, chosen = word === view.followed[0];
    parts.push(svgText(names - 6, at + 12, word, { size: 12, weight: chosen ? 700 : 400, ink: inks.ink, anchor: "end" }), svgRect(names, at + 3, Math.max(1, room * chance).toFixed(1), WORD - 6, chosen ? inks.ink : inks.other, 'rx="2"'),
      svgText(names + Math.max(1, room * chance) + 5, at + 12, digits(chance), { size: 11, ink: inks.muted }));
  });
  const ranks = view.followed.map((word, i) => `${word} ${ordinal(stage.ranks[i][0])}`).join(" \u00b7 ");
  return parts.join("") + svgText(plan.lens, top + LENS_TALL - 8, ranks, { size: 11, ink: inks.muted });
}

const ordinal = (rank) => `${rank}${[11, 12, 13].includes(rank % 100) ? "th" : { 1: "st", 2: "nd", 3: "rd" }[rank % 10] ?? "th"}`;
