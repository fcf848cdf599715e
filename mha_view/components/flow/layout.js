// Where every matrix stands in a stage: lanes for the heads, the chosen one large, KV heads in the middle of their readers.

const LANES = 8, BIG = 250, FLOOR = 20, GAP = 18, MOVE = 380;
const LANE = new Set(["q", "k", "v", "q_rot", "k_rot", "dots", "scores", "mask", "masked", "pattern", "z"]);
const SQUARE = new Set(["dots", "scores", "mask", "masked", "pattern"]);

function laneHeads(view, keep) {
  const first = Math.floor(keep.at.head / LANES) * LANES;
  return Array.from({ length: Math.min(LANES, view.heads - first) }, (_, i) => first + i);
}

function layOut({ view, keep, width }) {
  const stage = view.stages[keep.at.step], n = view.labels.length, heads = laneHeads(view, keep);
  const inLanes = stage.columns.some((names) => LANE.has(names[0]));
  const left = inLanes ? 142 : 84, top = 44;
  const big = Math.max(34, Math.min(BIG, n * 42));
  const small = heads.length > 1 ? Math.min(big, Math.max(FLOOR, (430 - big) / (heads.length - 1) - GAP)) : big;
  const lanes = [];
  let y = top;
  for (const head of heads) {
    const h = head === keep.at.head ? big : small;
    lanes.push({ head, y, h, mid: y + h / 2 });
    y += h + GAP;
  }
  const stacked = Math.max(...stage.columns.map((names) => names.length));
  const height = inLanes ? y : top + (stacked > 1 ? 410 : Math.min(300, Math.max(...stage.columns.flat().map((name) => tallOf(view, name)))) + 8);
  const gaps = stage.columns.slice(1).map((_, i) => (!stage.signs[i] ? 30 : stage.signs[i].length > 2 ? 62 : Math.min(62, width / 16)));
  const room = width - left - 8 - gaps.reduce((sum, gap) => sum + gap, 0);
  const natural = stage.columns.map((names) => Math.max(...names.map((name) => naturalWidth(view, name, names.length, big / n, height - top, stage.columns.length === 1))));
  const shrink = Math.min(1, room / natural.reduce((sum, w) => sum + w, 0));
  const plan = { lanes, left, top, height: height + 10, inLanes, blocks: [], signs: [], stage };
  let x = left;
  stage.columns.forEach((names, i) => {
    const w = Math.max(22, natural[i] * shrink);
    names.forEach((name, at) => place(plan, view, keep, name, x, w, names.length, at));
    if (i < gaps.length) plan.signs.push({ x: x + w + gaps[i] / 2, y: inLanes ? lanes.find((lane) => lane.head === keep.at.head).mid : (top + height) / 2, text: stage.signs[i] });
    x += w + (gaps[i] ?? 0);
  });
  return plan;
}

// Rows of a matrix that stands by itself, W_O with all its slices.
const rowsOf = (view, name) => about(view, name).rows * (name === "W_O" ? about(view, name).heads : 1);
const tallOf = (view, name) => rowsOf(view, name) * 28;

function naturalWidth(view, name, stacked, cell, height, alone) {
  const { cols, heads } = about(view, name);
  if (LANE.has(name)) return SQUARE.has(name) ? Math.max(100, Math.min(cols * cell, BIG + 20)) : Math.max(60, Math.min(cols * Math.max(Math.min(cell, 34), 10), 330));
  const all = name === "W_O" ? cols : cols * heads;
  const side = Math.min(40, Math.max(3, (height / stacked - 36) / rowsOf(view, name)));
  return Math.max(48, Math.min(all * side, stacked > 1 ? 330 : alone ? 1000 : 430));
}

function place(plan, view, keep, name, x, w, stacked, index) {
  const { heads } = about(view, name), add = (head, y, h, left, wide, big) => plan.blocks.push({ id: `${name}/${head}`, name, head, x: left, y, w: wide, h, big });
  if (LANE.has(name)) {
    if (heads === 1 && about(view, name).kind === "none") {
      const lane = plan.lanes.find(({ head }) => head === keep.at.head);
      return add(0, lane.y, lane.h, x, w, true);
    }
    if (about(view, name).kind === "query") return plan.lanes.forEach((lane) => add(lane.head, lane.y, lane.h, x, w, lane.head === keep.at.head));
    return sharedPlaces(plan, view, keep).forEach(({ kv, y, h, big }) => add(kv, y, h, x, w, big));
  }
  const total = rowsOf(view, name), share = (plan.height - plan.top - 10) / stacked;
  const h = Math.max(20, Math.min(total * 28, share - (stacked > 1 ? 40 : 0), stacked > 1 ? 999 : 320));
  const y = plan.top + index * share + (stacked > 1 ? 0 : plan.inLanes ? Math.max(0, (share - h) / 2) : 0);
  for (let head = 0; head < heads; head++) {
    if (name === "W_O") add(head, y + (head * h) / heads, h / heads, x, w, head === 0);
    else add(head, y, h, x + (head * w) / heads, w / heads, head === 0);
  }
}

// A KV head stands in the lane of the chosen head if that reads it, else in the middle of the lanes that do.
function sharedPlaces(plan, view, keep) {
  const found = new Map();
  for (const lane of plan.lanes) {
    const kv = Math.floor(lane.head / view.perKv);
    found.set(kv, [...(found.get(kv) ?? []), lane]);
  }
  return [...found].map(([kv, lanes]) => {
    const chosen = lanes.find(({ head }) => head === keep.at.head), first = lanes[0], last = lanes[lanes.length - 1];
    if (chosen) return { kv, y: chosen.y, h: chosen.h, big: true };
    return { kv, y: (first.y + last.y + last.h) / 2 - first.h / 2, h: first.h, big: false };
  });
}
