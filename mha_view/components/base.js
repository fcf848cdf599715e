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

// The theme is what Streamlit paints behind us, read off its own variable.
function themeOf(host) {
  const background = getComputedStyle(host).getPropertyValue("--st-background-color").trim();
  const probe = el("span", { style: { color: background || "#fff" } });
  host.parentElement.append(probe);
  const [r, g, b] = getComputedStyle(probe).color.match(/[\d.]+/g).map(Number);
  probe.remove();
  return 0.299 * r + 0.587 * g + 0.114 * b < 128 ? "dark" : "light";
}

// Rebuild the part into its root; the element that had the focus gets it back.
function rebuild(parentElement, build) {
  const root = parentElement.querySelector(".root");
  const theme = themeOf(parentElement.host);
  const inks = PALETTE.inks[theme];
  for (const [name, value] of Object.entries(inks)) root.style.setProperty(`--${name}`, value);
  root.style.setProperty("--focus", inks.ink);
  const focused = parentElement.activeElement?.dataset.focus;
  root.replaceChildren();
  build(root, theme, inks);
  if (focused) root.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  return root;
}

// What a part remembers between redraws in this browser: nothing that belongs in a link.
const MEMORY = new WeakMap();

function memory(parentElement) {
  if (!MEMORY.has(parentElement)) MEMORY.set(parentElement, {});
  return MEMORY.get(parentElement);
}
