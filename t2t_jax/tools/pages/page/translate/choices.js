// Other words for one of the translation: those of the beam, or one that is typed.

import { announce, el } from "../common/dom.js";
import { number, written } from "../common/text.js";
import { rove } from "../views/roving.js";

/**
 * Opens the panel after the sentence of `button`, the word's; returns its `close()`.
 *
 * `search(signal)` resolves to {word, rest, score} of each alternative; `choose(word)`
 * takes one.
 */
export function openChoices({ button, word, about, search, choose }) {
  const controller = new AbortController();
  const list = el("div", { class: "choice-list" }, el("p", { class: "note" }, "Searching …"));
  const input = el("input", { ...written("target"), autocomplete: "off", spellcheck: "false" });
  const panel = el(
    "div",
    { class: "choices", role: "group", tabindex: -1, "aria-label": `Other words for ${word}`, onkeydown: pressed },
    el("p", { class: "note" }, "Instead of ", el("bdi", {}, el("strong", {}, word)), about.length ? ` (${about.join(", ")})` : ""),
    list,
    el(
      "form",
      { class: "controls", onsubmit: typed },
      el("label", { class: "chooser" }, "Another word", input),
      el("button", {}, "Use"),
      el("button", { type: "button", onclick: () => close(true) }, "Close"),
    ),
  );
  button.closest(".sentence").append(panel);
  button.setAttribute("aria-expanded", "true");
  panel.scrollIntoView({ block: "nearest" });
  panel.focus({ preventScroll: true });
  search(controller.signal).then(fill, failed);

  function fill(alternatives) {
    const buttons = alternatives.map(({ word: other, rest, score }) =>
      el(
        "button",
        { type: "button", class: "choice-word", onclick: () => choose(other) },
        el("bdi", written("target"), el("strong", {}, other), el("span", { class: "rest" }, rest)),
        el("span", { class: "score" }, number(score)),
      ),
    );
    const none = el("p", { class: "note" }, "The search has no other word here; type one.");
    list.replaceChildren(...(buttons.length ? buttons : [none]));
    panel.scrollIntoView({ block: "nearest" });
    rove(buttons);
    announce(buttons.length ? `${buttons.length} alternatives` : none.textContent);
    if (document.activeElement === panel) buttons[0]?.focus();
  }
  function failed(error) {
    if (error.name === "AbortError") return;
    list.replaceChildren(el("p", { class: "warning", role: "alert" }, error.message));
  }
  function typed(event) {
    event.preventDefault();
    if (input.value.trim()) choose(input.value.trim());
  }
  function pressed(event) {
    if (event.key === "Escape") close(true);
  }
  function close(back = false) {
    controller.abort();
    panel.remove();
    button.removeAttribute("aria-expanded");
    if (back) button.focus();
  }
  return close;
}
