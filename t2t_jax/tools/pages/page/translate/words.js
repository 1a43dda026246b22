// Words, separated by white space as the server counts them.

/** Returns the words of a text: {text, start, end}. */
export function wordsOf(text) {
  return [...text.matchAll(/\S+/g)].map(({ 0: word, index }) => ({
    text: word,
    start: index,
    end: index + word.length,
  }));
}

/**
 * Returns the words that hypotheses have after the text `before`, other than `word`:
 * {word, rest, score}, the best first. `rest` is what follows.
 */
export function nextWords(hypotheses, before, word) {
  const beginning = wordsOf(before).map(({ text }) => text);
  const found = new Map();
  for (const { text, score } of hypotheses.toSorted((a, b) => b.score - a.score)) {
    const words = wordsOf(text);
    const next = words[beginning.length];
    // The last word of a prefix may continue: "see" becomes "seen".
    const same = beginning.every((each, i) => words[i]?.text === each);
    if (!next || !same || next.text === word || found.has(next.text)) continue;
    found.set(next.text, { word: next.text, rest: text.slice(next.end), score });
  }
  return [...found.values()];
}
