// Colours of the pieces or words of a line, and links drawn between them.

import { css, inkOn } from "../common/colours.js";
import { svg } from "../common/dom.js";

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
