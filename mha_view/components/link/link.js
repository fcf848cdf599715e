// The address bar mirrors the settings, without a history entry for each; and the link can be copied from here.

export default function ({ data, parentElement }) {
  const keep = memory(parentElement);
  mirror(data.query);
  // The button reads the address when it is pressed; only the first drawing and a new theme need one.
  keep.data = data;
  if (upToDate(parentElement, null)) return;
  rebuild(parentElement, (root) => {
    const told = el("p", { className: "told", role: "status" }, keep.told || "");
    const box = el("input", { type: "checkbox", checked: keep.bare === true, dataset: { focus: "bare" } });
    const slot = el("div");
    const address = () => `${location.origin}${location.pathname}?${box.checked ? keep.data.bare : keep.data.query}`;
    box.onchange = () => { keep.bare = box.checked; };
    const copy = el("button", { className: "copy", dataset: { focus: "copy" } }, "Copy link to this view");
    copy.onclick = async () => {
      const what = box.checked ? "without the sentence" : "it contains the sentence";
      try {
        await navigator.clipboard.writeText(address());
        keep.told = `Copied; ${what}.`;
      } catch {
        // No clipboard without a secure origin: the address stands there to be copied by hand.
        const field = el("input", { type: "text", readOnly: true, value: address(), "aria-label": "the link" });
        slot.replaceChildren(field);
        field.select();
        keep.told = `Copy the address above; ${what}.`;
      }
      told.textContent = keep.told;
    };
    root.append(copy, el("label", {}, box, "leave the sentence out of the link"), slot, told);
  });
}

function mirror(query) {
  if (location.search.slice(1) === query) return;
  const extra = new URLSearchParams(location.search);
  const kept = ["embed", "embed_options"].flatMap((name) => extra.getAll(name).map((value) => `${name}=${encodeURIComponent(value)}`));
  history.replaceState(history.state, "", `${location.pathname}?${[query, ...kept].join("&")}${location.hash}`);
}
