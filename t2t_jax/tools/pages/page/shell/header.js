// The head of the page: which sentence, and which of its translations.

import { choice, el } from "../common/dom.js";
import { written } from "../common/text.js";

const READINGS = { translation: "Translation", target: "Your target" };

/** Fills the header; `change(next)` is called with {sentence} or {reading}. */
export function fillHeader(page, state, change) {
  const header = document.getElementById("header");
  const readings = el("div", { class: "readings" });
  const sentences =
    page.sentences.length > 1 ? sentenceChooser(page.sentences, change) : null;
  header.append(
    el("p", { class: "models" }, page.models.map(modelLine)),
    sentences ? sentences.element : "",
    readings,
  );
  function show({ sentence, reading }) {
    sentences?.show(sentence);
    showReadings(readings, page.sentences[sentence], reading, change);
  }
  return { show };
}

function modelLine({ name, kind, direction }) {
  const way = direction?.length ? `${direction.join(" → ")}, ` : "";
  return el("span", {}, el("strong", {}, name), ` ${way}${kind}`);
}

// With a target given, the views show it or the search's own translation.
function showReadings(element, sentence, reading, change) {
  const names = sentence.of[0].readings.map(({ name }) => READINGS[name] ?? name);
  if (element.dataset.names !== names.join()) {
    element.dataset.names = names.join();
    const group = choice("The views show", names, reading, (index) => change({ reading: index }));
    element.replaceChildren(...(names.length > 1 ? ["The views show", group] : []));
  }
  element.querySelectorAll("button").forEach((button, index) => {
    button.setAttribute("aria-pressed", String(index === reading));
  });
}

function sentenceChooser(sentences, change) {
  const buttons = sentences.map(({ source }, index) =>
    el(
      "button",
      { type: "button", onclick: () => choose(index) },
      el("bdi", written("source"), source),
    ),
  );
  const count = el("span", { class: "count" });
  const text = el("bdi", { class: "source-line", ...written("source") });
  const element = el(
    "details",
    { class: "sentences" },
    el("summary", {}, count, " ", text),
    el("ol", {}, buttons.map((button) => el("li", {}, button))),
  );
  function choose(index) {
    element.open = false;
    element.firstElementChild.focus();
    change({ sentence: index });
  }
  function show(index) {
    count.textContent = `Sentence ${index + 1} of ${sentences.length}`;
    text.textContent = sentences[index].source;
    buttons.forEach((button, other) => {
      if (other === index) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    });
  }
  return { element, show };
}
