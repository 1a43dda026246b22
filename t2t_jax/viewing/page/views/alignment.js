// This view is yet to be drawn.

/** Draws this view. */
export function alignmentView(root, context) {
  root.append("Not drawn yet.");
}
