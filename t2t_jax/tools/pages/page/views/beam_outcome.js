// What came of the search, in words and tables: its end, its results, its losers.

import { el } from "../common/dom.js";
import { numbersAsText } from "../common/numbers.js";
import { numberCell, row, table } from "../common/table.js";
import { number, visible, written } from "../common/text.js";
import { nodeLink } from "./beam_details.js";
import { FATES, fateGlyph, fateReason } from "./beam_fates.js";

const LOSERS = 12;

/** Makes the sentence about the search as a whole. */
export function searchSummary(tree) {
  const { beam, nbest, alpha, penalty, stop, limit, steps, stopped } = tree.search;
  const entered = tree.nodes.filter(({ row, step }) => row !== null && step > 0).length;
  const kept = nbest === 1 ? "the best one" : `the best ${nbest}`;
  return el(
    "p",
    { "data-part": "summary" },
    `Beam ${beam}, keeping ${kept}; length penalty ${penalty}, alpha ${alpha}; ` +
      `rule of stopping “${stop}”; at most ${limit} tokens. In ${steps} steps ${entered} ` +
      "hypotheses had a place in the beam. ",
    el("strong", {}, `The search stopped after step ${stopped.step}: `),
    el("bdi", { "data-field": "stopped" }, stopped.why),
  );
}

/** Makes all that stands below the picture; `go(id)` moves the focus to a node. */
export function searchOutcome(tree, go) {
  return el(
    "div",
    { class: "beam-outcome" },
    finishedTable(tree, go),
    referencePart(tree, go),
    losersOutline(tree, go),
    nodesTable(tree),
  );
}

function finishedTable(tree, go) {
  const { nodes, search } = tree;
  const dropped = nodes
    .flatMap(({ fate }, id) => (fate === "lost" && !search.finished.includes(id) ? [id] : []))
    .sort((a, b) => nodes[b].score - nodes[a].score);
  const rows = [...search.finished, ...dropped];
  const rowOf = (id, index) => {
    // What no hypothesis above begins with, and a piece before it.
    const common = rows.slice(0, index).map((above) => tree.inCommon(id, above));
    const from = Math.max(1, ...common) - 1;
    const { step, log_prob, score, fate } = nodes[id];
    return row(
      index < search.finished.length ? index + 1 : "–",
      [
        nodeLink(tree, id, go, { from }),
        numberCell(String(step)),
        numberCell(number(log_prob, 4), { "data-field": "log-prob" }),
        numberCell(number(score, 4), { "data-field": "score" }),
        [fateGlyph(fate), " ", el("bdi", {}, fateReason(nodes[id]))],
      ],
      { "data-finished": id },
    );
  };
  const columns =
    ["Place", "Hypothesis", "Tokens", "Log-probability", "Score", "What became of it"];
  return el(
    "div",
    { "data-part": "finished" },
    el("h3", {}, "Finished hypotheses"),
    table("Finished hypotheses, best first", columns, rows.map(rowOf)),
  );
}

function referencePart(tree, go) {
  const { reference } = tree.search;
  if (!reference) return null;
  const { step, rank, margin, log_prob, score, best_score, verdict, why } = reference;
  const last = Math.max(0, ...tree.reference); // parents have smaller ids
  const facts = [
    ["score", "Its score", number(score, 4)],
    ["best-score", "Score of what the search found", number(best_score, 4)],
    ["log-prob", "Its log-probability", number(log_prob, 4)],
    ["step", "Left the beam at step", step === null ? "never" : String(step)],
  ];
  if (rank !== null && rank !== undefined) facts.push(["rank", "Its rank there", String(rank)]);
  if (step !== null && margin !== null)
    facts.push(["margin", "Behind the last place by", number(Math.abs(margin))]);
  return el(
    "div",
    { "data-part": "reference", "data-verdict": verdict },
    el("h3", {}, `The target: ${verdict}`),
    el("p", {}, el("bdi", written("target"), reference.text)),
    el("p", { "data-field": "why" }, why),
    el("dl", {}, facts.map(([field, term, value]) => [
      el("dt", {}, term),
      el("dd", { "data-field": field }, value),
    ])),
    nodeLink(tree, last, go, { words: "To its last node in the tree:", control: "reference" }),
  );
}

function losersOutline(tree, go) {
  const losers = tree.bestLosers(LOSERS);
  if (!losers.length) return null;
  return el(
    "details",
    { "data-part": "losers" },
    el("summary", {}, "What became of the best others"),
    el(
      "ol",
      {},
      losers.map((id) => {
        const { step, row, fate } = tree.nodes[id];
        return el(
          "li",
          { "data-loser": id },
          fateGlyph(fate),
          ` Step ${step}, place ${row + 1}: `,
          nodeLink(tree, id, go),
          " ",
          el("bdi", {}, fateReason(tree.nodes[id])),
        );
      }),
    ),
  );
}

function nodesTable(tree) {
  const places = ["Step", "Place", "Token", "After place", "Rank"];
  const columns = [...places, "Log-probability", "Score", "Fate", "Why"];
  const placeOf = ({ row }) => (row === null ? "never in the beam" : row + 1);
  const rowOfNode = (id) => {
    const node = tree.nodes[id];
    const { step, parent, rank, piece, log_prob, score, fate } = node;
    const before = parent < 0 ? null : placeOf(tree.nodes[parent]);
    const place = [step, placeOf(node), visible(piece), before, rank];
    return [...place, log_prob, score, FATES[fate].name, fateReason(node)];
  };
  return numbersAsText("All hypotheses by step", columns, () => tree.steps.flat().map(rowOfNode));
}
