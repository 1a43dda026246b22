// The translation, sentence by sentence; each word is a button, shaded by its probability.

import { el } from "../common/dom.js";
import { bandOf, cutNote } from "../common/notes.js";
import { percent } from "../common/text.js";
import { tokenLine } from "../views/token_lines.js";
import { wordsOf } from "./words.js";

/**
 * Makes the translation: {element, show(count, sentences), boxes(), at(index),
 * focus(index, word)}.
 *
 * `visit(index, sources)` is called when a word of a sentence is pointed at or focused,
 * with the source words linked to it, and `leave()` when it no longer is; `pick(what)`
 * when it is pressed; `release(sentence)` to take back a beginning that was chosen.
 */
export function targetLines(calls) {
  const element = el("div", { class: "target-lines" });
  let lines = []; // of each: its element, and what is shown in it
  let boxes = []; // the first element of each sentence
  let tokens = [];

  /**
   * Shows `count` lines of sentences: {text, line, place, index, prefix, translation,
   * failure, unsplit}. One that has neither translation nor failure is awaited.
   */
  function show(count, sentences) {
    const pool = lines.flatMap(({ drawn }) => drawn);
    const present = new Set(sentences.filter((each) => each.translation).map(({ text }) => text));
    const old = lines;
    lines = Array.from({ length: count }, (_, line) => ({
      element: old[line]?.element ?? el("div", { class: "target-line" }),
      drawn: [], // translations
      notes: [], // by place, in place of a translation
      all: [], // elements
    }));
    [boxes, tokens] = [[], []];
    for (const sentence of sentences) {
      const { drawn, notes, all } = lines[sentence.line];
      const made = sentence.translation ? [reused(sentence)] : earlier(sentence, old[sentence.line]?.drawn ?? []);
      drawn.push(...made);
      if (sentence.translation) tokens[sentence.index] = made[0].tokens;
      else if (sentence.failure || !made.length) all.push((notes[sentence.place] = noteOf(sentence, old[sentence.line]?.notes)));
      all.push(...made.map((each) => each.element));
      boxes.push(all.at(-Math.max(1, made.length)));
    }
    lines.forEach((each) => arrange(each.element, each.all));
    arrange(element, lines.map((each) => each.element));

    function reused(sentence) {
      const found = pool.findIndex((each) => each.sentence.text === sentence.text && each.sentence.translation === sentence.translation);
      const each = found < 0 ? draw(sentence, calls) : pool.splice(found, 1)[0];
      Object.assign(each.sentence, sentence);
      setState(each.element, "");
      return each;
    }
    // The translation of a text that has changed stays until the new one is there.
    function earlier({ unsplit, place, failure }, all) {
      const left = (unsplit ? all : all.slice(place, place + 1)).filter((each) => !present.has(each.sentence.text));
      left.forEach((each) => setState(each.element, failure ? "old" : "busy"));
      return left;
    }
  }
  const at = (index) => boxes.forEach((box, n) => box.classList.toggle("at", n === index));
  const focus = (index, word) => tokens[index]?.at(Math.min(word, tokens[index].length - 1))?.focus();
  return { element, show, boxes: () => boxes, at, focus };
}

// What is already there is left alone: it may have the focus.
function arrange(parent, elements) {
  const kept = new Set(elements);
  [...parent.children].filter((child) => !kept.has(child)).forEach((child) => child.remove());
  elements.forEach((each, index) => {
    if (parent.children[index] !== each) parent.insertBefore(each, parent.children[index] ?? null);
  });
}

// Marks a translation as "busy" or "old": it is not of the text that is there now.
function setState(element, state) {
  element.className = state === "old" ? "sentence old" : "sentence";
  element.ariaBusy = state === "busy" ? "true" : null;
  element.role = state ? "group" : null;
  element.ariaLabel = state ? "Translation of an earlier text" : null;
  [...element.children].forEach((child) => (child.inert = state !== ""));
}

function noteOf({ failure, place }, old) {
  const text = failure ? `Not translated: ${failure}` : "…";
  if (old?.[place]?.textContent === text) return old[place];
  return el("span", { class: failure ? "sentence warning" : "sentence", "aria-busy": failure ? null : "true" }, text);
}

function draw(shown, calls) {
  const sentence = { ...shown }; // its index changes when the text before it does
  const { text: source, prefix, translation } = sentence;
  const element = el("span", { class: "sentence" });
  if (translation.error) {
    element.append(el("span", { class: "warning" }, translation.error));
    return { sentence, element };
  }
  const { text } = translation.hypotheses[0];
  const words = wordsOf(text);
  const facts = factsOf(translation, words, source);
  const fixed = prefix && text.startsWith(prefix.trimEnd()) ? prefix.trimEnd().length : 0;
  const { element: made, tokens } = tokenLine({
    name: "Translation of a sentence: arrow keys move, Enter shows alternatives",
    side: "target",
    texts: words.map((word) => word.text),
    visit: (word) => calls.visit(sentence.index, facts[word].sources),
    leave: calls.leave,
    pick: (position) => calls.pick({ sentence, position, button: tokens[position], ...facts[position] }),
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
      el("button", { type: "button", class: "release", onclick: () => calls.release(sentence) }, "Undo choices"),
    );
  return { sentence, element, tokens };
}

/** Returns of each word its probability, the source words linked to it, and both as text. */
export function factsOf({ details }, words, source) {
  const sources = wordsOf(source);
  const logProbs = details?.word_log_probs;
  return words.map((_, index) => {
    const p = logProbs?.length === words.length ? Math.exp(logProbs[index] ?? -Infinity) : null;
    const linked = (details?.alignment ?? []).filter(([, target]) => target === index).map(([from]) => from);
    const from = linked.map((word) => sources[word]?.text).filter(Boolean).join(" ");
    const about = [p !== null && `probability ${percent(p)}`, from && `from ${from}`];
    return { p, sources: linked, about: about.filter(Boolean) };
  });
}
