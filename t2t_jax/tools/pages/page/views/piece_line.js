// The reading as one line of shaded pieces, which the pointer and the arrow keys walk.

import { el } from "../common/dom.js";
import { bandOf } from "../common/notes.js";
import { runningText } from "../common/running.js";
import { number, percent, shownPieces, written } from "../common/text.js";

let lines = 0; // there may be a line for each of two models; ids tell them apart

/**
 * Makes the line: a list box, since pieces are spans. Buttons would break a word into
 * boxes, and with it the joined letters of Arabic.
 *
 * `preview(t)` is called when the pointer is over a piece, `leave()` when over none any
 * more, and `enter()` on Enter. Returns {element, select(t), focus()}.
 */
export function pieceLine({ reading, selection }, { preview, leave, enter }) {
  const name = `line-${lines++}`;
  const options = optionsOf(reading, name);
  const element = el(
    "div",
    {
      class: "pieces reading",
      role: "listbox",
      tabindex: 0,
      ...written("target"),
      "aria-label": "Tokens of the reading; arrow keys move, Enter goes to the alternatives",
      "aria-orientation": "horizontal",
    },
    options.map(({ before, option }) => [before, option]),
  );
  const placeOf = (event) => {
    const option = event.target.closest("[data-t]");
    return option ? Number(option.dataset.t) : null;
  };
  element.addEventListener("pointerover", (event) => {
    const t = placeOf(event);
    if (t !== null && event.pointerType === "mouse") preview(t);
  });
  element.addEventListener("pointerleave", leave);
  element.addEventListener("click", (event) => {
    const t = placeOf(event);
    if (t !== null) selection.set(t);
  });
  element.addEventListener("keydown", (event) => {
    if (event.key === "Enter") enter();
    else {
      const t = afterKey(event.key, selection.position, options.length, element);
      if (t === null) return;
      selection.set(t);
    }
    event.preventDefault();
  });
  function select(t) {
    options.forEach(({ option }, other) =>
      option.setAttribute("aria-selected", String(other === t)),
    );
    element.setAttribute("aria-activedescendant", `${name}-${t}`);
  }
  return { element, select, focus: () => element.focus() };
}

// Left and right are those of the screen: in Arabic the next piece is on the left.
function afterKey(key, t, count, element) {
  const forward = getComputedStyle(element).direction === "rtl" ? "ArrowLeft" : "ArrowRight";
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  if (key !== "ArrowLeft" && key !== "ArrowRight") return null;
  return Math.min(count - 1, Math.max(0, t + (key === forward ? 1 : -1)));
}

function optionsOf(reading, name) {
  const names = shownPieces(reading.pieces);
  return runningText(reading.pieces, reading.text).map(({ before, shown, sign }, t) => {
    const p = Math.exp(reading.log_probs[t]);
    const differs = reading.difference?.position === t;
    const option = el(
      "span",
      {
        id: `${name}-${t}`,
        role: "option",
        class: `piece${sign ? " sign" : ""}${differs ? " differs" : ""}`,
        "data-t": t,
        "data-band": bandOf(p),
        "aria-label":
          `${names[t]}, ${percent(p)}, rank ${reading.rank[t]}, ` +
          `entropy ${number(reading.entropy[t], 2)} bits`,
      },
      shown,
    );
    return { before, option };
  });
}
