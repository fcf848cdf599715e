// The residual stream of one token: parts are pressed here, the server hears of it when one has come to rest.

export default function ({ parentElement, setStateValue }) {
  const keep = memory(parentElement), feeds = ((globalThis.headroomFeeds ??= {}).stream ??= {});
  keep.set = setStateValue;
  const draw = () => show(parentElement, keep, feeds, draw);
  feeds.wake = () => { cancelAnimationFrame(keep.waking); keep.waking = requestAnimationFrame(draw); };
  draw();
  const stop = onWidth(parentElement, draw);
  return () => { stop(); clearTimeout(keep.timer); feeds.wake = null; };
}

function show(parentElement, keep, { data, place }, draw) {
  if (!data || !place) return;
  adopt(keep, place, data);
  const shown = [themeOf(parentElement.host), keep.width, keep.picked].join();
  if (keep.data === data && keep.shown === shown) return;
  if (keep.data !== data) Object.assign(keep, { data, view: { ...data, stages: data.stages.map(opened) } });
  keep.shown = shown;
  rebuild(parentElement, (root, theme, inks) => buildOrTable(root, { view: keep.view, keep, theme, inks, recipe: place.recipe, width: widthOf(parentElement), acts: actsOf(keep, draw) }));
}

const opened = (stage) => ({ ...stage, stream: FLOAT(stage.stream), parts: stage.parts.map((part) => ({ ...part, write: FLOAT(part.write) })) });

// Which part is explained is the browser's own, until the server says something that is no echo of an older press.
function adopt(keep, place, data) {
  if (keep.picked === undefined) keep.count = place.echo;
  if (keep.picked === undefined || (keep.said !== place.picked && !keep.timer && place.echo === keep.count)) keep.picked = place.picked;
  keep.said = place.picked;
  if (!data.stages.some(({ parts }) => parts.some(({ link }) => link === keep.picked))) keep.picked = place.picked;
}

function actsOf(keep, draw) {
  const report = (wait, open) => {
    clearTimeout(keep.timer);
    keep.timer = setTimeout(() => {
      Object.assign(keep, { timer: null, count: keep.count + 1 });
      keep.set("at", { stage: keep.picked, open, count: keep.count });
    }, wait);
  };
  return { pick: (link) => { keep.picked = link; draw(); report(300, ""); }, open: (page) => report(0, page) };
}

// Where the picture cannot be drawn, the same numbers stand as a table.
function buildOrTable(root, scene) {
  try {
    build(root, scene);
  } catch (error) {
    root.replaceChildren(el("p", { className: "text" }, `The picture cannot be drawn here (${error.message}); these are its numbers.`), tableOf(table(scene.view)));
  }
}

function build(root, scene) {
  const { view, keep, theme, inks } = scene, plan = layOut(scene), say = el("p", { className: "say num", "aria-live": "polite" });
  scene.say = (text) => { say.textContent = text; };
  const board = el("div", { className: "board", role: "toolbar", "aria-label": "what is written into the stream; arrow keys move, Enter explains", style: { height: `${plan.height}px` } }, node(svgOf(scene)), plan.spots.map((spot) => spotButton(scene, spot)));
  arrows(board, plan);
  root.append(el("h3", { className: "title" }, `The stream of \u201c${view.token}\u201d, from its embedding to the prediction`),
    el("p", { className: "text" }, "Time runs down. Every part reads the stream and adds a vector to it; nothing else changes the stream. On the right the final norm and the unembedding read the unfinished stream: what would the model predict if it stopped here (logit lens)?"),
    board, legend(scene, plan), checks(view), el("p", { className: "caption" }, notice(view)), detail(scene), say,
    tools("headroom-stream", { svg: () => svgOf(scene, true), rows: () => table(view), recipe: { ...scene.recipe, shown: { ...scene.recipe.shown, stage: keep.picked } } }, keep.open, (open) => { keep.open = open; }));
}

function spotButton({ keep, acts }, { part, x, y, w, h }) {
  const picked = part.link === keep.picked;
  return el("button", {
    className: "spot", tabIndex: picked ? 0 : -1, "aria-pressed": String(picked), "aria-label": `${titleOf(part)}: norm ${num(part.norm)}${cosineText(part.cosine)}`, title: `${titleOf(part)}: norm ${num(part.norm)}${cosineText(part.cosine)}`,
    dataset: { focus: `part-${part.link}`, part: part.link }, onclick: () => acts.pick(part.link), style: { left: `${x}px`, top: `${y}px`, width: `${w}px`, height: `${h}px` },
  });
}

// Left and right to the neighbour, up and down to the stage before and after.
function arrows(board, plan) {
  const buttons = [...board.querySelectorAll(".spot")], stageAt = (i) => plan.spots[i].s;
  board.onkeydown = (event) => {
    const at = buttons.indexOf(event.target), by = { ArrowRight: 1, ArrowLeft: -1 }[event.key], rows = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const next = by ? at + by : rows ? plan.spots.findIndex(({ s }) => s === stageAt(at) + rows) : -1;
    if (at < 0 || !buttons[next]) return;
    event.preventDefault();
    buttons[next].focus();
  };
}

function legend({ view, theme, inks }, plan) {
  const heads = view.stages.flatMap(({ parts }) => parts).filter(({ kind }) => kind === "head"), hues = [...new Set(heads.map((part) => hueOf(kvOf(view, part), theme)))];
  const ramp = `linear-gradient(90deg, ${hues.map((hue, i) => `${hue} ${(100 * i) / hues.length}% ${(100 * (i + 1)) / hues.length}%`).join(", ")})`;
  return el("div", { className: "legend" }, el("span", { className: "item" }, el("span", { className: "ramp", style: { background: ramp } }), `heads, hue by KV head; bar: norm of the write, 0 to ${num(plan.longest)}`), legendSwatch(inks.stream, `the stream; its width is its norm, at most ${num(plan.most)}`),
    legendSwatch(inks.other, "MLP; what joins is as wide as its norm, on the scale of the stream"), legendSwatch(inks.ink, "the word that is predicted in the end; bars of words: probability, 0 to 1"));
}

function checks(view) {
  const line = (check, text) => el("p", { className: check.ok ? "check" : "check broken" }, `${check.ok ? "\u2713" : "\u2717 broken:"} ${text}: largest difference ${check.deviation} ${check.ok ? "\u2264" : ">"} ${check.tolerance}`);
  return el("div", {}, line(view.sum, "after every stage the parts so far add up to the stream"), line(view.lens, "the last lens gives the model's own logits"));
}

// From which stage on the word that is predicted in the end stands first.
function notice({ stages, followed }) {
  const late = stages.findLastIndex(({ ranks }) => ranks[0][0] > 1), first = stages[late + 1];
  const when = late < 0 ? "from the embedding on" : `from the ${first.kind === "mlp" ? "MLP" : "attention"} of layer ${first.layer} on`;
  return `The model predicts \u201c${followed[0]}\u201d; this word stands first ${when}. Press a part to see its vector and to open it on Flow or Heads. The lens is our reading: the model itself looks at the stream only in the end.`;
}

// The chosen part: its figures, and its vector between the stream before and after.
function detail(scene) {
  const { view, keep, acts, inks, theme, width } = scene, at = view.stages.findIndex(({ parts }) => parts.some(({ link }) => link === keep.picked)), stage = view.stages[at], part = stage.parts.find(({ link }) => link === keep.picked);
  const before = at > 0 ? view.stages[at - 1] : null, whole = stage.parts[0], range = small(part.kind) ? view.ranges.heads : view.ranges.others, kv = kvOf(view, part);
  const lines = [...(before ? [["stream before", before.stream, null, view.ranges.stream]] : []), [`${titleOf(part)} writes`, part.write, kv, range],
    ...(whole === part ? [] : [["the whole layer writes", whole.write, null, view.ranges.others]]), ["stream after", stage.stream, null, view.ranges.stream]];
  const names = width < 760 ? 120 : 170, wide = Math.max(140, width - names - 40), grid = lines.flatMap(([what, values, hue, full]) => [el("span", { className: "what" }, what), strip(scene, values, hue, full, wide, 22, what)]);
  const open = (page, text) => el("button", { className: "act", dataset: { focus: `open-${page}` }, onclick: () => acts.open(page) }, text);
  const away = part.kind === "head" || part.kind === "attention";
  return el("div", { className: "detail" },
    el("p", { className: "name" }, el("b", {}, titleOf(part)), ...(away ? [open("flow", "Open on Flow"), open("heads", "Open on Heads")] : [el("span", { className: "muted" }, "Flow and Heads show attention only.")])),
    el("p", { className: "words num" }, detailWords(part, stage)),
    el("div", { className: "vectors", style: { gridTemplateColumns: `${names}px ${wide}px` } }, grid),
    el("div", { className: "legend" }, signedLegend(inks, inks.stream, view.ranges.stream, "stream"), signedLegend(inks, kv === null ? inks.stream : hueOf(kv, theme), range, small(part.kind) ? "what a head writes" : "what a stage writes")));
}

function detailWords(part, stage) {
  const turn = part.cosine === null ? "nothing stands before it" : `cosine with the stream before it ${num(part.cosine)}`;
  return `norm ${num(part.norm)}, ${turn}; the stream after ${stage.kind === "embedding" ? "it" : `the ${stage.kind === "mlp" ? "MLP" : "layer's attention"}`} has norm ${num(stage.norm)}`;
}

function table(view) {
  const lens = (stage) => [stage.norm, ...stage.top.flat(), ...stage.ranks.flat()], blank = Array.from({ length: 1 + 2 * view.stages[0].top.length + 2 * view.followed.length }, () => "");
  const head = ["part", "norm", "cosine with the stream before", "norm of the stream after", ...view.stages[0].top.flatMap((_, i) => [`word ${i + 1}`, `probability ${i + 1}`]), ...view.followed.flatMap((word) => [`rank of ${word}`, `probability of ${word}`])];
  return [head, ...view.stages.flatMap((stage) => stage.parts.map((part, i) => [part.name, part.norm, part.cosine ?? "", ...(i ? blank : lens(stage))]))];
}
