// The sections of the page, each drawn when it first comes near the screen.

import { el, section } from "../common/dom.js";
import { array } from "../common/payload.js";

const NEAR = "600px"; // drawn this far ahead of the screen

/** Makes a view's section; `renew(contexts)` shows it anew, a column for each model. */
export function sectionOf({ id, title, about, view }) {
  const columns = el("div", { class: "columns" });
  const element = section({ id, title, about }, columns);
  const observer = new IntersectionObserver(drawNear, { rootMargin: `${NEAR} 0px` });
  let pending = new Map(); // the columns that are yet to be drawn, and their contexts
  window.addEventListener("beforeprint", () => [...pending.keys()].forEach(draw));

  function drawNear(entries) {
    entries.filter((entry) => entry.isIntersecting).forEach((entry) => draw(entry.target));
  }
  function draw(column) {
    observer.unobserve(column);
    if (!pending.has(column)) return;
    const context = pending.get(column);
    pending.delete(column);
    drawView(view, column, context).finally(() => columns.style.removeProperty("min-height"));
  }
  function renew(contexts) {
    observer.disconnect();
    // The page keeps its height until the new column is drawn, so that it does not jump.
    if (columns.childElementCount) columns.style.minHeight = `${columns.offsetHeight}px`;
    pending = new Map(contexts.map((context) => [columnOf(context), context]));
    columns.replaceChildren(...pending.keys());
    for (const column of pending.keys()) observer.observe(column);
  }
  return { element, renew };
}

function columnOf({ page, model }) {
  const name = page.models.length > 1 ? el("h3", { class: "model" }, model.name) : null;
  return el("div", { class: "column waiting" }, name);
}

// A view that fails leaves the others alone. What a view of an earlier sentence still
// has to write goes into elements that are no longer on the page.
async function drawView(view, column, context) {
  const root = el("div", { class: "view" });
  column.append(root);
  try {
    await view(root, { ...context, array });
  } catch (error) {
    root.replaceChildren(
      el("p", { class: "missing", role: "alert" }, `This view failed: ${error.message}`),
    );
    console.error(error);
  }
  column.classList.remove("waiting");
}
