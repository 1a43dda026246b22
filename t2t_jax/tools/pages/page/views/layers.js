// The decoder's view by layer: what each layer would have said, had it been the last.

import { el, svg } from "../common/dom.js";
import { walkWithKeys } from "../common/heatmap.js";
import { numbersAsText } from "../common/numbers.js";
import { row, table } from "../common/table.js";
import { number, percent, shownPieces, visible, written } from "../common/text.js";

const ABOUT_LENS =
  "This is a logit lens: the model's output layer reads every decoder layer as if it were " +
  "the last one. Only the last was trained to be read like that. An earlier layer may " +
  "hold the right token in a form that the output layer cannot read, so a wrong token " +
  "there does not show that the layer knows no better.";

/** Draws a grid of layers and pieces, and the piece in focus across the layers. */
export function layersView(root, context) {
  const { lens, pieces } = context.reading;
  if (lens.missing) {
    root.append(el("p", { class: "missing" }, lens.missing));
    return;
  }
  const shown = shownPieces(pieces);
  const grid = el("table", {
    class: "lens-grid",
    role: "grid",
    "aria-label": "Each layer's most probable token, the last layer on top",
    "data-part": "lens-grid",
  });
  const detail = el("div", { class: "lens-detail", "data-part": "lens-detail" });
  const cells = lens.names.map((_, layer) =>
    pieces.map((_, position) => lensCell(lens, pieces, layer, position)),
  );
  const last = lens.names.length - 1;
  const at = { row: last, column: context.selection.position };

  function show(layer, position) {
    detail.replaceChildren(...lensDetails(lens, shown, layer, position));
  }
  function go(layer, position) {
    cells[at.row][at.column].tabIndex = -1;
    grid.querySelector(".current")?.classList.remove("current");
    Object.assign(at, { row: layer, column: position });
    const cell = cells[layer][position];
    cell.tabIndex = 0;
    cell.classList.add("current");
    show(layer, position);
    return cell;
  }
  grid.append(
    el("thead", {}, el("tr", {}, el("td"), shown.map((text) => pieceHeading(text)))),
    el("tbody", {}, cells.map((row, layer) => layerRow(lens.names[layer], row)).reverse()),
  );
  const choose = (layer, position) => {
    go(layer, position).focus();
    context.selection.set(position);
  };
  listenToPointer(grid, at, show, choose);
  walkWithKeys(grid, lens.names.length, pieces.length, { at, go: choose, up: 1 });
  context.selection.listen((position) => {
    if (position === at.column) return;
    bringIntoSight(go(at.row, position));
  });
  const scroll = el("div", { class: "scroll lens-scroll" }, grid);
  root.append(
    scroll,
    lensLegend(),
    detail,
    el("p", { class: "about" }, ABOUT_LENS),
    lensTable(lens, shown),
  );
  bringIntoSight(go(at.row, at.column));
}

function pieceHeading(text) {
  return el("th", { scope: "col" }, el("bdi", { class: "piece-text", ...written("target") }, text));
}

function layerRow(name, cells) {
  return el("tr", {}, el("th", { scope: "row" }, name), cells);
}

function lensCell(lens, pieces, layer, position) {
  const [piece, probability] = lens.top[layer][position][0];
  const rank = lens.rank[layer][position];
  const words = rank === 1 ? "the chosen token" : `the chosen token has rank ${rank}`;
  return el(
    "td",
    {
      role: "gridcell",
      tabindex: -1,
      class: rank === 1 ? "chosen" : null,
      "data-layer": layer,
      "data-position": position,
      "aria-label": `${visible(piece)}, ${percent(probability)}, ${words}`,
      style: { "--share": probability },
    },
    el("bdi", { class: "piece-text", ...written("target") }, visible(piece)),
  );
}

function lensLegend() {
  return el(
    "p",
    { class: "about", "aria-hidden": "true" },
    el("span", { class: "lens-key chosen" }, "token"),
    " the chosen token itself; the stronger the colour, the more probable the layer ",
    "finds its token.",
  );
}

// The pointer shows a cell; a click moves the focus.
function listenToPointer(grid, at, show, go) {
  const cellOf = ({ target }) => target.closest("[data-layer]")?.dataset;
  grid.addEventListener("pointerover", (event) => {
    const cell = cellOf(event);
    if (cell) show(Number(cell.layer), Number(cell.position));
  });
  grid.addEventListener("pointerleave", () => show(at.row, at.column));
  grid.addEventListener("click", (event) => {
    const cell = cellOf(event);
    if (cell) go(Number(cell.layer), Number(cell.position));
  });
}

// Scrolls the grid only: the reader may be elsewhere on the page.
function bringIntoSight(cell) {
  const box = cell.closest(".lens-scroll");
  const heading = cell.parentElement.firstElementChild.offsetWidth;
  if (cell.offsetLeft - heading < box.scrollLeft) box.scrollLeft = cell.offsetLeft - heading;
  const end = cell.offsetLeft + cell.offsetWidth + 4 - box.clientWidth; // with its outline
  if (end > box.scrollLeft) box.scrollLeft = end;
}

function lensDetails(lens, shown, layer, position) {
  const piece = () => el("bdi", written("target"), shown[position]);
  return [
    el(
      "div",
      { "data-layer": layer, "data-position": position },
      el("h3", {}, `${lens.names[layer]}, in place of `, piece()),
      el("div", { class: "lens-top" }, table("Its best five", ["Its best five", "Probability"], lens.top[layer][position].map(topRow))),
    ),
    el(
      "figure",
      {},
      el("figcaption", {}, "Probability of ", piece(), " after each layer, and its rank"),
      lensChart(lens, layer, position),
    ),
  ];
}

function topRow([text, probability]) {
  const style = { "--share": probability };
  return row(el("bdi", written("target"), visible(text)), [
    el("td", { class: "number bar-cell", style }, percent(probability)),
  ]);
}

const CHART = { layer: 44, height: 170, left: 40, right: 16, top: 24, bottom: 26 };

// A line across the layers; each point is labelled with the rank of the chosen piece.
function lensChart(lens, layer, position) {
  const { height, left, right, top, bottom } = CHART;
  const shortNames = lens.names.map((name) => name.replace("layer ", ""));
  const count = shortNames.length;
  const width = Math.max(340, left + right + count * CHART.layer);
  const x = (i) => left + ((i + 0.5) * (width - left - right)) / count;
  const y = (p) => height - bottom - p * (height - top - bottom);
  const values = lens.probability.map((row) => row[position]);
  const ranks = lens.rank.map((row) => row[position]);
  const points = values.map((p, i) => `${x(i)} ${y(p)}`);
  const said = values.map((p, i) => `${lens.names[i]} ${percent(p)}, rank ${ranks[i]}`);
  const line = (p) => [
    svg("path", { class: "rule", d: `M${left} ${y(p)}H${width - right}` }),
    svg("text", { x: left - 6, y: y(p) + 4, "text-anchor": "end" }, `${100 * p}%`),
  ];
  const point = (p, i) => [
    svg("circle", { cx: x(i), cy: y(p), r: i === layer ? 5 : 3 }),
    svg("text", { class: "rank", x: x(i), y: y(p) - 9, "text-anchor": "middle" }, `#${ranks[i]}`),
    svg("text", { x: x(i), y: height - 8, "text-anchor": "middle" }, shortNames[i]),
  ];
  return svg(
    "svg",
    {
      class: "lens-chart",
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label": said.join("; "),
    },
    [0, 0.5, 1].map(line),
    svg("path", { class: "line", d: `M${points.join("L")}` }),
    values.map(point),
  );
}

function lensTable(lens, shown) {
  const ofLayer = (name) => [`${name}: top`, "its probability", "chosen token", "rank"];
  const columns = ["Token", ...lens.names.flatMap(ofLayer)];
  const row = (text, t) => [
    text,
    ...lens.names.flatMap((_, layer) => {
      const [piece, p] = lens.top[layer][t][0];
      return [visible(piece), number(p), number(lens.probability[layer][t]), lens.rank[layer][t]];
    }),
  ];
  return numbersAsText("Tokens by layer", columns, () => shown.map(row));
}
