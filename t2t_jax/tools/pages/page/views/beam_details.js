// One hypothesis in words: its text, its numbers, its fate, and the way on.

import { el } from "../common/dom.js";
import { number, percent, visible, written } from "../common/text.js";
import { FATES, fateGlyph, fateReason } from "./beam_fates.js";

const LINK_PIECES = 8; // the length of a link's text

/** Returns a hypothesis as a sentence for a screen reader. */
export function describeNode(tree, id) {
  const { step, row, piece, log_prob, score, fate } = tree.nodes[id];
  if (step === 0) return "Start, before the first token";
  const place = row === null ? "never in the beam" : `place ${row + 1}`;
  const way = tree.best.has(id) ? "; on the best path" : "";
  const target = tree.reference.has(id) ? "; on the target's path" : "";
  return (
    `${visible(piece)}, step ${step}, ${place}${way}${target}. ${tree.text(id)}. ` +
    `Log-probability ${number(log_prob)}, score ${number(score)}. ` +
    `${FATES[fate].name}: ${fateReason(tree.nodes[id])}`
  );
}

/** Makes the panel of a node; `go(id)` moves the focus, `follow(id)` hides the others. */
export function nodeDetails(tree, id, { go, follow, following }) {
  const { step, fate, by } = tree.nodes[id];
  const pressed = following === id;
  return el(
    "div",
    { "data-shown": id },
    el(
      "p",
      { class: "beam-text", ...written("target"), "data-field": "text" },
      step ? tree.text(id) || "(no text)" : "Before the first token",
    ),
    el("dl", {}, nodeNumbers(tree, id).map(([field, term, value]) => [
      el("dt", {}, term),
      el("dd", { "data-field": field }, value),
    ])),
    el(
      "p",
      { class: "beam-why" },
      fateGlyph(fate),
      el("strong", { "data-field": "fate" }, ` ${FATES[fate].name}: `),
      el("bdi", { "data-field": "why" }, fateReason(tree.nodes[id])),
    ),
    el(
      "div",
      { class: "controls" },
      by === null ? null : nodeLink(tree, by, go, { words: "Took its place:", control: "by" }),
      el(
        "button",
        {
          type: "button",
          "data-control": "follow",
          "aria-pressed": String(pressed),
          onclick: () => follow(pressed ? null : id),
        },
        "Follow this hypothesis",
      ),
    ),
  );
}

/** Makes a button that moves the focus to a node; its text begins at piece `from`. */
export function nodeLink(tree, id, go, { words, control = "go", from } = {}) {
  const { step } = tree.nodes[id];
  const text = tree.ending(id, from ?? Math.max(0, step - LINK_PIECES + 1));
  return el(
    "button",
    {
      type: "button",
      class: "beam-link",
      "data-control": control,
      "data-to": id,
      onclick: () => go(id),
    },
    words ? `${words} ` : null,
    el("bdi", written("target"), step ? text : "the start"),
  );
}

// The numbers of a node, as [field, name, text].
function nodeNumbers(tree, id) {
  const { step, row, rank, piece, log_prob, score, margin } = tree.nodes[id];
  const place = row === null ? "never in the beam" : `${row + 1} of ${tree.search.beam}`;
  if (step === 0) return [["step", "Step", "0"]];
  const rows = [
    ["piece", "Last token", el("bdi", written("target"), visible(piece))],
    ["piece-probability", "Its probability", percent(tree.pieceProbability(id))],
    ["step", "Step, place", `${step}, ${place}`],
    ["log-prob", "Log-probability", number(log_prob, 4)],
    ["score", "Score, with the length penalty", number(score, 4)],
  ];
  if (rank !== null) rows.push(["rank", "Rank among the extensions", String(rank)]);
  if (margin !== null) {
    const side = margin < 0 ? "Ahead of" : "Behind";
    rows.push(["margin", `${side} what took its place by`, number(Math.abs(margin))]);
  }
  return rows;
}
