// The map of roles: a square per head, a stripe per name; under it a line per name with its texts.

export default function ({ data, parentElement, setStateValue }) {
  const keep = memory(parentElement);
  const report = (name, value) => setStateValue(name, { ...value, at: Date.now() });
  const draw = () => rebuild(parentElement, (root, theme, inks) => {
    const width = widthOf(parentElement), wide = width >= 760, plan = layOut(data, wide ? width - 330 : width);
    const board = el("div", { className: "board", style: { height: `${plan.height}px` } }), say = el("p", { className: "say", "aria-live": "polite" });
    headings(board, data, plan);
    for (const cell of plan.cells) board.append(square(cell, data, plan, theme, (index) => report("picked", { index }), say));
    arrows(board, data);
    root.append(el("div", { className: wide ? "cols" : "" }, el("div", {}, board, say),
      el("div", {}, legend(data, theme, inks), el("p", { className: "caption" }, data.caption),
        el("details", { open: keep.rule, ontoggle: (event) => { keep.rule = event.target.open; } }, el("summary", { dataset: { focus: "rule" } }, "When does a head get a name?"), el("p", { className: "caption" }, data.rule)))),
    table(data, (index, which) => report("open", { index, which }), wide),
    tools("headroom-roles", { svg: () => svgOf(data, plan, theme, inks), rows: () => csvRows(data), recipe: data.recipe }, keep.open, (shown) => { keep.open = shown; }));
  });
  draw();
  return onWidth(parentElement, draw);
}

const NAME = 30;
const rolesOf = (data, layer, head) => data.rows.filter((row) => row.layer === layer && row.head === head).map((row) => data.roles.find((role) => role.name === row.role));

function layOut(data, width) {
  const pitch = Math.max(20, Math.min(64, Math.floor((width - NAME) / data.heads)));
  const cells = [];
  for (let layer = 0; layer < data.layers; layer++)
    for (let head = 0; head < data.heads; head++) cells.push({ layer, head, x: NAME + head * pitch, y: 20 + layer * 44, roles: rolesOf(data, layer, head) });
  return { pitch, size: pitch - 5, tall: 38, cells, width: NAME + data.heads * pitch, height: 20 + data.layers * 44 };
}

function headings(board, data, plan) {
  const place = (x, y, width, text) => board.append(el("span", { className: "name", style: { left: `${x}px`, top: `${y}px`, width: `${width}px` } }, text));
  for (let head = 0; head < data.heads; head++) place(NAME + head * plan.pitch, 0, plan.size, `H${head}`);
  for (let layer = 0; layer < data.layers; layer++) place(0, 20 + layer * 44 + 10, NAME - 6, `L${layer}`);
}

const stripes = (roles, theme) => {
  const part = 100 / roles.length;
  return `linear-gradient(90deg, ${roles.map((role, i) => `${hueOf(role.hue, theme)} ${i * part}% ${(i + 1) * part}%`).join(", ")})`;
};

function square(cell, data, plan, theme, pick, say) {
  const { layer, head, roles } = cell, index = layer * data.heads + head, picked = layer === data.picked[0] && head === data.picked[1];
  const tell = () => { say.textContent = data.told[index]; };
  if (picked) tell();
  return el("button", {
    className: roles.length ? "square" : "square none", tabIndex: picked ? 0 : -1, "aria-pressed": String(picked), "aria-label": `${data.told[index]} Opens on page Heads.`,
    dataset: { focus: `role-${layer}-${head}`, at: index }, onclick: () => pick(index), onmouseenter: tell, onfocus: tell,
    style: { left: `${cell.x}px`, top: `${cell.y}px`, width: `${plan.size}px`, height: `${plan.tall}px`, ...(roles.length ? { background: stripes(roles, theme) } : {}) },
  }, el("span", {}, roles.map((role) => role.letter).join("\u00b7")));
}

function arrows(board, data) {
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: data.heads, ArrowUp: -data.heads };
  const squares = [...board.querySelectorAll(".square")];
  board.onkeydown = (event) => {
    const next = squares[+event.target.dataset.at + steps[event.key]];
    if (!next) return;
    event.preventDefault();
    next.focus();
  };
}

function legend(data, theme, inks) {
  const swatch = ({ hue, letter, name, about }) => el("span", { className: "item", title: about },
    el("span", { className: "swatch", style: { background: hueOf(hue, theme) } }), el("b", {}, letter), `${name}: ${about}`);
  return el("div", { className: "legend" }, data.roles.map(swatch), legendSwatch(inks.tile, "no clear role"));
}

// The words of a text: the one that looks is framed, the one it should look at is set bold.
function textButton(text, label, onclick, focus) {
  const words = text.words.flatMap((word, i) => [i ? " " : "", i + 1 === text.row ? el("span", { className: "asked" }, word) : i + 1 === text.key ? el("b", {}, word) : word]);
  return el("button", { className: "text", onclick, "aria-label": label, title: label, dataset: { focus } }, words);
}

function wordAt(text, row) {
  return row === 0 ? "the start token" : `\u201c${text.words[row - 1]}\u201d`;
}

function textCell(row, which, index, open) {
  const text = row[which];
  if (!text) return el("td", { className: "words" }, which === "counter" && row.tried ? `none of ${row.tried} texts made it fail` : "not searched");
  const label = `Open L${row.layer}H${row.head} on page Heads with this text`;
  const looks = which === "best" || text.instead === text.key ? digits(text.weight)
    : `${digits(text.weight)}; it looks at ${wordAt(text, text.instead)}, ${digits(text.insteadWeight)}`;
  return el("td", { className: "words" }, textButton(text, label, () => open(index, which), `${which}-${index}`), el("span", { className: "num looks" }, looks));
}

// Where there is little room, control and runner-up stand under the score.
function table(data, open, wide) {
  if (!data.rows.length) return el("p", {}, "No head of this model earned a name.");
  const head = ["head", "name", "score", ...(wide ? ["control", "runner-up"] : []), "shows it best", "fails here"].map((name) => el("th", { scope: "col" }, name));
  const second = (row) => (row.runnerUp ? `${row.runnerUp} ${digits(row.runnerUpScore)}` : "none");
  const small = (text) => el("span", { className: "looks" }, text), number = (text) => el("td", { className: "num" }, text);
  const body = data.rows.map((row, i) => el("tr", {},
    el("th", { scope: "row" }, `L${row.layer}H${row.head}`), el("td", {}, row.role),
    el("td", { className: "score" }, digits(row.score), small(row.detail), wide ? null : small(`control ${digits(row.control)}; runner-up ${second(row)}`)),
    wide ? [number(digits(row.control)), number(second(row))] : null,
    textCell(row, "best", i, open), textCell(row, "counter", i, open)));
  return el("div", { className: "labels" }, el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, body)));
}

function csvRows(data) {
  const text = (shown) => (shown ? shown.words.join(" ") : "");
  return [["layer", "head", "name", "score", "detail", "control", "runner-up", "its score", "shows it best", "fails here"],
    ...data.rows.map((r) => [r.layer, r.head, r.role, r.score, r.detail, r.control, r.runnerUp || "", r.runnerUpScore, text(r.best), text(r.counter)])];
}

function svgOf(data, plan, theme, inks) {
  const parts = plan.cells.map(({ layer, head, x, y, roles }) => {
    const fills = roles.length ? roles : [null], wide = plan.size / fills.length;
    return fills.map((role, i) => svgRect((x + i * wide).toFixed(1), y, wide.toFixed(1), plan.tall, role ? hueOf(role.hue, theme) : inks.tile)).join("") +
      svgText(x + plan.size / 2, y + plan.tall / 2 + 4, roles.length ? roles.map((role) => role.letter).join("\u00b7") : `L${layer}H${head}`, { size: roles.length ? 12 : 8, ink: roles.length ? inks.paper : inks.muted, anchor: "middle" });
  });
  const words = data.roles.map((role) => `${role.letter} ${role.name}`).join(", ");
  return svgDocument(Math.max(plan.width, 420), plan.height + 24, inks, parts.join("") + svgText(4, plan.height + 14, words || "no clear roles", { ink: inks.ink }));
}
