// Plain sentences about the settings or the text, some with something to press. Typed text stays text.

export default function ({ data, parentElement, setStateValue }) {
  if (upToDate(parentElement, data)) return;
  rebuild(parentElement, (root) => {
    const act = (action) => el("button", { onclick: () => setStateValue("act", { ...action.value, at: Date.now() }), dataset: { focus: action.label } }, action.label);
    root.append(...data.notes.map(({ kind, title, text, actions }) =>
      el("div", { className: `note ${kind}`, role: kind === "problem" ? "alert" : "status" },
        title ? el("span", { className: "kind" }, title) : null, el("span", {}, text), (actions || []).map(act))));
  });
}
