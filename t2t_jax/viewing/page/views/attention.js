// This view is yet to be drawn.

/** Draws this view. */
export function attentionView(root, context) {
  root.append("Not drawn yet.");
}
