// The page of a translation server: translates as one types, and shows what else it
// considered.

import { announce, chooser, el, section } from "../common/dom.js";
import { bandLegend } from "../common/notes.js";
import { languageTag, percent, setLanguages } from "../common/text.js";
import { helpButton, isShortcut, openHelp } from "../shell/keys.js";
import { start } from "../shell/start.js";
import { followTheme, themeButton } from "../shell/theme.js";
import { openChoices } from "./choices.js";
import { linkPanes } from "./follow.js";
import { explanation, hypothesisTable } from "./saved.js";
import { fitting, sentencesOf, wholeLine } from "./sentences.js";
import { ask, setKey, wantsKey } from "./server.js";
import { sourceBox } from "./source.js";
import { targetLines } from "./target.js";
import { nextWords, wordsOf } from "./words.js";

const KEYS = [
  ["Tab", "next control, or next sentence of the translation"],
  ["Arrow keys", "in the translation: next word"],
  ["Enter", "on a word: other words for it; on one of these: take it"],
  ["Escape", "back from the other words"],
  ["?", "show this list"],
];
const KEPT = 2000; // translations that are not asked for again
const NO_SPLITTER = "This server does not find sentences in a line: put each on a line of its own.";
const UNSPACED = /^(zh|yue|ja)\b/; // languages without spaces between sentences

let direction; // the chosen one of the server's
let limits = {}; // of a request
let text = ""; // as it was when the typing paused
let sentences = []; // of `text`, with all that is known of them
let canSplit = true; // the server divides lines into sentences
let most = 20; // sentences of a request: few, so that the first translations are soon there
let current = -1; // the sentence whose hypotheses are shown
let asking; // of the request that is out: the keys of its sentences, its AbortController
let working; // the promise of all that is missing
let focusNext; // [sentence, word] that gets the focus when it is translated
let closeChoices = () => {};
const splits = new Map(); // by direction and line: its sentences, and what is between
const prefixes = new Map(); // by direction and sentence: the beginning that the user chose
const answers = new Map(); // by these and the beginning: the newest translations
const failures = new Map(); // by the same keys: why there is none

const status = el("p", { class: "status" });
const note = el("p", { class: "note" });
const directions = el("span", { class: "controls directions" });
const best = el("div", {});
const source = sourceBox({
  changed() {
    focusNext = undefined;
    attempt(update);
  },
  moved: () => look(source.sentence(), 1),
  hovered: (index) => look(index, 1),
});
const target = targetLines({
  visit(index, words) {
    look(index, 0);
    source.mark(index, words);
  },
  leave: () => source.mark(),
  pick,
  release({ own, index }) {
    prefixes.delete(own);
    focusNext = [index, 0];
    attempt(update);
  },
});
const panes = linkPanes([source.element, target.element], [source.boxes, target.boxes]);

start(open);

function open() {
  document.getElementById("header").append(
    el("div", { class: "controls" }, directions, themeButton(), helpButton(KEYS)),
    status,
  );
  document.getElementById("main").replaceChildren(
    el(
      "div",
      { class: "panes" },
      section({ id: "source", title: "Source" }, source.element, note),
      section({ id: "target", title: "Translation" }, target.element, bandLegend("Probability of a word"), buttons()),
    ),
    section({ id: "hypotheses", title: "Hypotheses" }, best),
  );
  followTheme();
  document.addEventListener("keydown", (event) => {
    if (event.key === "?" && isShortcut(event)) openHelp(KEYS);
  });
  attempt(connect);
}

function buttons() {
  const copy = () => navigator.clipboard.writeText(translated()).then(() => say(`Copied${without()}.`));
  return el(
    "div",
    { class: "controls" },
    // Browsers offer the clipboard only to pages of this machine or of https.
    navigator.clipboard && el("button", { type: "button", onclick: () => attempt(copy) }, "Copy"),
    el("button", { type: "button", onclick: () => attempt(saveExplanation) }, "Save explanation"),
    el("button", { type: "button", onclick: () => attempt(saveAnswer) }, "Save JSON"),
  );
}

// ------------------------------------------------------------
// The server, and what it says.

/** Does something that asks the server; shows why it failed, and a way out. */
async function attempt(action) {
  try {
    await action();
  } catch (error) {
    if (error.name === "AbortError") return;
    const again = () => attempt(action);
    if (wantsKey(error)) say(error.message, keyForm(again));
    else say(error.message, el("button", { type: "button", onclick: again }, "Try again"));
    status.classList.add("warning");
    if (error.status === undefined) throw error; // a mistake of this page
  }
}

function say(text, ...controls) {
  status.classList.remove("warning");
  status.replaceChildren(text, ...controls);
  announce(text);
}

function keyForm(again) {
  const input = el("input", { type: "password", autocomplete: "off", required: true, pattern: "[!-~]+" });
  const onsubmit = (event) => {
    event.preventDefault();
    setKey(input.value);
    again();
  };
  return el("form", { class: "controls", onsubmit }, el("label", { class: "chooser" }, "API key", input), el("button", {}, "Use"));
}

async function connect() {
  const { directions: served, limits: given } = await ask("v1/directions", { waiting: say });
  limits = given ?? {};
  const name = ({ name, source, target }) => {
    const twins = served.filter((other) => other.source === source && other.target === target);
    return `${languageOf(source)} → ${languageOf(target)}${twins.length > 1 ? ` (${name})` : ""}`;
  };
  const turn = (index) => {
    direction = served[index];
    setLanguages([direction.source, direction.target]);
    source.textarea.lang = languageTag(direction.source);
    label.querySelector("select").selectedIndex = index;
    swap.hidden = back() < 0;
  };
  const back = () => served.findIndex(({ source, target }) => source === direction.target && target === direction.source);
  const label = chooser("Languages", served.map(name), 0, (index) => {
    turn(index);
    attempt(update);
  });
  label.firstElementChild.classList.add("unseen"); // the arrow between the names says it
  const onclick = () => {
    if (sentences.length && !missing().length) source.write(translated());
    turn(back());
    attempt(update);
  };
  const swap = el("button", { type: "button", "aria-label": "Swap the languages", onclick }, "⇄");
  directions.replaceChildren(label, swap);
  turn(0);
  await ask("ready", { waiting: say });
  say("");
  await update();
}

function languageOf(code) {
  try {
    return new Intl.DisplayNames("en", { type: "language" }).of(languageTag(code));
  } catch {
    return code; // not a language's code
  }
}

// ------------------------------------------------------------
// Sentences and their translations.

// A chosen beginning belongs to a sentence's text: it moves with it, and comes back with it.
const keyOf = (content) => JSON.stringify([direction?.name, content]);
const splitOf = (line) => splits.get(keyOf(line)) ?? wholeLine(line);
const textOf = ({ translation }) => translation?.hypotheses?.[0].text ?? "";
const missing = () => sentences.filter((each) => !textOf(each));

function without() {
  const count = missing().length;
  return count ? `, without ${count} of ${sentences.length} sentences` : "";
}

/** Returns the translation of the text, with its line breaks and what is between sentences. */
function translated() {
  // Chinese has nothing between sentences where most languages need a space.
  const usual = UNSPACED.test(languageTag(direction?.target ?? "")) ? "" : " ";
  const lines = text.split("\n").map((line) => [...splitOf(line).between]);
  for (const each of sentences) {
    const parts = lines[each.line];
    parts[each.place] = (parts[each.place] || (each.place ? usual : "")) + textOf(each);
  }
  return lines.map((parts) => parts.join("")).join("\n");
}

/** Asks for sentences and keeps their translations; returns {request, response}. */
async function translate(asked, signal, options = {}) {
  const { name, beams } = asked[0].direction;
  const [lines, prefix] = ["text", "prefix"].map((field) => asked.map((each) => each[field]));
  const request = { direction: name, lines, prefix, beam: beams[0], nbest: beams[0], details: true, ...options };
  try {
    const response = await ask("v1/translate", { body: request, signal, waiting: say });
    asked.forEach(({ key }, n) => answers.set(key, response.translations[n] ?? { error: "no answer" }));
    return { request, response };
  } catch (error) {
    // Too large, or late: from now on requests are smaller.
    if ([413, 504].includes(error.status)) most = Math.ceil(asked.length / 2);
    throw error;
  }
}

/** Asks for the sentences of lines, and keeps them. */
async function split(asked, signal) {
  const request = { direction: direction.name, lines: asked.map((each) => each.content) };
  try {
    const { lines } = await ask("v1/sentences", { body: request, signal, waiting: say });
    asked.forEach(({ lineKey, content }, n) => splits.set(lineKey, lines[n] ?? wholeLine(content)));
  } catch (error) {
    if (error.status !== 404 && error.status !== 501) throw error;
    canSplit = false;
    note.textContent = NO_SPLITTER;
    announce(NO_SPLITTER);
  }
}

/** Shows the text's translation, and asks for what is not known of it yet. */
async function update() {
  closeChoices();
  if (!direction) return;
  text = source.textarea.value;
  failures.clear();
  show();
  look(source.sentence(), 1);
  // A request goes on while all that it asks for is in the text.
  const keys = new Set(sentences.flatMap(({ key, lineKey }) => [key, lineKey]));
  if (asking && !asking.keys.every((key) => keys.has(key))) asking.controller.abort();
  for (const kept of [answers, splits])
    for (const key of kept.keys()) if (kept.size > KEPT && !keys.has(key)) kept.delete(key);
  await (working ??= work());
}

/** Asks for all that is awaited, piece by piece; throws the last failure. */
async function work() {
  await null; // `working` is set before it is cleared
  try {
    for (let piece; (piece = nextPiece()); show()) {
      const [{ unsplit }] = piece;
      asking = { keys: piece.map(({ key, lineKey }) => (unsplit ? lineKey : key)), controller: new AbortController() };
      const { signal } = asking.controller;
      try {
        await (unsplit ? split(piece, signal) : translate(piece, signal));
        status.className = "status";
        const left = sentences.filter(isAwaited).length - piece.length;
        status.replaceChildren(unsplit || left <= 0 ? "" : `${sentences.length - left} of ${sentences.length} sentences …`);
      } catch (error) {
        if (error.name === "AbortError" || (!unsplit && most < piece.length)) continue;
        // Without a server or a key, the others fail, too.
        const lost = error.status && !wantsKey(error) ? piece : sentences.filter(isAwaited);
        lost.forEach(({ key }) => failures.set(key, error));
      }
    }
  } finally {
    [working, asking] = [];
  }
  const failure = [...failures.values()].findLast((each) => each instanceof Error);
  if (failure) throw failure;
  say("");
  announce(textOf(sentences[current] ?? {}));
}

const isAwaited = ({ translation, failure }) => !translation && !failure;

/** Returns what to ask for next: lines to divide, or the sentences nearest to what is in sight. */
function nextPiece() {
  for (;;) {
    const awaited = [...new Map(sentences.filter(isAwaited).map((each) => [each.key, each])).values()];
    const unsplit = awaited.filter((each) => each.unsplit);
    const middle = panes.middle();
    const near = awaited.toSorted((a, b) => Math.abs(a.index - middle) - Math.abs(b.index - middle));
    const wanted = unsplit.length ? unsplit : near;
    if (!wanted.length) return null;
    // Of a line that is not divided yet, all is sent.
    const sent = unsplit.length ? wanted.map((each) => ({ ...each, text: each.content })) : wanted;
    const piece = fitting(sent, limits, unsplit.length ? Infinity : most);
    if (piece.length) return piece.toSorted((a, b) => a.index - b.index);
    const [{ key, content }] = wanted;
    failures.set(key, { message: `${content.length} characters are more than the server takes at once.` });
    show();
  }
}

function show() {
  const before = sentences.length;
  sentences = sentencesOf(text, splitOf).map((each) => {
    const lineKey = keyOf(each.content);
    const unsplit = canSplit && !splits.has(lineKey);
    const own = keyOf(each.text);
    const prefix = prefixes.get(own) ?? "";
    const key = own + (unsplit ? "\n" : prefix);
    return { ...each, direction, own, key, lineKey, prefix, unsplit, translation: answers.get(key), failure: failures.get(key)?.message };
  });
  source.show(text, sentences);
  target.show(text.split("\n").length, sentences);
  look(sentences.length === before ? current : source.sentence(), undefined, true);
  if (!sentences[focusNext?.[0]]?.translation) return;
  target.focus(...focusNext);
  focusNext = undefined;
}

/** Marks a sentence, shows its hypotheses, and brings it in sight on a side. */
function look(index, side, again = false) {
  if (index === current && !again) return;
  current = index;
  for (const each of [source, target]) each.at(sentences.length > 1 ? index : -1);
  if (side !== undefined) panes.reveal(side, index);
  const translation = sentences[index]?.translation;
  if (!translation?.hypotheses) return best.replaceChildren(el("p", { class: "note" }, "The best translations of the sentence at the cursor, with their scores."));
  const name = `Sentence ${index + 1}, confidence ${percent(translation.confidence)}`;
  best.replaceChildren(el("p", { class: "note" }, name), hypothesisTable(name, translation));
}

/** Opens the other words for a word of the translation. */
function pick({ sentence, position, button, about, sources }) {
  closeChoices();
  const { text: line, own, index, translation } = sentence;
  const { text: best } = translation.hypotheses[0];
  const { text: word, start } = wordsOf(best)[position];
  const before = best.slice(0, start).trimEnd();
  const choose = (other) => {
    prefixes.set(own, before ? `${before} ${other}` : other);
    focusNext = [sentence.index, position];
    attempt(update);
  };
  const search = async (signal) => {
    // All of the beam may agree on the word, so the search is asked without it, too.
    const { phrases, beams } = direction;
    const twice = phrases > 0 ? { lines: [line, line], must_not: [[], [word]] } : { lines: [line] };
    const request = { direction: direction.name, ...twice, prefix: before, beam: beams[0], nbest: beams[0] };
    const { translations } = await ask("v1/translate", { body: request, signal, waiting: announce });
    return nextWords(translations.flatMap(({ hypotheses }) => hypotheses ?? []), before, word);
  };
  closeChoices = openChoices({ button, word, about, search, choose });
  source.mark(index, sources); // as while the word has the focus
}

/** Asks again for all that is translated, and for what it depends on. */
async function exchanges() {
  const made = [];
  let rest = sentences.filter(textOf);
  for (let piece; (piece = fitting(rest, limits, most)).length; rest = rest.slice(piece.length))
    made.push(await translate(piece, undefined, { provenance: true }));
  show();
  return made;
}

/** Downloads a page of what is shown, or its JSON, for `whatwas --answer=FILE`. */
async function save(name, type, written) {
  const saved = without();
  const made = await exchanges();
  if (!made.length) return say("There is nothing to save yet.");
  // What is asked for in pieces is no one answer of the server.
  const json = JSON.stringify(made.length > 1 ? made : made[0], null, 1);
  const href = URL.createObjectURL(new Blob([written(made, json)], { type }));
  el("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 1000);
  say(`Saved as ${name}${saved}.`);
}
const saveExplanation = () => save("explanation.html", "text/html", explanation);
const saveAnswer = () => save("answer.json", "application/json", (_, json) => json);
