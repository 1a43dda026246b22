// The look of a run: its colour and its dashes.

import { svg } from "../common/dom.js";

/** Returns the two colours of a run; the style sheet chooses between them. */
export function colours({ colours: [light, dark] }) {
  return { "--light": light, "--dark": dark };
}

/** Returns the dashes of a run's lines, or null for a whole line. */
export function dashes(run) {
  return run.dashes.map((dash) => 2 * dash).join(" ") || null;
}

/** Makes a piece of a run's line, to stand beside its name. */
export function swatch(run) {
  return svg(
    "svg",
    { class: "run swatch", viewBox: "0 0 24 6", "aria-hidden": "true", style: colours(run) },
    svg("line", { x1: 0, x2: 24, y1: 3, y2: 3, "stroke-dasharray": dashes(run) }),
  );
}
