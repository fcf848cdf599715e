// Every head as a switch. A press is shown at once and goes to Python as the whole list of heads that are off.

const STALE = 2000;

export default function ({ data, parentElement, setStateValue }) {
  const keep = memory(parentElement), told = data.off.join("-");
  // An answer to an earlier press must not undo a later one.
  if (keep.sent !== undefined && keep.sent !== told && Date.now() - keep.at < STALE) return;
  keep.sent = undefined;
  if (upToDate(parentElement, data)) return;
  keep.off = new Set(data.off);
  const set = (off) => {
    keep.off = new Set(off);
    keep.shown = null;
    keep.sent = [...keep.off].sort().join("-");
    keep.at = Date.now();
    draw();
    setStateValue("set", { off: [...keep.off].map((place) => place.split(".").map(Number)), at: keep.at });
  };
  const draw = () => rebuild(parentElement, (root, theme) => {
    const places = [...Array(data.layers).keys()].map((layer) => data.kv.map((kv, head) => ({ layer, head, kv, place: `${layer}.${head}` })));
    const board = el("div", { className: "board", role: "toolbar", "aria-label": "heads that are on" },
      places.flatMap((row, layer) => [el("span", { className: "layer" }, `L${layer}`), el("div", { className: "heads" }, row.map((spot) => button(spot, data, keep, theme, set)))]));
    const all = (label, off) => el("button", { dataset: { focus: label }, onclick: () => set(off) }, label);
    root.append(el("h3", {}, data.title), board,
      el("div", { className: "all" }, all("All on", []), all("All off", places.flat().map(({ place }) => place))),
      el("p", { className: "caption" }, data.caption));
    wire(board, data);
  });
  draw();
}

function button({ layer, head, kv, place }, data, keep, theme, set) {
  const on = !keep.off.has(place), badge = data.badges[place];
  return el("button", {
    className: "switch", "aria-pressed": String(on), tabIndex: place === (keep.last || "0.0") ? 0 : -1, dataset: { focus: place },
    title: `layer ${layer}, head ${head}, KV head ${kv}${badge ? `, role ${badge}` : ""}: ${on ? "on" : "off"}`,
    "aria-label": `layer ${layer}, head ${head}, KV head ${kv}${badge ? `, role ${badge}` : ""}`,
    style: { cssText: `--hue: ${PALETTE.hues[theme][kv % PALETTE.hues[theme].length]}` },
    onclick: () => { keep.last = place; set(on ? [...keep.off, place] : [...keep.off].filter((other) => other !== place)); },
  }, `H${head}`, badge ? el("span", { className: "badge" }, badge) : null);
}

// Arrow keys move between the switches; Space or Enter presses one.
function wire(board, data) {
  const buttons = [...board.querySelectorAll(".switch")], across = data.kv.length;
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across };
  buttons.forEach((one, index) => {
    one.onkeydown = (event) => {
      const next = buttons[index + steps[event.key]];
      if (!next) return;
      event.preventDefault();
      next.focus();
    };
  });
}
