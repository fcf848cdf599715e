// Every part starts with this: elements, the theme behind us, redrawing, memory.

// An element from its tag, properties and children; strings become text nodes, so typed text stays text.
function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null) continue;
    if (name === "style" || name === "dataset") Object.assign(node[name], value);
    else if (name.includes("-") || name === "role") node.setAttribute(name, value);
    else node[name] = value;
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

// The theme is what Streamlit paints behind us, read off its own variable (a hex colour) without asking for a layout.
function themeOf(host) {
  const background = getComputedStyle(host).getPropertyValue("--st-background-color").trim();
  const [r, g, b] = /^#[0-9a-f]{6}/i.test(background) ? rgb(background) : (background.match(/[\d.]+/g) || [255, 255, 255]).map(Number);
  return 0.299 * r + 0.587 * g + 0.114 * b < 128 ? "dark" : "light";
}

function rgb(hex) {
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

// Whether the part shows this data in this theme already: then there is nothing to draw.
function upToDate(parentElement, data) {
  const keep = memory(parentElement), shown = JSON.stringify([data, themeOf(parentElement.host)]);
  const same = keep.shown === shown;
  keep.shown = shown;
  return same;
}

// Rebuild the part into its root; the element that had the focus gets it back.
function rebuild(parentElement, build) {
  const root = parentElement.querySelector(".root"), keep = memory(parentElement);
  const theme = themeOf(parentElement.host), inks = PALETTE.inks[theme];
  if (keep.theme !== theme) {
    for (const [name, value] of Object.entries(inks)) root.style.setProperty(`--${name}`, value);
    root.style.setProperty("--focus", inks.ink);
    keep.theme = theme;
  }
  const focused = parentElement.activeElement?.dataset.focus;
  const fresh = document.createDocumentFragment();
  build(fresh, theme, inks);
  root.replaceChildren(fresh);
  if (focused) root.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  return root;
}

// What a part remembers between redraws in this browser: nothing that belongs in a link.
const MEMORY = new WeakMap();

function memory(parentElement) {
  if (!MEMORY.has(parentElement)) MEMORY.set(parentElement, {});
  return MEMORY.get(parentElement);
}
