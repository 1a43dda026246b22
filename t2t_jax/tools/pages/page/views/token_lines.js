// Pieces or words in lines that wrap.

import { el } from "../common/dom.js";
import { written } from "../common/text.js";
import { rove } from "./roving.js";

const RIGHT_TO_LEFT =
  /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u;

// "rtl" or "ltr", after the first letter of the texts.
function directionOf(texts) {
  const letter = /\p{L}/u.exec(texts.join(" "));
  return letter && RIGHT_TO_LEFT.test(letter[0]) ? "rtl" : "ltr";
}

/** Returns a text that does not disturb the direction of a sentence around it. */
export function isolated(text) {
  return `\u2068${text}\u2069`;
}

/**
 * Makes a line of buttons, one a piece or word of a side: {element, tokens}.
 *
 * `visit(index, focused)` is called when one is pointed at or focused, `leave()` when it
 * no longer is, `pick(index)` on a click or Enter. `below(index)` returns what stands
 * under its text.
 */
export function tokenLine({ name, side, texts, visit, leave, pick, below }) {
  const tokens = texts.map((text, index) =>
    el(
      "button",
      {
        type: "button",
        class: "token",
        "data-token": index,
        onpointerenter: (event) => event.pointerType === "mouse" && visit?.(index, false),
        onpointerleave: (event) => event.pointerType === "mouse" && leave?.(),
        onfocus: () => visit?.(index, true),
        onblur: () => leave?.(),
        onclick: () => pick?.(index),
      },
      el("bdi", written(side), text),
      below?.(index) || null,
    ),
  );
  const dir = directionOf(texts);
  rove(tokens, 1, dir === "rtl");
  const attributes = { class: "token-line", dir, role: "group", "aria-label": name };
  const element = el("div", attributes, tokens);
  return { element, tokens };
}
