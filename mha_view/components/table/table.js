// A table of figures; numbers stand right, words left.

export default function ({ data, parentElement }) {
  if (upToDate(parentElement, data)) return;
  const numeric = data.head.map((_, i) => data.rows.some((row) => typeof row[i] === "number"));
  const cell = (value, i) => (typeof value === "number" ? el("td", { className: "num" }, data.fractions[i] ? value.toFixed(3) : String(value)) : el("td", { className: numeric[i] ? "num" : "" }, value));
  rebuild(parentElement, (root) => root.append(
    el("div", { className: data.rows.length > 14 ? "scroll long" : "scroll", tabIndex: 0, role: "region", "aria-label": data.caption }, el("table", {},
      el("thead", {}, el("tr", {}, data.head.map((name, i) => el("th", { scope: "col", className: numeric[i] ? "num" : "" }, name)))),
      el("tbody", {}, data.rows.map((row, i) => el("tr", { className: i === data.marked ? "marked" : "" }, row.map(cell)))))),
    el("p", { className: "caption" }, data.caption),
    el("div", { className: "tools" },
      saver(`${data.file}.csv`, "CSV", "text/csv", () => csvOf([data.head, ...data.rows])),
      saver(`${data.file}.json`, "recipe", "application/json", () => JSON.stringify(data.recipe, null, 2)))));
}

function saver(file, label, type, text) {
  return el("button", { onclick: () => save(file, new Blob([text()], { type })), dataset: { focus: label } }, label);
}
