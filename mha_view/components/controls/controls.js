// Controls in one part: the shared ones in the sidebar, or a bar over a picture. What is set goes to Python at once.

export default function ({ data, parentElement, setStateValue }) {
  if (upToDate(parentElement, data)) return;
  const keep = memory(parentElement);
  const set = (name, value) => {
    // What was typed may come back settled to what stood here before: draw again in any case.
    keep.shown = null;
    setStateValue("set", { name, value, at: Date.now() });
  };
  const root = rebuild(parentElement, (root) => {
    if (data.examples) root.append(examples(data, set), words(data, keep));
    root.append(...data.controls.map((control) => KINDS[control.kind](control, set)));
    root.append(...data.actions.map(([name, label]) => el("button", { className: "action", dataset: { focus: name }, onclick: () => set(name, "") }, label)));
  });
  root.classList.toggle("bar", !data.examples);
}

const KINDS = { choice, stops, number, text, select };

function named(control, output, ...children) {
  return el("div", {}, el("p", { className: "name", title: control.about }, el("span", { id: `name-${control.name}` }, control.label), output), children,
    control.note ? el("p", { className: "note" }, control.note) : null);
}

function examples(data, set) {
  const chip = ({ name, chosen }) => el("button", { "aria-pressed": String(chosen), dataset: { focus: `example-${name}` }, onclick: () => set("example", name) }, name);
  return el("div", {}, el("p", { className: "note counted" }, data.counted), el("p", { className: "name" }, el("span", {}, "Examples")),
    el("div", { className: "chips" }, data.examples.map(chip)), data.notice ? el("p", { className: "note" }, data.notice) : null);
}

function words(data, keep) {
  const box = el("details", { open: keep.words === true }, el("summary", { dataset: { focus: "words" } }, `The ${data.words.length} words it knows`), el("p", {}, data.words.join(", ")));
  box.ontoggle = () => { keep.words = box.open; };
  return box;
}

function choice(control, set) {
  const segment = ([value, label, trained]) => {
    const input = el("input", {
      type: "radio", name: control.name, checked: value === control.value, "aria-label": trained ? `${label}, trained` : label,
      dataset: { focus: `${control.name}-${value}` }, onchange: () => set(control.name, value),
    });
    return el("label", { className: trained ? "segment trained" : "segment", title: trained ? "trained weights" : "" }, input, label);
  };
  return named(control, null, el("div", { className: control.options.length > 6 ? "segments many" : "segments", role: "radiogroup", "aria-label": control.label }, control.options.map(segment)));
}

// A slider over a few stops; a dot stands under those with trained weights.
function stops(control, set) {
  const values = control.options.map(([value]) => value), last = values.length - 1;
  const shown = el("output", { className: "num" }, String(control.value));
  const input = el("input", { type: "range", min: 0, max: last, step: 1, value: values.indexOf(control.value), "aria-label": control.label, dataset: { focus: control.name } });
  const tell = () => { shown.textContent = values[input.value]; input.setAttribute("aria-valuetext", String(values[input.value])); };
  input.oninput = () => { tell(); set(control.name, values[input.value]); };
  tell();
  const place = (i) => `${(100 * i) / last}%`;
  const isTrained = (i) => control.options[i]?.[2] === true;
  // Every third value is written out, unless a trained one beside it needs the room.
  const written = (i) => isTrained(i) || (i % 3 === 1 && !isTrained(i - 1) && !isTrained(i + 1));
  const marks = values.flatMap((value, i) => [
    isTrained(i) ? el("span", { className: "dot", title: "trained weights", style: { left: place(i) } }) : null,
    written(i) ? el("span", { className: "tick", style: { left: place(i) } }, String(value)) : null,
  ]);
  return named(control, shown, input, el("div", { className: "stops", "aria-hidden": "true" }, marks.filter(Boolean)));
}

function number(control, set) {
  const input = el("input", { type: "number", min: control.low, max: control.high, step: 1, value: control.value, "aria-label": control.label, dataset: { focus: control.name } });
  input.onchange = () => { if (input.value !== "") set(control.name, Number(input.value)); };
  return named(control, null, input);
}

// What is typed goes to Python as it is, and comes back as the value that works.
function text(control, set) {
  const input = el("input", { type: "text", value: control.value, size: Math.max(8, String(control.value).length), autocomplete: "off", spellcheck: false, "aria-label": control.label, dataset: { focus: control.name } });
  input.onchange = () => set(control.name, input.value);
  return named(control, null, input);
}

function select(control, set) {
  const option = ([value, label]) => el("option", { value, selected: value === control.value }, label);
  const list = el("select", { "aria-label": control.label, dataset: { focus: control.name } }, control.options.map(option));
  list.onchange = () => set(control.name, list.value);
  return named(control, null, list);
}
