// The frame around the views: what is looked at, and the controls that change it.

import { contents } from "./contents.js";
import { fillHeader } from "./header.js";
import { listenToKeys } from "./keys.js";
import { passport } from "./passport.js";
import { sectionOf } from "./sections.js";
import { Selection } from "./selection.js";
import { followTheme } from "./theme.js";

/** Says a sentence to a screen reader. */
export function announce(text) {
  document.getElementById("announcements").textContent = text;
}

/** Fills the page with the views of a document. */
export function openShell(page, views) {
  const state = { sentence: 0, reading: 0 };
  const main = document.getElementById("main");
  followTheme();
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
