// Two lines of pieces or words, or one, with arcs for what one of them attends to.

import { sequential, whenColoursChange } from "../common/colours.js";
import { el } from "../common/dom.js";
import { number } from "../common/text.js";
import { colourShare, columnOfMap, largestOf, rowOfMap, strongest } from "./attention_maps.js";
import { isolated, tokenLine } from "./token_lines.js";
import { linkLayer, shadeTokens } from "./token_marks.js";

const MOST_ARCS = 8;
const LEAST_ARC = 0.01;
const LEAST_SHARE = 0.07; // of the strongest colour: less is not to be seen
const WIDEST_ARC = 8; // pixels of an arc of weight 1

/**
 * Makes the figure: {element, show(query)}.
 *
 * `queries` and `keys` are the labels of a map's rows and columns; `names` says what the
 * lines of keys and queries are; `within` is for queries and keys that are one line.
 * `choose(query)` is called when a query is chosen, `resting()` returns the query that is
 * shown when none is pointed at, or null.
 */
export function arcsFigure({ map, queries, keys, names, sides, within, announce, choose, resting }) {
  const holder = el("div", { class: "linked-lines" });
  const note = el("p", { class: "arcs-note" });
  const show = (isQuery, index, focused) => {
    draw(isQuery, index);
    if (focused) announce(note.textContent);
  };
  const rest = () => draw(true, resting());
  const lineOf = (isQuery, texts) =>
    tokenLine({
      name: names[isQuery ? 1 : 0],
      side: sides[isQuery ? 1 : 0],
      texts,
      visit: (index, focused) => show(isQuery, index, focused),
      leave: rest,
      pick: isQuery ? choose : (index) => show(false, index, true),
    });
  const queryLine = lineOf(true, queries);
  const keyLine = within ? queryLine : lineOf(false, keys);
  const lines = within ? [queryLine] : [keyLine, queryLine];
  lines.forEach((line, i) => {
    line.element.dataset.line = i === lines.length - 1 ? "queries" : "keys";
    const name = el("p", { class: "line-name" }, names[within ? 1 : i]);
    // Nothing stands between two lines but the arcs.
    holder.append(...(i === 0 ? [name, line.element] : [line.element, name]));
  });
  const layer = linkLayer(holder);

  function draw(isQuery, index) {
    for (const { tokens } of lines)
      for (const token of tokens) token.classList.remove("at");
    if (index === null) {
      for (const { tokens } of lines) shadeTokens(tokens, () => null);
      note.textContent = "Point at a token, or move to it with Tab and the arrow keys.";
      layer.draw([]);
      return;
    }
    const weights = isQuery ? rowOfMap(map, index) : columnOfMap(map, index);
    const [here, others] = isQuery ? [queryLine, keyLine] : [keyLine, queryLine];
    const most = largestOf(weights);
    const scale = sequential();
    shadeTokens(others.tokens, (other) => {
      const share = colourShare(weights[other], most);
      return share < LEAST_SHARE ? null : scale(share);
    });
    if (here !== others) shadeTokens(here.tokens, () => null);
    const token = here.tokens[index];
    token.classList.add("at");
    const top = strongest(weights, MOST_ARCS, LEAST_ARC);
    note.textContent = describeArcs(isQuery, index, top, { queries, keys });
    layer.draw(
      top.map(([other, weight]) => ({
        from: token,
        to: others.tokens[other],
        width: Math.max(1, WIDEST_ARC * weight),
      })),
    );
  }
  const element = el("div", { class: "arcs" }, el("div", { class: "scroll" }, holder), note);
  whenColoursChange(element, rest);
  return { element, show: (query) => draw(true, query), rest };
}

function describeArcs(isQuery, index, top, { queries, keys }) {
  const [here, others] = isQuery ? [queries, keys] : [keys, queries];
  const verb = isQuery ? "attends to" : "is attended to by";
  const list = top.map(([other, weight]) => `${isolated(others[other])} ${number(weight)}`);
  return `${isolated(here[index])} ${verb} ${list.join(", ") || `nothing above ${LEAST_ARC}`}`;
}
