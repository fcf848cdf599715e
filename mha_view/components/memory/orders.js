// The same window taken by view without transpose, and who reads which KV head when they are dealt out by tile.

function wrongPart(scene) {
  const { view, keep } = scene, same = view.sizes[0] === 1 || view.sizes[1] === 1, say = el("p", { className: "say num", "aria-live": "polite" });
  const half = scene.width >= 640 ? (scene.width - 32) / 2 : scene.width, wrap = half > 560 ? 4 : 2;
  const fit = { ...fitted(view, half, Math.min(wrap, view.spans[1][1])), tall: view.spans[0][1] };
  const sides = [{ name: view.layouts[2].madeBy, looks: rightLooks(view, fit, wrap) }, { name: view.wrong.madeBy, looks: wrongLooks(view, fit, wrap) }];
  const board = ({ name, looks }, wrong) => {
    const code = `${letter(view)}${wrong ? "" : view.layouts[1].madeBy}${name}`;
    const box = el("div", { className: "board", tabIndex: 0, role: "application", dataset: { focus: wrong ? "wrong" : "right" }, "aria-label": `${code}; arrow keys move over the cells`, style: { height: `${boardHeight(fit, view.spans[1][1], wrap)}px` } },
      ...looks.map((look) => slotOf(scene, fit, look)), ...marksOf(view, fit, 2, wrap).map(markNode));
    walk(box, looks, (look) => { say.textContent = look.told; });
    return el("div", {}, el("h4", {}, code), el("p", { className: "shapes" }, lettered(wrong ? view.wrong : view.layouts[2])), box);
  };
  say.textContent = "Point at a cell, or tab to a picture and use the arrow keys.";
  return [el("h3", { className: "title second" }, same ? "Two other orders" : "The same shape, the wrong numbers"),
    el("p", { className: "text" }, "Without the transpose view cuts the memory into heads in the order in which it lies. Torch raises no error, since the shape is right. Hue shows whose number it really is; framed are those of the chosen token."),
    el("div", { className: "pair" }, board(sides[0], false), board(sides[1], true)), say, wrongWords(view, same, sides[1].looks),
    tools("headroom-wrong-order", { svg: () => wrongSvg(scene, fit, sides, half, wrap), rows: () => wrongTable(view), recipe: { ...view.recipe, figure: "wrong order", at: keep.at } }, keep.openWrong, (open) => { keep.openWrong = open; }),
    ...readsPart(scene)];
}

const letter = (view) => view.matrix.toUpperCase();
const named = (view, t, i, j) => `\u201c${view.labels[t]}\u201d, ${letterOf(view)} ${i}, column ${j}`;

function rightLooks(view, fit, wrap) {
  return cellsOf({ ...view, cols: fit.cols }).map((cell) => {
    const [x, y] = cornerOf(view, fit, 2, cell, wrap), address = addressIn(view, 2, cell.t, cell.i, cell.j);
    return { x, y, value: cell.value, address, kv: kvOf(view, cell.i), mine: cell.t === view.at.row, told: `${named(view, cell.t, cell.i, cell.j)}: ${num(cell.value)}, address ${address}` };
  });
}

function wrongLooks(view, fit, wrap) {
  return cellsOf({ ...view, cols: fit.cols }).map((cell) => {
    const [x, y] = cornerOf(view, fit, 2, cell, wrap), [t, i, j] = cell.owner, [, first, second, third] = view.wrong.strides;
    const address = cell.i * first + cell.t * second + cell.j * third, right = t === cell.t && i === cell.i && j === cell.j;
    const told = `Read as ${named(view, cell.t, cell.i, cell.j)}: ${num(cell.wrong)}, address ${address}. ${right ? "It is." : `It belongs to ${named(view, t, i, j)}.`}`;
    return { x, y, value: cell.wrong, address, kv: kvOf(view, i), mine: t === view.at.row, told, right, cell };
  });
}

function wrongWords(view, same, looks) {
  const off = looks.filter((look) => !look.right).length;
  return el("p", { className: "caption" }, same ? `With ${view.sizes[1] === 1 ? "one head" : "one token"} both orders take the same numbers: the mistake is harmless here.`
    : `${off} of the ${looks.length} cells that are drawn hold a number that belongs elsewhere.`);
}

function wrongTable(view) {
  return [["read as token", "head", "column", "right value", "value by view", "address", "belongs to token", "head", "column"],
    ...wrongLooks(view, { cols: view.spans[2][1], w: 1, h: 1, tall: 4 }, 99).map(({ cell, address }) => [view.labels[cell.t], cell.i, cell.j, cell.value, cell.wrong, address, view.labels[cell.owner[0]], cell.owner[1], cell.owner[2]])];
}

function wrongSvg(scene, fit, sides, half, wrap) {
  const { view, inks } = scene, tall = boardHeight(fit, view.spans[1][1], wrap), marks = marksOf(view, fit, 2, wrap);
  const parts = sides.map(({ name, looks }, side) => `<g transform="translate(0 ${side * (tall + 30)})">${svgText(0, 16, name, { size: 13, weight: 600, ink: inks.ink })}${svgCells(scene, fit, looks, marks, 26)}</g>`);
  return svgDocument(half, 2 * (tall + 30) + 10, inks, parts.join(""));
}

function readsPart({ view, theme, inks }) {
  const { right, tile } = view.reads, off = right.filter((kv, i) => kv !== tile[i]).length;
  const box = (kv, wrong) => el("span", { className: wrong ? "kv off num" : "kv num", style: { background: mix(inks.tile, hueOf(kv, theme), 0.35) } }, String(kv));
  const row = (i) => el("div", { role: "img", "aria-label": `query head ${i} reads KV head ${right[i]}, by tile ${tile[i]}`, title: `query head ${i}: KV head ${right[i]}; by tile ${tile[i]}` }, el("span", { className: "num" }, String(i)), box(right[i], false), box(tile[i], tile[i] !== right[i]));
  return [el("h3", { className: "title second" }, "Which KV head does each query head read?"),
    el("p", { className: "text" }, "repeat_interleave gives neighbours the same keys and values, tile deals them out in turn. Again both have the same shape."),
    el("div", { className: "reads" }, el("div", { className: "names" }, el("span", {}, "query head"), el("span", {}, "repeat_interleave"), el("span", {}, "tile")), right.map((_, i) => row(i))),
    el("p", { className: "caption" }, off ? `By tile ${off} of ${right.length} query heads read another head's keys and values (framed).` : `At h = ${view.queryHeads} and g = ${view.queryHeads / view.perKv} both read the same: tile is harmless here.`)];
}
