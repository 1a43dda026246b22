// The hypotheses of a search as a tree: who descends from whom, and where each stands.

import { byteOf } from "../common/text.js";

/** A search's nodes with their children, and in the order of each step. */
export class BeamTree {
  constructor(search) {
    this.search = search;
    this.nodes = search.nodes;
    const flagged = (flag) =>
      this.nodes.flatMap(({ flags }, id) => (flags?.includes(flag) ? [id] : []));
    this.best = new Set([...search.best, ...flagged("b")]);
    this.reference = new Set([...(search.reference?.nodes ?? []), ...flagged("r")]);
    this.children = this.nodes.map(() => []);
    this.steps = []; // the ids of each step, best first
    this.nodes.forEach((node, id) => {
      if (node.parent >= 0) this.children[node.parent].push(id);
      (this.steps[node.step] ??= []).push(id);
    });
    const order = (a, b) => compareStanding(this.nodes[a], this.nodes[b]);
    for (const ids of [...this.steps, ...this.children]) ids.sort(order);
  }

  /** Returns the nodes from the root to this one. */
  lineage(id) {
    const path = [];
    for (let at = id; at >= 0; at = this.nodes[at].parent) path.push(at);
    return path.reverse();
  }

  /** Returns a hypothesis's text up to this node. */
  text(id) {
    return joinedText(this.lineage(id).map((at) => this.nodes[at].piece));
  }

  /** Returns the end of a hypothesis's text, from the piece at `from` on. */
  ending(id, from) {
    const pieces = this.lineage(id).map((at) => this.nodes[at].piece);
    const text = joinedText(pieces.slice(from)) || pieces.at(-1);
    return from > 1 ? `… ${text}` : text;
  }

  /** Returns the number of nodes that two hypotheses have in common. */
  inCommon(id, other) {
    let [one, two] = [id, other];
    while (one !== two) {
      // Parents come before their children, so the later node is the one to leave.
      if (one > two) one = this.nodes[one].parent;
      else two = this.nodes[two].parent;
    }
    return this.nodes[one].step + 1;
  }

  /** Returns the probability of a node's piece after those before it. */
  pieceProbability(id) {
    const { parent, log_prob } = this.nodes[id];
    return parent < 0 ? 1 : Math.min(1, Math.exp(log_prob - this.nodes[parent].log_prob));
  }

  /** Returns a node, all before and after it, and the rivals that took their places. */
  family(id) {
    const after = [id];
    for (let i = 0; i < after.length; i++) after.push(...this.children[after[i]]);
    const rivals = after.map((at) => this.nodes[at].by).filter((by) => by !== null);
    return new Set([...this.lineage(id), ...after, ...rivals]);
  }

  /** Returns hypotheses that had a place and died: the best-placed, closest ones first. */
  bestLosers(count) {
    const kept = new Set([...this.search.finished, ...this.best]);
    const closeness = (id) => Math.abs(this.nodes[id].margin ?? Infinity);
    const losers = this.nodes.flatMap(({ row, fate }, id) =>
      row !== null && fate !== "alive" && !kept.has(id) ? [id] : [],
    );
    const order = (a, b) =>
      this.nodes[a].row - this.nodes[b].row || closeness(a) - closeness(b) || a - b;
    return losers.sort(order).slice(0, count);
  }

  /** Returns how many hypotheses met each fate, as {fate: count}. */
  fateCounts() {
    const counts = {};
    for (const { fate } of this.nodes) counts[fate] = (counts[fate] ?? 0) + 1;
    return counts;
  }
}

// Places in the beam first; then those that never had one, by rank or log-probability.
function compareStanding(a, b) {
  if (a.row !== null || b.row !== null) return (a.row ?? Infinity) - (b.row ?? Infinity);
  if (a.rank !== null && b.rank !== null) return a.rank - b.rank;
  return b.log_prob - a.log_prob;
}

/**
 * Chooses the nodes that are shown and the line of each: the places in the beam, and,
 * half a line below them, those that never had one. With `follow`, the node's family
 * only, closed up.
 */
export class BeamLayout {
  constructor(tree, { leaves, follow }) {
    const family = follow === null ? null : tree.family(follow);
    const shown = (id) =>
      family
        ? family.has(id) && (leaves || tree.nodes[id].row !== null || id === follow)
        : leaves || tree.nodes[id].row !== null || tree.best.has(id) || tree.reference.has(id);
    this.line = new Float32Array(tree.nodes.length).fill(-1);
    this.steps = tree.steps.map((ids) => ids.filter(shown));
    // The number of places in the beam; 0 when lines are not places.
    this.places = family ? 0 : tree.nodes.reduce((n, { row }) => Math.max(n, (row ?? -1) + 1), 1);
    this.lines = 1;
    for (const ids of this.steps) {
      const entered = ids.filter((id) => tree.nodes[id].row !== null).length;
      ids.forEach((id, index) => {
        const { row } = tree.nodes[id];
        if (family) this.line[id] = index;
        else this.line[id] = row ?? this.places + 0.5 + index - entered;
        this.lines = Math.max(this.lines, this.line[id] + 1);
      });
    }
  }

  shows(id) {
    return this.line[id] >= 0;
  }
}

/**
 * Returns the text of pieces. U+2581 is a space and <0x41> one byte of a character;
 * without them a space follows each piece, unless it is marked "@@" (fairseq), or only
 * the marked ones if there is a "</w>" (FSMT).
 */
export function joinedText(pieces) {
  const spoken = pieces.filter((piece) => !["", "<s>", "</s>"].includes(piece));
  const spaced = spoken.some((piece) => piece.includes("▁") || byteOf(piece) !== null);
  const wordEnds = spoken.some((piece) => piece.endsWith("</w>"));
  let [text, bytes] = ["", []];
  const flush = () => {
    text += new TextDecoder().decode(new Uint8Array(bytes));
    bytes = [];
  };
  for (const piece of spoken) {
    if (byteOf(piece) !== null) {
      bytes.push(byteOf(piece));
      continue;
    }
    flush();
    if (spaced) text += piece.replaceAll("▁", " ");
    else if (wordEnds) text += piece.replace(/<\/w>$/, " ");
    else text += piece.endsWith("@@") ? piece.slice(0, -2) : `${piece} `;
  }
  flush();
  return text.trim();
}
