// Notes that several pages write next to a translation.

import { el } from "./dom.js";

/** Bands of probability, from sure to surprised; the style sheet has their colours. */
const BANDS = [
  { from: 0.9, name: "≥ 90%" },
  { from: 0.5, name: "50–90%" },
  { from: 0.2, name: "20–50%" },
  { from: 0.05, name: "5–20%" },
  { from: 0, name: "< 5%" },
];

/** Returns the value of `data-band` for a probability. */
export function bandOf(p) {
  return BANDS.findIndex(({ from }) => p >= from);
}

/** Makes the key to the bands' colours. */
export function bandLegend(title) {
  return el(
    "p",
    { class: "legend" },
    el("span", {}, title),
    BANDS.map(({ name }, band) =>
      el("span", { class: "piece", "data-band": band }, ` ${name} `),
    ),
  );
}

/** Returns the warning that a source was cut, or nothing. */
export function cutNote({ cut }) {
  if (!cut) return [];
  return [el(
    "p",
    { class: "warning" },
    `The source is longer than the model reads: its last ${cut} tokens were cut off.`,
  )];
}
