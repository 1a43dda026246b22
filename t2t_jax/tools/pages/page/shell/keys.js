// Keys of the whole page, and the dialog that lists them.

import { el } from "../common/dom.js";

const KEYS = [
  ["Tab", "next control or picture"],
  ["Arrow keys", "next token, or next cell of a picture"],
  ["Enter", "choose"],
  ["Escape", "back from the alternatives to the token"],
  ["1 to 9", "go to a view"],
  ["[ and ]", "previous and next sentence"],
  ["r", "switch between the translation and your target"],
  ["?", "show this list"],
];

let lettersOn = true;

/** Makes the button that opens the list of a page's keys: pairs of texts. */
export function helpButton(keys = KEYS) {
  const open = () => openHelp(keys);
  return el("button", { type: "button", class: "keys-button", onclick: open }, "Keys");
}

/** True if a key that is pressed may be a shortcut of the page. */
export function isShortcut(event) {
  if (!lettersOn || event.ctrlKey || event.metaKey || event.altKey) return false;
  return !event.target.closest("input:not([type=checkbox]), select, textarea, dialog");
}

/** Listens to the page's keys; `change(next)` as in the header. */
export function listenToKeys(page, state, change) {
  document.addEventListener("keydown", (event) => {
    if (!isShortcut(event)) return;
    const next = afterKey(event.key, page, state);
    if (next) change(next);
    else if (event.key === "?") openHelp();
    else if (/^[1-9]$/.test(event.key))
      document.querySelectorAll("nav a")[Number(event.key) - 1]?.click();
  });
}

function afterKey(key, page, { sentence, reading }) {
  const count = page.sentences.length;
  const readings = page.sentences[sentence].of[0].readings.length;
  if (key === "[" && sentence > 0) return { sentence: sentence - 1 };
  if (key === "]" && sentence < count - 1) return { sentence: sentence + 1 };
  if (key === "r" && readings > 1) return { reading: (reading + 1) % readings };
  return null;
}

/** Opens the list of keys. */
export function openHelp(keys = KEYS) {
  // Letters alone may collide with speech input, so they can be turned off.
  const letters = el("input", {
    type: "checkbox",
    checked: lettersOn,
    onchange: () => (lettersOn = letters.checked),
  });
  const dialog = el(
    "dialog",
    { "aria-label": "Keys", onclose: () => dialog.remove() },
    el("h2", {}, "Keys"),
    el("dl", {}, keys.map(([key, does]) => [el("dt", {}, key), el("dd", {}, does)])),
    el("label", {}, letters, " Shortcuts of a single letter, digit or sign are on"),
    el("p", {}, sourceLink()),
    el("form", { method: "dialog" }, el("button", { autofocus: true }, "Close")),
  );
  document.body.append(dialog);
  dialog.showModal();
}

/** A link to the program of this page, as text to read. */
function sourceLink() {
  const program = document.getElementById("program").textContent;
  const text = new Blob([program], { type: "text/plain;charset=utf-8" });
  const attributes = { href: URL.createObjectURL(text), target: "_blank" };
  return el("a", attributes, "Read the source of this page's program");
}
