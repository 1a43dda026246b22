// The grid of an attention's heads: a small map of each, its entropy, and a check box.

import { el } from "../common/dom.js";
import { thumbnail } from "../common/heatmap.js";
import { row, table } from "../common/table.js";
import { number } from "../common/text.js";
import { cellOfMap, colourShare, largestOf, pauses, pooledMap } from "./attention_maps.js";
import { rove } from "./roving.js";

const POOLED_SIZE = 40; // cells of a small map along a side, at most

/**
 * Makes the grid: {element, draw(weights), show(layer, head)}.
 *
 * `checked` is the set of the names of checked heads, see `nameOfHead`; `enlarge(layer,
 * head)` is called when a small map is chosen, `check()` after `checked` has changed.
 */
export function headGrid({ attention, title, checked, enlarge, check }) {
  const heads = attention.entropy.map((layer, l) =>
    layer.map((_, h) => headCell(attention, l, h, { checked, enlarge, check: changed })),
  );
  const layers = heads.map((row, l) => layerBox(row, l, changed));
  const all = heads.flat();
  rove(all.map((head) => head.button), heads[0].length);
  rove(all.map((head) => head.box), heads[0].length);
  function changed() {
    for (const layer of layers) layer.show();
    check();
  }
  function checkAll(value) {
    for (const head of all) head.set(value);
    changed();
  }
  for (const layer of layers) layer.show();
  const element = el(
    "div",
    { class: "head-grid" },
    table(
      `Heads of the ${title}`,
      [null, ...heads[0].map((_, h) => `head ${h + 1}`)],
      heads.map((ofLayer, l) => row(layers[l].element, ofLayer.map(({ element }) => element))),
    ),
    el(
      "div",
      { class: "controls" },
      checkButton("Check all heads", "all", () => checkAll(true)),
      checkButton("Check none", "none", () => checkAll(false)),
    ),
  );
  return {
    element,
    draw: (weights) => drawWhenSeen(all, weights),
    show: (layer, head) =>
      all.forEach((each) => {
        const pressed = each.layer === layer && each.head === head;
        each.button.setAttribute("aria-pressed", String(pressed));
      }),
  };
}

function checkButton(text, heads, onclick) {
  return el("button", { type: "button", "data-heads": heads, onclick }, text);
}

/** Returns the name of a head in the set of checked heads. */
export function nameOfHead(layer, head) {
  return `${layer}.${head}`;
}

function headCell(attention, layer, head, { checked, enlarge, check }) {
  const title = `layer ${layer + 1}, head ${head + 1}`;
  const name = nameOfHead(layer, head);
  const entropy = `${number(attention.entropy[layer][head])} bits`;
  const [short, long] = secondFigure(attention, layer, head);
  const place = { "data-layer": layer, "data-head": head };
  const button = el("button", {
    type: "button",
    class: "head-map",
    "aria-pressed": "false",
    "aria-label": `Enlarge ${title}: entropy ${entropy}, ${long}`,
    title: `${title}: entropy ${entropy}, ${long}`,
    onclick: () => enlarge(layer, head),
    ...place,
  });
  const box = el("input", {
    type: "checkbox",
    "aria-label": `${title}, entropy ${entropy}, ${long}`,
    onchange: () => {
      set(box.checked);
      check();
    },
    ...place,
  });
  function set(value) {
    box.checked = value;
    if (value) checked.add(name);
    else checked.delete(name);
  }
  set(checked.has(name));
  const figures = el("span", { class: "head-figures", ...place }, entropy, el("br"), short);
  const element = el("div", { class: "head" }, button, el("label", {}, box, figures));
  return { element, button, box, layer, head, set };
}

// A head's second figure, short and long: how far it looks, or, between sentences, where.
function secondFigure({ offset, peak }, layer, head) {
  if (!offset) {
    const place = number(peak[layer][head], 2);
    return [`peak ${place}`, `peak at ${place} of the source`];
  }
  const far = offset[layer][head];
  const text = (far > 0 ? "+" : "") + number(far, 2);
  return [`offset ${text}`, `offset ${text} tokens`];
}

function layerBox(row, layer, changed) {
  const box = el("input", {
    type: "checkbox",
    "data-layer": layer,
    "aria-label": `all heads of layer ${layer + 1}`,
    onchange: () => {
      for (const head of row) head.set(box.checked);
      changed();
    },
  });
  const show = () => {
    const count = row.filter((head) => head.box.checked).length;
    box.checked = count === row.length;
    box.indeterminate = count > 0 && count < row.length;
  };
  return { element: el("label", {}, box, ` layer ${layer + 1}`), show };
}

// Draws the small maps that come near the screen, a few at a time.
function drawWhenSeen(heads, weights) {
  const [, , rows, columns] = weights.shape;
  const headAt = new Map(heads.map((head) => [head.button, head]));
  const queue = [];
  let drawing = false;
  async function drawQueue() {
    drawing = true;
    const pause = pauses();
    while (queue.length) {
      const { button, layer, head } = queue.shift();
      const map = pooledMap((i) => weights.row(layer, head, i), rows, columns, POOLED_SIZE);
      button.replaceChildren(smallMap(map));
      await pause();
    }
    drawing = false;
  }
  const observer = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries)
      if (isIntersecting) {
        observer.unobserve(target);
        queue.push(headAt.get(target));
      }
    if (!drawing) drawQueue();
  });
  for (const head of heads) observer.observe(head.button);
}

function smallMap(map) {
  const most = largestOf(map.values);
  return thumbnail({
    rows: map.rows,
    columns: map.columns,
    value: (i, j) => colourShare(cellOfMap(map, i, j), most),
  });
}
