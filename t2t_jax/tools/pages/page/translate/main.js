// The page of a translation server: translates as one types, and shows what else it
// considered.

import { announce, chooser, el, section } from "../common/dom.js";
import { bandLegend } from "../common/notes.js";
import { numberCell, row, table } from "../common/table.js";
import { languageTag, number, percent, setLanguages, written } from "../common/text.js";
import { helpButton, isShortcut, openHelp } from "../shell/keys.js";
import { start } from "../shell/start.js";
import { followTheme, themeButton } from "../shell/theme.js";
import { openChoices } from "./choices.js";
import { ask, setKey, wantsKey } from "./server.js";
import { sourceBox } from "./source.js";
import { targetLines } from "./target.js";
import { nextWords, wordsOf } from "./words.js";

const KEYS = [
  ["Tab", "next control, or next line of the translation"],
  ["Arrow keys", "in the translation: next word"],
  ["Enter", "on a word: other words for it; on one of these: take it"],
  ["Escape", "back from the other words"],
  ["?", "show this list"],
];
const KEPT = 2000; // translations that are not asked for again

let direction; // the chosen one of the server's
let current = 0; // the line whose hypotheses are shown
let running; // of the request for the translation: its AbortController
let closeChoices = () => {};
const prefixes = new Map(); // by direction and line: the beginning that the user chose
const answers = new Map(); // by direction, line and prefix: the newest translations

const status = el("p", { class: "status" });
const directions = el("span", { class: "controls directions" });
const best = el("div", {});
const source = sourceBox({ changed: () => attempt(update), moved: () => look(source.line()) });
const target = targetLines({
  visit(line, words) {
    source.mark(line, words);
    look(line);
  },
  leave: () => source.mark(),
  pick,
  release(line) {
    prefixes.delete(keyOf(source.lines()[line]));
    attempt(update).then(() => target.focus(line, 0));
  },
});

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
      section({ id: "source", title: "Source" }, source.element),
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
  const copy = () => navigator.clipboard.writeText(translated()).then(() => say("Copied."));
  return el(
    "div",
    { class: "controls" },
    // Browsers offer the clipboard only to pages of this machine or of https.
    navigator.clipboard && el("button", { type: "button", onclick: () => attempt(copy) }, "Copy"),
    el("button", { type: "button", onclick: () => attempt(save) }, "Save explanation"),
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
  const { directions: served } = await ask("v1/directions", { waiting: say });
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
    const text = translated();
    if (text.trim()) source.write(text);
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
// Lines and their translations.

// A chosen beginning belongs to a line's text: it moves with it, and comes back with it.
const keyOf = (line) => JSON.stringify([direction?.name, line]);
const prefixOf = (line) => prefixes.get(keyOf(line)) ?? "";
const answerOf = (line) => answers.get(keyOf(line) + prefixOf(line));
const translationOf = (line) => answerOf(line)?.hypotheses?.[0].text ?? "";
const translated = () => source.lines().map(translationOf).join("\n");
const isText = (line) => line.trim() !== "";

function requestFor(lines) {
  const [beam] = direction.beams;
  return { direction: direction.name, lines, prefix: lines.map(prefixOf), beam, nbest: beam, details: true };
}

/** Asks for lines and keeps their translations; returns the whole response. */
async function translate(request, signal) {
  const keys = request.lines.map((line, index) => keyOf(line) + request.prefix[index]);
  const response = await ask("v1/translate", { body: request, signal, waiting: say });
  response.translations.forEach((translation, index) => answers.set(keys[index], translation));
  while (answers.size > KEPT) answers.delete(answers.keys().next().value); // the oldest
  return response;
}

/** Shows the text's translation, and asks for those lines that are not known yet. */
async function update() {
  running?.abort();
  closeChoices();
  if (!direction) return;
  const missing = [...new Set(source.lines())].filter((line) => isText(line) && !answerOf(line));
  show();
  if (!missing.length) return say("");
  running = new AbortController();
  const { signal } = running;
  await translate(requestFor(missing), signal);
  // What is shown is looked up by the text of now, so no answer can be late for it.
  show();
  say("");
  announce(translationOf(source.lines()[current] ?? ""));
}

function show() {
  target.show(source.lines().map((line) => ({ line, prefix: prefixOf(line), translation: answerOf(line) })));
  look(Math.min(source.line(), source.lines().length - 1), true);
}

/** Shows the hypotheses for a line. */
function look(line, again = false) {
  if (line === current && !again) return;
  current = line;
  const translation = answerOf(source.lines()[line] ?? "");
  if (!translation?.hypotheses) return best.replaceChildren(el("p", { class: "note" }, "The best translations of the line at the cursor, with their scores."));
  const rows = translation.hypotheses.map(({ text, score, log_prob, ended }) =>
    row(el("bdi", written("target"), text, ended ? "" : " …"), [score, log_prob].map((each) => numberCell(number(each)))),
  );
  const name = `Line ${line + 1}, confidence ${percent(translation.confidence)}`;
  best.replaceChildren(el("p", { class: "note" }, name), table(name, ["Hypothesis", "Score", "Log-probability"], rows));
}

/** Opens the other words for a word of the translation. */
function pick({ index, line, translation, position, button, about, sources }) {
  closeChoices();
  const { text } = translation.hypotheses[0];
  const { text: word, start } = wordsOf(text)[position];
  const before = text.slice(0, start).trimEnd();
  const choose = (other) => {
    prefixes.set(keyOf(line), before ? `${before} ${other}` : other);
    attempt(update).then(() => target.focus(index, position));
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

/** Downloads what is shown, for `whatwas --answer=FILE`. */
async function save() {
  const request = { ...requestFor(source.lines().filter(isText)), provenance: true };
  if (!request.lines.length) return say("There is nothing to save yet.");
  const response = await translate(request);
  show();
  const file = new Blob([JSON.stringify({ request, response }, null, 1)], { type: "application/json" });
  const href = URL.createObjectURL(file);
  el("a", { href, download: "answer.json" }).click();
  setTimeout(() => URL.revokeObjectURL(href), 1000);
  say("Saved as answer.json.");
}
