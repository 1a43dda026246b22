// A heat map on a canvas, one pixel a cell, that CSS stretches.

import { sequential, whenColoursChange } from "./colours.js";
import { el } from "./dom.js";
import { written } from "./text.js";

/** Paints value(row, column), coloured by `scale`, into a canvas of a pixel a cell. */
export function paintCells(canvas, rows, columns, value, scale) {
  canvas.width = Math.max(1, columns);
  canvas.height = Math.max(1, rows);
  const image = new ImageData(canvas.width, canvas.height);
  for (let i = 0; i < rows; i++)
    for (let j = 0; j < columns; j++) {
      const at = 4 * (i * columns + j);
      image.data.set(scale(value(i, j)), at);
      image.data[at + 3] = 255;
    }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/**
 * Makes a small heat map without labels.
 *
 * It is an image, since a browser takes long to put together a page of a hundred canvases.
 * `makeScale` returns the function from a value to a colour, in the colours of now.
 */
export function thumbnail({ rows, columns, value, makeScale = sequential }) {
  const canvas = el("canvas");
  const image = el("img", { class: "cells", alt: "" });
  whenColoursChange(image, () => {
    paintCells(canvas, rows, columns, value, makeScale());
    image.src = canvas.toDataURL();
  });
  return image;
}

/**
 * Makes a heat map with labels, which the pointer and the arrow keys walk over.
 *
 * `title` names it for a screen reader; `rows` and `columns` are the labels; `value(i, j)`
 * is what `makeScale()` colours; `describe(i, j)` says a cell in words; `announce` reads
 * it out; `enter(i, j)` is called when a cell is pointed at or walked to, `leave()` when
 * none is any more, and `choose(i, j)` on a click or Enter.
 *
 * Returns {element, redraw(), mark(i, j)}; mark moves the cursor without a call to `enter`.
 */
export function heatmap(options) {
  const { title, rows, columns, sides, value, describe } = options;
  const { makeScale = sequential, announce, enter, leave, choose } = options;
  const canvas = el("canvas", { class: "cells", "aria-hidden": "true" });
  const cursor = el("div", { class: "cell-cursor", hidden: true });
  const box = el("div", { class: "cell-box" }, canvas, cursor);
  const note = el("p", { class: "cell-note" }, "\u00a0");
  const frame = el(
    "div",
    {
      class: "heatmap",
      tabindex: 0,
      role: "application",
      "aria-label": `${title}: ${rows.length} rows, ${columns.length} columns; arrow keys move`,
      style: { "--rows": rows.length, "--columns": columns.length },
    },
    el("div", { class: "column-labels", "aria-hidden": "true" }, columns.map((text) => label(text, sides[0]))),
    el("div", { class: "row-labels", "aria-hidden": "true" }, rows.map((text) => label(text, sides[1]))),
    box,
  );
  const at = { row: 0, column: 0 };
  function mark(row, column) {
    Object.assign(at, { row, column });
    cursor.hidden = false;
    cursor.style.setProperty("--row", row);
    cursor.style.setProperty("--column", column);
    note.textContent = describe(row, column);
  }
  function go(row, column) {
    mark(row, column);
    enter?.(row, column);
  }
  walkWithPointer(box, rows.length, columns.length, { at, go, choose, leave });
  walkWithKeys(frame, rows.length, columns.length, {
    at,
    choose,
    go: (row, column) => {
      go(row, column);
      announce?.(describe(row, column));
      cursor.scrollIntoView({ block: "nearest", inline: "nearest" });
    },
  });
  const paint = () => paintCells(canvas, rows.length, columns.length, value, makeScale());
  whenColoursChange(canvas, paint);
  const element = el("div", { class: "heatmap-figure" }, el("div", { class: "scroll" }, frame), note);
  return { element, redraw: paint, mark };
}

function label(text, side) {
  return el("bdi", written(side), text);
}

function walkWithPointer(box, rows, columns, { at, go, choose, leave }) {
  function cellUnder(event) {
    const area = box.getBoundingClientRect();
    const inside = (share, count) => Math.min(count - 1, Math.max(0, Math.floor(share * count)));
    return [
      inside((event.clientY - area.top) / area.height, rows),
      inside((event.clientX - area.left) / area.width, columns),
    ];
  }
  let last = null;
  box.addEventListener("pointermove", (event) => {
    const cell = cellUnder(event);
    if (last && cell[0] === last[0] && cell[1] === last[1]) return;
    last = cell;
    go(...cell);
  });
  box.addEventListener("pointerleave", () => {
    last = null;
    leave?.();
  });
  box.addEventListener("click", (event) => {
    go(...cellUnder(event)); // a finger clicks without having moved
    choose?.(at.row, at.column);
  });
}

/**
 * Lets the arrow keys, Home and End walk over a grid from the cell `at`: {row, column}.
 *
 * `up` is what the arrow up adds to the row; `choose(row, column)` is called on Enter.
 */
export function walkWithKeys(frame, rows, columns, { at, go, choose, up = -1 }) {
  const steps = { ArrowUp: [up, 0], ArrowDown: [-up, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  const inside = (value, count) => Math.min(count - 1, Math.max(0, value));
  frame.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (choose && (event.key === "Enter" || event.key === " ")) choose(at.row, at.column);
    else if (event.key === "Home") go(at.row, 0);
    else if (event.key === "End") go(at.row, columns - 1);
    else if (event.key in steps) {
      const [down, right] = steps[event.key];
      go(inside(at.row + down, rows), inside(at.column + right, columns));
    } else return;
    event.preventDefault();
  });
}
