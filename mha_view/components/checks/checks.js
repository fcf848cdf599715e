// The laws this run was measured against: a sign, a word and the number each, so that colour is not alone.

export default function ({ data, parentElement }) {
  if (upToDate(parentElement, data)) return;
  rebuild(parentElement, (root) => {
    const item = ([name, ok, deviation, tolerance, sentence]) => el("li", { className: ok ? "" : "broken", title: sentence },
      el("span", { className: "mark" }, ok ? "\u2713 " : "\u2717 broken: "), name, el("span", { className: "size" }, ` ${deviation} \u2264 ${tolerance}`.replace("\u2264", ok ? "\u2264" : ">")));
    root.append(el("ul", { className: "checks", "aria-label": "self-checks of this run" }, data.checks.map(item)));
  });
}
