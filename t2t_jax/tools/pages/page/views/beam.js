// The beam tree: every hypothesis of the search, and what became of it.

import { chooser, el } from "../common/dom.js";
import { describeNode, nodeDetails } from "./beam_details.js";
import { fateFilter } from "./beam_fates.js";
import { searchOutcome, searchSummary } from "./beam_outcome.js";
import { BeamPicture, NODE_NUMBERS } from "./beam_picture.js";
import { BeamLayout, BeamTree } from "./beam_tree.js";

const NARROW = 480; // pixels below which nodes carry no number at first
const MANY = 10; // a beam above which those that never entered are hidden at first

const KEYS_OF_TREE =
  "Keys in the tree: left and right walk to the parent and to a child, up and down to " +
  "the other places of the step, Enter to the hypothesis that took the place, Home and " +
  "End to the start and to the end of the best.";

/** Draws the search as a tree, the node in focus in words, and the search's outcome. */
export function beamView(root, context) {
  const { search } = context.entry;
  if (!search) {
    root.append(el("p", { class: "missing" }, "this output was not found by a beam search."));
    return;
  }
  const tree = new BeamTree(search);
  const name = `beam-${context.page.models.indexOf(context.model)}`;
  const state = {
    leaves: search.beam <= MANY,
    follow: null,
    faded: new Set(),
    carried: root.clientWidth < NARROW ? "none" : "score",
  };
  let layout = new BeamLayout(tree, state);
  const describe = (id) => describeNode(tree, id);
  const picture = new BeamPicture(tree, name, describe, { focus, hover });
  const detail = el("div", { class: "beam-detail", "data-part": "detail" });
  const controls = treeControls(tree, state, redraw, () => follow(null));

  function redraw(change = {}) {
    Object.assign(state, change);
    layout = new BeamLayout(tree, state);
    // Of an extension that is hidden, the hypothesis it extends.
    if (!layout.shows(picture.focused)) picture.focused = tree.nodes[picture.focused].parent;
    controls.show();
    picture.show(layout, state);
    showDetail(picture.focused);
  }
  function focus(id) {
    if (layout.shows(id)) {
      picture.focus(id);
      showDetail(id);
    } else {
      // A link may lead to a node that is hidden.
      const hidden = !new BeamLayout(tree, { ...state, follow: null }).shows(id);
      picture.focused = id;
      redraw({ follow: null, leaves: state.leaves || hidden });
    }
    selectPiece(id);
  }
  function hover(id) {
    const shown = id ?? picture.focused;
    picture.mark(shown);
    // A button of the panel that is already there may be about to be pressed.
    if (detail.firstElementChild.dataset.shown !== String(shown)) showDetail(shown);
  }
  function showDetail(id) {
    detail.replaceChildren(nodeDetails(tree, id, { go, follow, following: state.follow }));
  }
  // A link's node gets the keyboard's focus too.
  function go(id) {
    focus(id);
    picture.element.focus({ preventScroll: true });
    picture.element.scrollIntoView({ block: "nearest" });
  }
  function follow(id) {
    redraw({ follow: id });
    const said = id === null ? "All hypotheses shown" : `Only the family of: ${tree.text(id)}`;
    context.announce(said);
  }

  const nodeAt = nodesOfReading(tree, context.reading);
  function selectPiece(id) {
    const position = tree.nodes[id].step - 1;
    if (nodeAt.get(position) === id) context.selection.set(position);
  }
  context.selection.listen((position) => {
    const id = nodeAt.get(position);
    if (id !== undefined && id !== picture.focused) focus(id);
  });

  root.append(
    searchSummary(tree),
    fateFilter(tree.fateCounts(), state.faded, () => redraw()),
    controls.element,
    el("div", { class: "beam" }, el("div", { class: "beam-panes" }, picture.element, detail)),
    el("p", { class: "about" }, KEYS_OF_TREE),
    searchOutcome(tree, go),
  );
  picture.focused = nodeAt.get(context.selection.position) ?? search.best.at(-1) ?? 0;
  redraw();
}

// The nodes whose last pieces are those of the reading that the page shows, by position.
function nodesOfReading(tree, reading) {
  const path = reading.name === "target" ? [...tree.reference] : tree.search.best;
  const spoken = path.filter((id) => tree.nodes[id].step > 0);
  return new Map(spoken.map((id) => [tree.nodes[id].step - 1, id]));
}

// What the tree shows; `controls.show()` brings them to the state.
function treeControls(tree, state, redraw, showAll) {
  const numbers = Object.keys(NODE_NUMBERS);
  const leaves = leavesSwitch(tree, state.leaves, (on) => redraw({ leaves: on }));
  const all = el(
    "button",
    { type: "button", "data-control": "show-all", onclick: showAll },
    "Show all hypotheses",
  );
  const carried = chooser(
    "Beside each token",
    numbers.map((key) => NODE_NUMBERS[key].name),
    numbers.indexOf(state.carried),
    (index) => redraw({ carried: numbers[index] }),
  );
  function show() {
    leaves.input.checked = state.leaves;
    all.disabled = state.follow === null;
  }
  return { element: el("div", { class: "controls" }, leaves.element, carried, all), show };
}

function leavesSwitch(tree, on, change) {
  const count = tree.nodes.filter(({ row }) => row === null).length;
  const input = el("input", {
    type: "checkbox",
    "data-control": "leaves",
    disabled: count === 0,
    onchange: () => change(input.checked),
  });
  input.checked = on;
  const text = ` Extensions that never entered the beam (${count})`;
  return { input, element: el("label", {}, input, text) };
}
