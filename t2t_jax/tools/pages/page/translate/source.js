// The text to translate: a box that grows with it, over a copy that marks words.

import { el } from "../common/dom.js";
import { wordsOf } from "./words.js";

const PAUSE = 300; // milliseconds after the last key

/**
 * Makes the box: {element, textarea, show(text, sentences), boxes(), sentence(), at(index),
 * mark(index, words), write(text)}.
 *
 * `changed()` is called when the typing pauses, `moved()` when the cursor has moved,
 * `hovered(index)` when a sentence is pointed at.
 */
export function sourceBox({ changed, moved, hovered }) {
  // The copy has the same letters at the same places, so marks in it are seen behind
  // those of the text, and its height is that which the text needs.
  const copy = el("div", { class: "source-copy", "aria-hidden": "true" });
  const textarea = el("textarea", {
    "aria-label": "Text to translate",
    placeholder: "Type or paste text",
    spellcheck: "false",
    autofocus: true,
    dir: "auto",
    onpointermove: pointed,
  });
  let timer;
  let shown = []; // sentences, and their elements in the copy
  let spans = [];
  let copied;
  let marked;
  const typed = (event) => {
    show(textarea.value, []);
    clearTimeout(timer);
    // Letters that an input method is still composing are no text yet.
    if (!event.isComposing) timer = setTimeout(changed, PAUSE);
  };
  textarea.addEventListener("input", typed);
  textarea.addEventListener("compositionend", typed);
  document.addEventListener("selectionchange", () => {
    if (document.activeElement === textarea) moved();
  });

  /** Puts the sentences of `text` into the copy, unless more has been typed since. */
  function show(text, sentences) {
    const same = sentences.length === shown.length && sentences.every(({ end }, n) => end === shown[n].end);
    if (text !== textarea.value || (same && text === copied)) return;
    [copied, shown, marked] = [text, sentences, undefined];
    spans = sentences.map((each) => el("span", {}, each.text));
    const gaps = sentences.map(({ start }, n) => text.slice(sentences[n - 1]?.end ?? 0, start));
    copy.replaceChildren(...spans.flatMap((span, n) => [gaps[n], span]), `${text.slice(sentences.at(-1)?.end ?? 0)}\n`);
  }
  /** Returns the index of the sentence at the cursor, or -1. */
  function sentence() {
    const cursor = textarea.selectionStart;
    const line = textarea.value.slice(0, cursor).split("\n").length - 1;
    const near = shown.filter((each) => each.line === line);
    return (near.findLast(({ start }) => start <= cursor) ?? near[0])?.index ?? -1;
  }
  function at(index) {
    spans.forEach((span, n) => span.classList.toggle("at", n === index));
  }
  function mark(index, words = []) {
    marked?.replaceChildren(marked.textContent);
    marked = spans[index];
    if (!marked) return;
    const text = marked.textContent;
    const found = wordsOf(text);
    const parts = [];
    let end = 0;
    for (const word of words.toSorted((a, b) => a - b)) {
      if (!found[word]) continue;
      parts.push(text.slice(end, found[word].start), el("mark", {}, found[word].text));
      end = found[word].end;
    }
    marked.replaceChildren(...parts, text.slice(end));
  }
  function pointed({ pointerType, clientX: x, clientY: y }) {
    if (pointerType !== "mouse") return;
    const isIn = ({ left, right, top, bottom }) => left <= x && x <= right && top <= y && y <= bottom;
    const index = spans.findIndex((span) => [...span.getClientRects()].some(isIn));
    if (index >= 0) hovered(index);
  }
  function write(text) {
    textarea.value = text;
    clearTimeout(timer);
    show(text, []);
  }
  write("");
  const element = el("div", { class: "source-box" }, copy, textarea);
  return { element, textarea, show, boxes: () => spans, sentence, at, mark, write };
}
