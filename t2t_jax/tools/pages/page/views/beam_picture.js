// The tree drawn: one column a step, of which only those in sight are made.

import { el, svg } from "../common/dom.js";
import { percent, pieceText } from "../common/text.js";
import { FATES, fateGlyph } from "./beam_fates.js";

const TREE_LINE = 28; // the height of a line
const TREE_HEAD = 24; // of the line of step numbers
const TREE_GUTTER = 26; // the width of the column of place numbers
const TREE_GAP = 36; // between two steps, for the edges
const TREE_SPARE = 1; // columns and lines made beyond those in sight

/** The numbers that a node can carry. */
export const NODE_NUMBERS = {
  none: { name: "nothing", width: 92 },
  score: { name: "score", width: 138, text: (tree, id) => hundredths(tree.nodes[id].score) },
  log_prob: {
    name: "log-probability",
    width: 138,
    text: (tree, id) => hundredths(tree.nodes[id].log_prob),
  },
  piece: {
    name: "probability of the token",
    width: 138,
    text: (tree, id) => percent(tree.pieceProbability(id)),
  },
};

/** Draws a tree in a box that scrolls, with one node focused. */
export class BeamPicture {
  /**
   * `on` is called: `on.focus(id)` when a node is walked to or clicked, `on.hover(id)`
   * with null when the pointer leaves; `describe(id)` says a node in words.
   */
  constructor(tree, name, describe, on) {
    Object.assign(this, { tree, name, describe, on });
    this.focused = 0;
    this.lastChild = new Map(); // the way that was last walked back
    this.edges = svg("svg", { class: "beam-edges", "aria-hidden": "true" });
    this.marks = svg("svg", { class: "beam-edges", "aria-hidden": "true" });
    this.heads = el("div", { class: "beam-steps", "aria-hidden": "true" });
    this.places = el("div", { class: "beam-places", "aria-hidden": "true" });
    this.below = el(
      "div",
      { class: "beam-below", "aria-hidden": "true" },
      el("span", {}, "never in the beam"),
    );
    this.items = el("div", { role: "none" });
    this.field = el(
      "div",
      { class: "beam-field", role: "none" },
      [this.heads, this.places, this.below, this.marks, this.edges, this.items],
    );
    this.element = el(
      "div",
      {
        class: "beam-scroll",
        role: "tree",
        tabindex: 0,
        "aria-orientation": "horizontal",
        "aria-label": "Hypotheses by step",
        "data-part": "tree",
      },
      this.field,
    );
    this.#listen();
  }

  /** Shows a layout; `faded` are the fates whose nodes are faint, `carried` the number on each. */
  show(layout, { faded, carried }) {
    Object.assign(this, { layout, faded, carried });
    this.width = NODE_NUMBERS[carried].width;
    this.height = this.#y(layout.lines) + 6;
    this.field.style.width = `${this.#x(layout.steps.length)}px`;
    this.field.style.height = `${this.height}px`;
    this.below.hidden = !layout.places || layout.lines <= layout.places;
    this.below.style.top = `${this.#y(layout.places)}px`;
    this.places.replaceChildren(
      ...Array.from({ length: layout.places }, (_, row) =>
        el("span", { style: { top: `${this.#y(row) - TREE_HEAD}px` } }, String(row + 1)),
      ),
    );
    this.drawn = null;
    this.made = new Map(); // nodes in sight and their elements
    this.items.replaceChildren();
    this.focus(this.focused);
  }

  /** Moves the focus to a node and scrolls it into sight. */
  focus(id) {
    const { parent } = this.tree.nodes[id];
    if (parent >= 0) this.lastChild.set(parent, id);
    this.focused = id;
    this.#scrollTo(id);
    this.draw();
    this.#markFocus();
    this.mark(id);
  }

  // The keyboard's focus is on the box; the box names the node.
  #markFocus() {
    const item = this.items.querySelector(`[data-node="${this.focused}"]`);
    const former = this.items.querySelector(".focused");
    former?.classList.remove("focused");
    former?.setAttribute("aria-selected", "false");
    if (!item) {
      this.element.removeAttribute("aria-activedescendant");
      return;
    }
    item.classList.add("focused");
    item.setAttribute("aria-selected", "true");
    item.setAttribute("aria-label", this.describe(this.focused));
    this.element.setAttribute("aria-activedescendant", item.id);
  }

  /** Marks a node's way from the root, and the one that took its place. */
  mark(id) {
    const { tree, layout } = this;
    const way = tree.lineage(id).filter((at) => layout.shows(at));
    const { by } = tree.nodes[id];
    this.marks.replaceChildren(
      svg("path", { class: "lineage", d: way.map((at) => this.#edge(at)).join("") }),
      by !== null && layout.shows(by)
        ? svg("path", { class: "taken", "data-by": by, d: this.#arrow(id, by) })
        : "",
    );
  }

  /** Draws what is in sight, unless it is drawn already. */
  draw() {
    const { element, layout } = this;
    if (!layout || !element.isConnected) return;
    const { scrollLeft, scrollTop, clientWidth, clientHeight } = element;
    const column = this.width + TREE_GAP;
    const from = Math.max(0, Math.floor(scrollLeft / column) - TREE_SPARE);
    const to = Math.ceil((scrollLeft + clientWidth) / column) + TREE_SPARE;
    const top = Math.floor(scrollTop / TREE_LINE) - TREE_SPARE;
    const bottom = Math.ceil((scrollTop + clientHeight) / TREE_LINE) + TREE_SPARE;
    const drawn = [from, to, top, bottom].join();
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    const columns = layout.steps.slice(from, to);
    this.heads.replaceChildren(
      ...columns.map((_, i) =>
        el(
          "span",
          { style: { left: `${this.#x(from + i)}px` } },
          from + i ? `step ${from + i}` : "start",
        ),
      ),
    );
    const ids = columns.flat();
    const inSight = (id) => layout.line[id] >= top && layout.line[id] <= bottom;
    this.#drawNodes(new Set(ids.filter(inSight)));
    this.#drawEdges(layout.steps.slice(from, to + 1).flat());
    const area = [this.#x(from) - TREE_GAP, 0, column * (to - from + 1) + TREE_GAP, this.height];
    for (const picture of [this.edges, this.marks]) placePicture(picture, area);
    this.#markFocus();
  }

  // A node that stays is not made anew: it may be under a pressed pointer.
  #drawNodes(wanted) {
    for (const [id, item] of this.made) {
      if (wanted.has(id)) continue;
      item.remove();
      this.made.delete(id);
    }
    for (const id of wanted) {
      if (this.made.has(id)) continue;
      this.made.set(id, this.#node(id));
      this.items.append(this.made.get(id));
    }
  }

  #drawEdges(ids) {
    const kinds = { faint: "", plain: "", best: "", reference: "" };
    for (const id of ids) {
      const { row, fate } = this.tree.nodes[id];
      const edge = this.#edge(id);
      const [best, reference] = [this.tree.best.has(id), this.tree.reference.has(id)];
      if (best) kinds.best += edge;
      if (reference) kinds.reference += edge;
      if (best || reference) continue;
      kinds[row === null || this.faded.has(fate) ? "faint" : "plain"] += edge;
    }
    this.edges.replaceChildren(
      ...Object.entries(kinds).map(([kind, d]) => svg("path", { class: kind, d })),
    );
  }

  #node(id) {
    const { tree, layout } = this;
    const { step, row, piece, fate } = tree.nodes[id];
    const kinds = {
      best: tree.best.has(id),
      reference: tree.reference.has(id),
      leaf: row === null && !tree.best.has(id),
      faded: this.faded.has(fate),
    };
    const { text } = NODE_NUMBERS[this.carried];
    const shown = step ? pieceText(piece) : el("bdi", { class: "piece-text" }, "start");
    return el(
      "div",
      {
        id: `${this.name}-node-${id}`,
        class: ["beam-node", ...Object.keys(kinds).filter((kind) => kinds[kind])].join(" "),
        role: "treeitem",
        "data-node": id,
        "data-step": step,
        "data-row": row ?? "",
        "data-fate": fate,
        "aria-level": step + 1,
        "aria-posinset": layout.steps[step].indexOf(id) + 1,
        "aria-setsize": layout.steps[step].length,
        "aria-selected": "false",
        "aria-label": `${step ? piece : "start"}, ${FATES[fate].name}`,
        style: {
          left: `${this.#x(step)}px`,
          top: `${this.#y(layout.line[id])}px`,
          width: `${this.width}px`,
          "--share": tree.pieceProbability(id),
        },
      },
      fateGlyph(fate),
      shown,
      text ? el("span", { class: "count" }, text(tree, id)) : null,
    );
  }

  #x(step) {
    return TREE_GUTTER + 6 + step * (this.width + TREE_GAP);
  }

  #y(line) {
    return TREE_HEAD + 4 + line * TREE_LINE;
  }

  #middle(id) {
    return this.#y(this.layout.line[id]) + TREE_LINE / 2 - 2;
  }

  // The path from a node's parent to it.
  #edge(id) {
    const { parent, step } = this.tree.nodes[id];
    if (parent < 0 || !this.layout.shows(parent)) return "";
    const [from, to] = [this.#x(step) - TREE_GAP, this.#x(step)];
    const bend = (from + to) / 2;
    const [start, end] = [this.#middle(parent), this.#middle(id)];
    return `M${from} ${start}C${bend} ${start} ${bend} ${end} ${to} ${end}`;
  }

  // An arrow from a node to the one that took its place, of the next step or its own.
  #arrow(id, by) {
    const [here, there] = [this.tree.nodes[id].step, this.tree.nodes[by].step];
    const [y, end] = [this.#middle(id), this.#middle(by)];
    if (there > here)
      return `M${this.#x(here) + this.width} ${y}L${this.#x(there)} ${end}l-7 -4m7 4l-7 4`;
    const side = end < y ? -1 : 1; // the target is above or below
    const half = (side * (TREE_LINE - 6)) / 2;
    const [from, to] = [this.#x(here), this.#x(there)].map((x) => x + this.width / 2);
    return `M${from} ${y + half}L${to} ${end - half}l-4 ${-7 * side}m4 ${7 * side}l4 ${-7 * side}`;
  }

  #scrollTo(id) {
    const { element, layout, tree, width } = this;
    const x = this.#x(tree.nodes[id].step);
    const y = this.#y(layout.line[id]);
    const { scrollLeft, scrollTop, clientWidth, clientHeight } = element;
    if (x - TREE_GAP - TREE_GUTTER < scrollLeft) element.scrollLeft = x - TREE_GAP - TREE_GUTTER;
    else if (x + width + TREE_GAP > scrollLeft + clientWidth)
      element.scrollLeft = x + width + TREE_GAP - clientWidth;
    if (y - TREE_HEAD < scrollTop) element.scrollTop = y - TREE_HEAD - 4;
    else if (y + TREE_LINE > scrollTop + clientHeight)
      element.scrollTop = y + TREE_LINE + 4 - clientHeight;
  }

  #listen() {
    const nodeOf = (event) => {
      const item = event.target.closest("[data-node]");
      return item ? Number(item.dataset.node) : null;
    };
    const redraw = () => this.draw();
    this.element.addEventListener("scroll", () => requestAnimationFrame(redraw));
    new ResizeObserver(redraw).observe(this.element);
    this.items.addEventListener("click", (event) => {
      if (nodeOf(event) !== null) this.on.focus(nodeOf(event));
    });
    this.items.addEventListener("pointerover", (event) => this.on.hover(nodeOf(event)));
    this.items.addEventListener("pointerleave", () => this.on.hover(null));
    this.element.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      const to = this.#walk(event.key);
      if (to === undefined) return;
      event.preventDefault(); // the arrow keys would scroll
      if (to !== null) this.on.focus(to);
    });
  }

  // Where a key leads: null for nowhere, undefined if the key means nothing here.
  #walk(key) {
    const { tree, layout, focused } = this;
    const { parent, step, by } = tree.nodes[focused];
    const shown = (id) => id >= 0 && layout.shows(id);
    const walked = (id) => shown(id) && !this.faded.has(tree.nodes[id].fate);
    const column = layout.steps[step].filter((id) => id === focused || walked(id));
    const place = column.indexOf(focused);
    if (key === "ArrowLeft") return shown(parent) ? parent : null;
    if (key === "ArrowRight") {
      const back = this.lastChild.get(focused) ?? -1;
      const children = tree.children[focused].filter(shown);
      const best = children.find((id) => tree.best.has(id));
      return [back, best ?? -1, ...children].find(shown) ?? null;
    }
    if (key === "ArrowUp") return column[place - 1] ?? null;
    if (key === "ArrowDown") return column[place + 1] ?? null;
    if (key === "Home") return 0;
    if (key === "End") return tree.search.best.at(-1);
    if (key === "Enter") return by;
    return undefined;
  }
}

// Hypotheses of a step differ little: all get the same decimals. Null is minus infinity.
function hundredths(x) {
  return x?.toFixed(2).replace("-", "−") ?? "–";
}

function placePicture(picture, [left, top, width, height]) {
  picture.setAttribute("viewBox", `${left} ${top} ${width} ${height}`);
  picture.setAttribute("width", width);
  picture.setAttribute("height", height);
  Object.assign(picture.style, { left: `${left}px`, top: `${top}px` });
}
