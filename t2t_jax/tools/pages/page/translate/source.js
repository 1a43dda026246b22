// The text to translate: a box that grows with it, over a copy that marks words.

import { el } from "../common/dom.js";
import { wordsOf } from "./words.js";

const PAUSE = 300; // milliseconds after the last key

/**
 * Makes the box: {element, textarea, lines(), line(), mark(line, words), write(text)}.
 *
 * `changed()` is called when the typing pauses, `moved()` when the cursor has moved.
 */
export function sourceBox({ changed, moved }) {
  // The copy has the same letters at the same places, so marks in it are seen behind
  // those of the text, and its height is that which the text needs.
  const copy = el("div", { class: "source-copy", "aria-hidden": "true" });
  const textarea = el("textarea", {
    "aria-label": "Text to translate",
    placeholder: "Type or paste text; each line is translated by itself",
    spellcheck: "false",
    autofocus: true,
    dir: "auto",
  });
  let timer;
  const typed = (event) => {
    mark();
    clearTimeout(timer);
    // Letters that an input method is still composing are no text yet.
    if (!event.isComposing) timer = setTimeout(changed, PAUSE);
  };
  textarea.addEventListener("input", typed);
  textarea.addEventListener("compositionend", typed);
  document.addEventListener("selectionchange", () => {
    if (document.activeElement === textarea) moved();
  });

  const lines = () => textarea.value.split("\n");
  const line = () => textarea.value.slice(0, textarea.selectionStart).split("\n").length - 1;
  function mark(index = 0, words = []) {
    const text = textarea.value;
    const start = lines().slice(0, index).reduce((sum, each) => sum + each.length + 1, 0);
    const found = wordsOf(lines()[index] ?? "");
    const parts = [];
    let at = 0;
    for (const word of words.toSorted((a, b) => a - b)) {
      if (!found[word]) continue;
      const [from, to] = [start + found[word].start, start + found[word].end];
      parts.push(text.slice(at, from), el("mark", {}, text.slice(from, to)));
      at = to;
    }
    copy.replaceChildren(...parts, `${text.slice(at)}\n`);
  }
  function write(text) {
    textarea.value = text;
    clearTimeout(timer);
    mark();
  }
  mark();
  return { element: el("div", { class: "source-box" }, copy, textarea), textarea, lines, line, mark, write };
}
