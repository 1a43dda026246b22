// What becomes of a hypothesis: a name, a shape and a sentence for each fate.

import { el, svg, visibilityButton } from "../common/dom.js";

/** The fates, as {name, glyph: a path in a box of 12 by 12, filled, about}. */
export const FATES = {
  alive: {
    name: "alive",
    glyph: "M6 1.8a4.2 4.2 0 1 0 .01 0z",
    about: "it has a child in the next beam",
  },
  outranked: {
    name: "outranked",
    glyph: "M2 2l8 8M10 2l-8 8",
    about: "others took all places of the next beam",
  },
  ended: {
    name: "ended",
    glyph: "M2 2h8v8h-8z",
    filled: true,
    about: "it is complete, and its score is final",
  },
  lost: {
    name: "ended, dropped",
    glyph: "M1.5 2.5h9l-4.5 8z",
    about: "it is complete, but better complete ones took its place",
  },
  limit: {
    name: "at the limit",
    glyph: "M1 6h7M5 3l3 3-3 3M10.5 1v10",
    about: "it reached the greatest length without an end",
  },
  forbidden: {
    name: "forbidden",
    glyph: "M6 1.2a4.8 4.8 0 1 0 .01 0zM2.7 9.3l6.6-6.6",
    about: "a rule refused it",
  },
  phrase: {
    name: "gave way to a phrase",
    glyph: "M6 .8l5.2 5.2-5.2 5.2-5.2-5.2z",
    about: "its place went to a less probable one, for the required phrases",
  },
  stopped: {
    name: "search stopped",
    glyph: "M3.5 1.5v9M8.5 1.5v9",
    about: "it was alive when the search stopped",
  },
};

/** Makes the sign of a fate. */
export function fateGlyph(fate) {
  const { glyph, filled } = FATES[fate];
  return svg(
    "svg",
    { class: `fate-glyph fate-${fate}`, viewBox: "0 0 12 12", "aria-hidden": "true" },
    svg("path", { d: glyph, fill: filled ? "currentColor" : "none" }),
  );
}

/** Returns why a node met its fate; of those alive there is nothing to say but that. */
export function fateReason({ fate, why }) {
  return why || FATES[fate].about;
}

/** Makes the legend; each sign is a button that shows or fades its hypotheses. */
export function fateFilter(counts, hidden, change) {
  const buttons = Object.keys(FATES)
    .filter((fate) => counts[fate])
    .map((fate) =>
      visibilityButton(
        hidden,
        fate,
        { "data-fate": fate, title: FATES[fate].about },
        change,
        fateGlyph(fate),
        ` ${FATES[fate].name} `,
        el("span", { class: "count" }, String(counts[fate])),
      ),
    );
  return el(
    "div",
    { class: "beam-filter", role: "group", "aria-label": "Show hypotheses by fate" },
    buttons,
  );
}
