// The page of the plot command: the logs of one or several runs.

import { choice, el } from "../common/dom.js";
import { start } from "../shell/start.js";
import { followTheme, themeButton } from "../shell/theme.js";
import { nearest } from "./curves.js";
import { legend, runsTable } from "./legend.js";
import { makePanel } from "./panel.js";

const view = { range: null, hidden: new Set(), cursor: null }; // what all panels share
let content; // the page's document
let panels;
let whole; // the range of the axis that holds all runs
let stops; // the places that the cursor can have

start(open);

function open(found) {
  content = found;
  Object.assign(view, { x: content.x, smooth: content.smooth });
  measure();
  panels = content.panels.map((panel) => makePanel(content, panel, view, change));
  document.getElementById("header").append(...controls());
  document.getElementById("main").replaceChildren(
    legend(content, view, () => change({})),
    el("div", { class: "panels" }, panels.map((panel) => panel.element)),
    runsTable(content),
  );
  new ResizeObserver(drawPanels).observe(document.getElementById("main"));
  followTheme();
}

/** Takes over what the reader changed of the view, and draws it. */
function change(next) {
  if ("x" in next) {
    view.x = next.x;
    view.cursor = null;
    measure();
  }
  if ("range" in next) view.range = inside(next.range ?? whole);
  if ("smooth" in next) view.smooth = next.smooth;
  if ("cursor" in next) view.cursor = next.cursor === null ? null : stops[nearest(stops, next.cursor)];
  if ("by" in next) moveCursor(next.by);
  const onlyCursor = Object.keys(next).every((name) => name === "cursor" || name === "by");
  if (!onlyCursor) drawPanels();
  else for (const panel of panels) panel.drawCursor();
}

function moveCursor(by) {
  const at = view.cursor === null ? nearest(stops, view.range[0]) - Math.sign(by) : nearest(stops, view.cursor);
  view.cursor = stops[Math.min(stops.length - 1, Math.max(0, at + by))];
  // The cursor takes the range with it.
  const width = view.range[1] - view.range[0];
  if (view.cursor < view.range[0]) change({ range: [view.cursor, view.cursor + width] });
  if (view.cursor > view.range[1]) change({ range: [view.cursor - width, view.cursor] });
}

function measure() {
  const all = content.runs.flatMap((run) => run.stretches.flatMap((s) => s.x[view.x]));
  stops = [...new Set(all)].sort((a, b) => a - b);
  whole = [0, stops.at(-1)];
  view.range = whole;
}

// A range within the whole that still holds a little of it.
function inside([low, high]) {
  const least = whole[1] / 1e4;
  const from = Math.min(Math.max(low, 0), whole[1] - least);
  return [from, Math.max(from + least, Math.min(high, whole[1]))];
}

function drawPanels() {
  for (const panel of panels) panel.draw();
}

function controls() {
  const axes = Object.keys(content.axes);
  const smooth = el("input", {
    type: "number",
    min: 1,
    step: 2,
    value: content.smooth,
    oninput: () => change({ smooth: Math.max(1, Math.round(Number(smooth.value) || 1)) }),
  });
  return [
    el(
      "div",
      { class: "controls" },
      axes.length > 1
        ? choice("Axis", axes, axes.indexOf(view.x), (index) => change({ x: axes[index] }))
        : null,
      el("label", { class: "chooser" }, "smoothed: mean of", smooth, "logged values"),
      el("button", { type: "button", onclick: () => change({ range: null }) }, "Whole range"),
      themeButton(),
    ),
    el(
      "p",
      { class: "about" },
      "Drag over a plot, or press + and −, to see a part of it; the arrow keys move the cursor.",
    ),
  ];
}
