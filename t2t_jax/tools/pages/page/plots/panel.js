// One metric of all runs: a drawing with a cursor, and the values at the cursor.

import { el, svg } from "../common/dom.js";
import { numbersAsText } from "../common/numbers.js";
import { number } from "../common/text.js";
import { nearest, pathOf, smoothed } from "./curves.js";
import { colours, dashes, swatch } from "./look.js";
import { domainOf, place, scale, short, ticks } from "../common/scales.js";

const HEIGHT = 230;
const MARGIN = { left: 52, right: 12, top: 10, bottom: 24 };

/**
 * Makes a panel: `{element, draw, drawCursor}`.
 *
 * `view` is what all panels share: {x, range, smooth, hidden, cursor}; `change` gets
 * what the reader changes of it.
 */
export function makePanel(content, panel, view, change) {
  const drawing = svg("svg", {
    class: "drawing",
    height: HEIGHT,
    tabindex: 0,
    role: "slider",
    "aria-label": `${panel.title}: cursor`,
  });
  const values = el("ul", { class: "values" });
  const at = el("p", { class: "at" });
  const own = { panel, drawing, log: panel.log, across: null, up: null };
  const logarithm = el("button", {
    type: "button",
    "aria-pressed": String(own.log),
    onclick: () => {
      own.log = !own.log;
      logarithm.setAttribute("aria-pressed", String(own.log));
      draw();
    },
  }, "log");
  const element = el(
    "section",
    { class: "panel" },
    el("div", { class: "panel-head" }, el("h2", {}, panel.title), logarithm),
    drawing,
    at,
    values,
    numbersAsText(panel.title, ["Run", "Set", "At", "Value"], () => table(content, panel, view)),
  );
  function draw() {
    drawAll(content, own, view);
    drawCursor();
  }
  function drawCursor() {
    const lines = valuesAt(content, panel, view);
    showCursor(own, view, lines);
    at.textContent = cursorText(content, view);
    values.replaceChildren(...lines.map(valueLine));
    const text = lines.map(({ run, texts }) => `${run.name}: ${texts.join(", ")}`);
    drawing.setAttribute("aria-valuenow", view.cursor ?? view.range[0]);
    drawing.setAttribute("aria-valuetext", [at.textContent, ...text].join("; "));
  }
  listen(own, view, change);
  return { element, draw, drawCursor };
}

// The curves of visible runs, each with its run and its points.
function curvesOf(content, panel, view) {
  return panel.curves
    .filter(({ run }) => !view.hidden.has(run))
    .map((curve) => {
      const run = content.runs[curve.run];
      const { kind, x, values } = run.stretches[curve.stretch];
      return { ...curve, run, kind, xs: x[view.x], ys: values[panel.metric] };
    });
}

function drawAll(content, own, view) {
  const { panel, drawing } = own;
  const width = drawing.clientWidth || 320;
  const curves = curvesOf(content, panel, view);
  const seen = curves.flatMap(({ xs, ys }) =>
    ys.filter((_, i) => xs[i] >= view.range[0] && xs[i] <= view.range[1]),
  );
  const domain = domainOf(seen, own.log);
  own.across = scale(view.range, [MARGIN.left, width - MARGIN.right]);
  own.up = scale(domain, [HEIGHT - MARGIN.bottom, MARGIN.top], own.log);
  const clip = `clip-${panel.metric}`;
  drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  drawing.setAttribute("aria-valuemin", view.range[0]);
  drawing.setAttribute("aria-valuemax", view.range[1]);
  drawing.replaceChildren(
    svg("clipPath", { id: clip }, svg("rect", { ...box(width, 4) })),
    ...axisLines(own, view, domain, width),
    svg(
      "g",
      { "clip-path": `url(#${clip})` },
      curves.map((curve) => drawCurve(curve, own, view)),
      content.runs.map((run, index) =>
        view.hidden.has(index)
          ? []
          : run.events
              .filter(({ metric }) => metric === panel.metric)
              .map((event) => drawEvent(run, event, own, view)),
      ),
    ),
    svg("rect", { class: "chosen-range", y: MARGIN.top, height: box(width).height, hidden: true }),
    svg("g", { class: "cursor" }),
  );
}

// Where curves are drawn, and `more` pixels around it for points that stand at its edge.
const box = (width, more = 0) => ({
  x: MARGIN.left - more,
  y: MARGIN.top - more,
  width: Math.max(0, width - MARGIN.left - MARGIN.right + 2 * more),
  height: HEIGHT - MARGIN.top - MARGIN.bottom + 2 * more,
});

function axisLines(own, view, domain, width) {
  const [left, bottom] = [MARGIN.left, HEIGHT - MARGIN.bottom];
  const across = ticks(view.range, Math.max(2, Math.floor(width / 90))).map((x) => [
    svg("line", { x1: own.across(x), x2: own.across(x), y1: MARGIN.top, y2: bottom }),
    svg("text", { x: own.across(x), y: bottom + 16, "text-anchor": "middle" }, short(x)),
  ]);
  const up = ticks(domain, 5, own.log).map((y) => [
    svg("line", { x1: left, x2: width - MARGIN.right, y1: own.up(y), y2: own.up(y) }),
    svg("text", { x: left - 6, y: own.up(y) + 4, "text-anchor": "end" }, short(y)),
  ]);
  return [svg("g", { class: "axes", "aria-hidden": "true" }, across, up)];
}

function drawCurve({ run, xs, ys, ...curve }, own, view) {
  const path = (values, kind) =>
    svg("path", {
      class: `curve ${kind}`,
      d: pathOf(xs, values, own.across, own.up),
      "stroke-dasharray": dashes(run),
    });
  const faint = curve.faint ? "faint" : "";
  const parts = [];
  if (curve.points) {
    parts.push(path(ys, `dev ${faint}`), ...points(xs, ys, own, faint));
  } else {
    const count = curve.smooth ? view.smooth : 1;
    if (count > 1) parts.push(path(ys, "faint"));
    parts.push(path(smoothed(ys, count), faint));
  }
  return svg("g", { class: "run", style: colours(run) }, parts);
}

function points(xs, ys, own, faint) {
  return ys.flatMap((y, i) => {
    const up = y === null ? null : own.up(y);
    if (up === null) return [];
    return [svg("circle", { class: `point ${faint}`, cx: own.across(xs[i]), cy: up, r: 3 })];
  });
}

function drawEvent(run, event, own, view) {
  const x = own.across(event.x[view.x]);
  const title = svg("title", {}, `${run.name}: ${event.text}`);
  const look = { class: `run event ${event.kind}`, style: colours(run) };
  if (event.kind !== "alarm")
    return svg("line", { ...look, x1: x, x2: x, y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }, title);
  // A norm that is not finite is marked at the upper edge.
  const y = (event.value === null ? null : own.up(event.value)) ?? MARGIN.top + 5;
  return svg("path", { ...look, d: `M${x - 4} ${y - 4}l8 8m0-8l-8 8` }, title);
}

function valuesAt(content, panel, view) {
  const byRun = new Map();
  for (const { run, kind, faint, xs, ys } of curvesOf(content, panel, view)) {
    if (faint) continue;
    const line = byRun.get(run) ?? { run, texts: [], dots: [] };
    byRun.set(run, line);
    const cursor = view.cursor ?? xs.at(-1);
    if (cursor > endOf(run, view)) continue;
    const i = nearest(xs, cursor);
    const elsewhere = xs[i] === view.cursor ? "" : ` (at ${place(view.x, xs[i])})`;
    line.texts.push(`${kind} ${number(ys[i], 4)}${elsewhere}`);
    line.dots.push([xs[i], ys[i]]);
  }
  return [...byRun.values()].map((line) =>
    line.texts.length ? line : { ...line, texts: ["ended before"] },
  );
}

function endOf(run, view) {
  return Math.max(...run.stretches.map((stretch) => stretch.x[view.x].at(-1)));
}

function valueLine({ run, texts }) {
  return el(
    "li",
    {},
    swatch(run),
    el("bdi", { class: "name" }, run.name),
    el("span", { class: "number" }, texts.join(", ")),
  );
}

function cursorText(content, view) {
  if (view.cursor === null) return "Last values";
  return `${content.axes[view.x]}: ${place(view.x, view.cursor)}`;
}

function showCursor(own, view, lines) {
  const group = own.drawing.querySelector(".cursor");
  group.replaceChildren();
  if (view.cursor === null) return;
  const x = own.across(view.cursor);
  group.append(svg("line", { x1: x, x2: x, y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }));
  for (const { run, dots } of lines)
    for (const [dotX, dotY] of dots) {
      const up = dotY === null ? null : own.up(dotY);
      if (up !== null)
        group.append(
          svg("circle", { class: "run dot", style: colours(run), cx: own.across(dotX), cy: up, r: 4 }),
        );
    }
}

function table(content, panel, view) {
  return curvesOf(content, panel, view).flatMap(({ run, kind, faint, xs, ys }) =>
    ys.map((y, i) => [
      run.name,
      kind + (faint ? ", discarded" : ""),
      place(view.x, xs[i]),
      y === null ? "not finite" : String(y),
    ]),
  );
}

// ------------------------------------------------------------ pointer and keyboard

function listen(own, view, change) {
  const { drawing } = own;
  let from = null; // where a drag began
  const xOf = (event) => {
    const left = drawing.getBoundingClientRect().left;
    const [low, high] = [own.across(view.range[0]), own.across(view.range[1])];
    const share = Math.min(1, Math.max(0, (event.clientX - left - low) / (high - low)));
    return view.range[0] + share * (view.range[1] - view.range[0]);
  };
  drawing.addEventListener("pointerdown", (event) => {
    from = xOf(event);
    drawing.setPointerCapture(event.pointerId);
    change({ cursor: from });
  });
  drawing.addEventListener("pointermove", (event) => {
    change({ cursor: xOf(event) });
    if (from !== null) showRange(own, from, xOf(event));
  });
  drawing.addEventListener("pointerup", (event) => {
    const range = [from, xOf(event)].sort((a, b) => a - b);
    const wide = own.across(range[1]) - own.across(range[0]) > 8;
    const dragged = from !== null && wide;
    stopDrag();
    if (dragged) change({ range });
  });
  drawing.addEventListener("pointercancel", stopDrag);
  drawing.addEventListener("dblclick", () => change({ range: null }));
  drawing.addEventListener("keydown", (event) => {
    const next = afterPlotKey(event.key, view);
    if (!next) return;
    event.preventDefault();
    change(next);
  });
  function stopDrag() {
    from = null;
    drawing.querySelector(".chosen-range").setAttribute("hidden", "");
  }
}

function showRange(own, from, to) {
  const chosen = own.drawing.querySelector(".chosen-range");
  const [left, right] = [own.across(from), own.across(to)].sort((a, b) => a - b);
  chosen.setAttribute("x", left);
  chosen.setAttribute("width", right - left);
  chosen.removeAttribute("hidden");
}

function afterPlotKey(key, view) {
  const steps = { ArrowRight: 1, ArrowLeft: -1, PageUp: 10, PageDown: -10 };
  if (key in steps) return { by: steps[key] };
  if (key === "Home") return { cursor: view.range[0] };
  if (key === "End") return { cursor: view.range[1] };
  if (key === "Escape") return { cursor: null, range: null };
  const factor = { "+": 0.5, "-": 2 }[key];
  if (!factor) return null;
  const middle = view.cursor ?? (view.range[0] + view.range[1]) / 2;
  return { range: view.range.map((end) => middle + (end - middle) * factor) };
}
