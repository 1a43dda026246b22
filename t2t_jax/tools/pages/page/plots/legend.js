// What the lines are: the runs, each of which can be hidden, and the kinds of line.

import { el, section, visibilityButton } from "../common/dom.js";
import { numberCell, row, table } from "../common/table.js";
import { swatch } from "./look.js";

/** Makes the legend; a press on a run hides or shows it. */
export function legend(content, view, changed) {
  const buttons = content.runs.map((run, index) => {
    const name = [swatch(run), el("bdi", {}, run.name)];
    return el("li", {}, visibilityButton(view.hidden, index, { title: run.path }, changed, name));
  });
  const kinds = [["line", "training, smoothed as chosen above (faint: each logged value)"], ...content.legend];
  return el(
    "div",
    { class: "legend" },
    el("ul", { class: "runs", "aria-label": "Runs; press one to hide it" }, buttons),
    el("p", { class: "kinds" }, kinds.map((each) => each.join(": ")).join(" · ")),
  );
}

/** Makes the table of runs: where they are, how far they came, what happened, where the time went. */
export function runsTable(content) {
  const rows = content.runs.map((run) =>
    row(
      [swatch(run), el("bdi", {}, run.name)],
      [
        el("td", { class: "path" }, el("bdi", {}, run.path)),
        numberCell(run.last_step.toLocaleString("en")),
        el("ul", { class: "events" }, run.events.map(({ text }) => el("li", {}, text))),
        el("pre", {}, run.time.join("\n")),
      ],
    ),
  );
  const all = table("Runs", ["Run", "Workdir", "Last step", "What happened", "Where the time went"], rows);
  return el("div", { class: "all-runs" }, section({ title: "Runs" }, all));
}
