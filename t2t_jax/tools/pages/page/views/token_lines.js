// Pieces or words in lines that wrap, and links drawn between them.

import { css, inkOn } from "../common/colours.js";
import { el, svg } from "../common/dom.js";
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

/** Gives token i the colour `colourOf(i)`; null takes its colour away. */
export function shadeTokens(tokens, colourOf) {
  // All colours are worked out before the first is set: reading the style sheet's colours
  // after a change makes the browser compute the styles anew.
  const styles = tokens.map((_, index) => {
    const background = colourOf(index);
    return background ? [css(background), `var(${inkOn(background)})`] : ["", ""];
  });
  tokens.forEach((token, index) => {
    [token.style.background, token.style.color] = styles[index];
  });
}

/**
 * Makes a picture of links over `holder`: {draw(links)}.
 *
 * A link is {from, to, width, className}, from one token to another. Tokens of one line
 * are joined by an arc above it; lines that `beside()` says are columns, by their sides.
 */
export function linkLayer(holder, beside = () => false) {
  const layer = svg("svg", { class: "links", "aria-hidden": "true" });
  holder.append(layer);
  let shown = [];
  const redraw = () => {
    const origin = layer.getBoundingClientRect();
    const boxes = new Map();
    const box = (token) => {
      if (!boxes.has(token)) boxes.set(token, token.getBoundingClientRect());
      return boxes.get(token);
    };
    const between = beside() ? curveBeside : curveBelow;
    const paths = shown.map(({ from, to, width, className }) =>
      svg("path", {
        d: (from.parentNode === to.parentNode ? arcAbove : between)(box(from), box(to), origin),
        "stroke-width": width,
        class: className,
      }),
    );
    layer.replaceChildren(...paths);
  };
  new ResizeObserver(redraw).observe(holder);
  return {
    draw(links) {
      shown = links;
      redraw();
    },
  };
}

function arcAbove(a, b, origin) {
  const [ax, bx] = [centreOf(a) - origin.left, centreOf(b) - origin.left];
  const [from, to] = [a.top - origin.top, b.top - origin.top];
  const top = Math.min(from, to) - Math.min(40, 12 + Math.abs(ax - bx) / 8);
  return `M${ax} ${from}C${ax} ${top} ${bx} ${top} ${bx} ${to}`;
}

function curveBelow(a, b, origin) {
  const [ax, bx] = [centreOf(a) - origin.left, centreOf(b) - origin.left];
  const [from, to] = a.bottom <= b.top ? [a.bottom, b.top] : [a.top, b.bottom];
  const half = (from + to) / 2 - origin.top;
  return `M${ax} ${from - origin.top}C${ax} ${half} ${bx} ${half} ${bx} ${to - origin.top}`;
}

function curveBeside(a, b, origin) {
  const [ay, by] = [a, b].map((box) => (box.top + box.bottom) / 2 - origin.top);
  const [from, to] = a.right <= b.left ? [a.right, b.left] : [a.left, b.right];
  const half = (from + to) / 2 - origin.left;
  return `M${from - origin.left} ${ay}C${half} ${ay} ${half} ${by} ${to - origin.left} ${by}`;
}

function centreOf(box) {
  return (box.left + box.right) / 2;
}
