// A strip of results in numbers: label, value, and a small note where there is one.

export default function ({ data, parentElement }) {
  if (upToDate(parentElement, data)) return;
  rebuild(parentElement, (root) => {
    if (data.lead) root.append(el("p", { className: "lead" }, data.lead));
    if (data.facts.length) root.append(el("div", { className: "strip" }, data.facts.map(([label, value, note], i) =>
      el("div", { className: i === 0 && data.main ? "fact main" : "fact" }, el("div", { className: "label" }, label), el("div", { className: "value" }, value), note ? el("div", { className: "note" }, note) : null))));
    if (data.caption) root.append(el("p", { className: "caption" }, data.caption));
  });
}
