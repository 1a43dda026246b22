// The translation, line by line; each word is a button, shaded by its probability.

import { el } from "../common/dom.js";
import { bandOf, cutNote } from "../common/notes.js";
import { percent } from "../common/text.js";
import { tokenLine } from "../views/token_lines.js";
import { wordsOf } from "./words.js";

/**
 * Makes the lines: {element, show(lines), focus(line, word)}.
 *
 * `visit(line, sources)` is called when a word is pointed at or focused, with the source
 * words linked to it, and `leave()` when it no longer is; `pick(what)` when it is
 * pressed; `release(line)` to take back a beginning that was chosen.
 */
export function targetLines(calls) {
  const element = el("div", { class: "target-lines" });
  let shown = []; // of each line: {line, prefix, translation, element, tokens}

  /** Shows lines: {line, prefix, translation}; one without a translation is awaited. */
  function show(lines) {
    shown = lines.map((next, index) => {
      const old = shown[index];
      if (old?.tokens && next.line.trim() && !next.translation) return waiting(old);
      if (old?.translation === next.translation && old?.line === next.line) return old;
      return { ...next, ...drawn(next, index, calls) };
    });
    const elements = shown.map((each) => each.element);
    // What is already there is left alone: it may have the focus.
    [...element.children].filter((child) => !elements.includes(child)).forEach((child) => child.remove());
    elements.forEach((each, index) => {
      if (element.children[index] !== each) element.insertBefore(each, element.children[index] ?? null);
    });
  }
  const focus = (line, word) => shown[line]?.tokens?.at(Math.min(word, shown[line].tokens.length - 1))?.focus();
  return { element, show, focus };
}

// The earlier translation of a changed line stays until the new one is there.
function waiting(old) {
  old.element.setAttribute("aria-busy", "true");
  old.element.inert = true;
  return { ...old, translation: undefined };
}

function drawn({ line, prefix, translation }, index, calls) {
  const element = el("div", { class: "target-line" });
  if (!line.trim()) return { element };
  if (!translation) {
    element.setAttribute("aria-busy", "true");
    element.append("…");
    return { element };
  }
  if (translation.error) {
    element.append(el("p", { class: "warning" }, translation.error));
    return { element };
  }
  const { text } = translation.hypotheses[0];
  const words = wordsOf(text);
  const facts = factsOf(translation, words, line);
  const fixed = prefix && text.startsWith(prefix.trimEnd()) ? prefix.trimEnd().length : 0;
  const { element: made, tokens } = tokenLine({
    name: `Translation of line ${index + 1}: arrow keys move, Enter shows alternatives`,
    side: "target",
    texts: words.map((word) => word.text),
    visit: (word) => calls.visit(index, facts[word].sources),
    leave: calls.leave,
    pick: (position) => calls.pick({ index, line, translation, position, button: tokens[position], ...facts[position] }),
  });
  tokens.forEach((token, word) => {
    const { p, about } = facts[word];
    if (p !== null) token.dataset.band = bandOf(p);
    if (words[word].end <= fixed) token.classList.add("fixed");
    token.setAttribute("aria-label", [words[word].text, ...about].join(", "));
    token.title = about.join(", ");
  });
  element.append(made, ...cutNote(translation));
  if (fixed)
    element.append(
      el("button", { type: "button", class: "release", onclick: () => calls.release(index) }, "Undo choices"),
    );
  return { element, tokens };
}

// Of each word: its probability, the source words linked to it, and both as text.
function factsOf({ details }, words, line) {
  const sources = wordsOf(line);
  const logProbs = details?.word_log_probs;
  return words.map((_, index) => {
    const p = logProbs?.length === words.length ? Math.exp(logProbs[index] ?? -Infinity) : null;
    const linked = (details?.alignment ?? []).filter(([, target]) => target === index).map(([source]) => source);
    const from = linked.map((source) => sources[source]?.text).filter(Boolean).join(" ");
    const about = [p !== null && `probability ${percent(p)}`, from && `from ${from}`];
    return { p, sources: linked, about: about.filter(Boolean) };
  });
}
