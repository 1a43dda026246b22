// The frame around the views: what is looked at, and the controls that change it.

import { announce, el } from "../common/dom.js";
import { row, table } from "../common/table.js";
import { setLanguages } from "../common/text.js";
import { contents } from "./contents.js";
import { fillHeader } from "./header.js";
import { listenToKeys } from "./keys.js";
import { sectionOf } from "./sections.js";
import { followTheme } from "./theme.js";

/** Fills the page with the views of a document. */
export function openShell(page, views) {
  const state = { sentence: 0, reading: 0 };
  const main = document.getElementById("main");
  followTheme();
  setLanguages(page.models[0].direction);
  const sections = views.map(sectionOf);
  const header = fillHeader(page, state, change);
  main.before(contents(views));
  main.replaceChildren(...sections.map((section) => section.element));
  document.getElementById("footer").append(passport(page.models));
  listenToKeys(page, state, change);

  function change(next) {
    Object.assign(state, next);
    render();
    const reading = contexts(page, state)[0].reading;
    announce(`Sentence ${state.sentence + 1}, ${reading.name}: ${reading.text}`);
  }
  function render() {
    header.show(state);
    const of = contexts(page, state);
    sections.forEach((section) => section.renew(of));
  }
  render();
  // The address may name a view, which was not there when the browser looked for it.
  sections.find(({ element }) => `#${element.id}` === location.hash)?.element.scrollIntoView();
}

// What the views of each model see. A model without a second reading shows its first.
function contexts(page, state) {
  const sentence = page.sentences[state.sentence];
  return page.models.map((model, index) => {
    const entry = sentence.of[index];
    const reading = entry.readings[state.reading] ?? entry.readings[0];
    const first = reading.difference ? reading.difference.position : 0;
    return { page, model, sentence, entry, reading, announce, selection: new Selection(first) };
  });
}

// ------------------------------------------------------------
// The foot of the page: where each model comes from.

/** Makes the table of the models' passports, a column for each. */
function passport(models) {
  const of = models.map(({ passport: pairs }) => new Map(pairs));
  const names = [...new Set(of.flatMap((pairs) => [...pairs.keys()]))];
  const rows = names.map((name) => row(name, of.map((pairs) => pairs.get(name))));
  const headings = models.length > 1 ? ["", ...models.map(({ name }) => name)] : null;
  return el(
    "div",
    { class: "passport" },
    el("h2", {}, "Passport"),
    table("Where the model comes from", headings, rows),
  );
}

// ------------------------------------------------------------
// The piece of the target that all views of a model look at.

/** A position in the target, and who wants to know when it changes. */
class Selection {
  constructor(position) {
    this.position = position;
    this.listeners = new Set();
  }

  /** Selects another piece. */
  set(position) {
    if (position === this.position) return;
    this.position = position;
    for (const listener of this.listeners) listener(position);
  }

  /** Calls `listener` with the position after each change. */
  listen(listener) {
    this.listeners.add(listener);
  }
}
