// The text in sentences, and as many of them as the server takes at once.

const HEAD = 1000; // bytes that a request has beside its texts, at most
const encoder = new TextEncoder();

/** Returns a line as one sentence, without the white space around it. */
export function wholeLine(line) {
  const text = line.trim();
  const start = line.indexOf(text);
  if (!text) return { sentences: [], between: [line] };
  return { sentences: [text], between: [line.slice(0, start), line.slice(start + text.length)] };
}

/**
 * Returns the sentences of a text: {text, content, line, place, index, start, end}.
 *
 * `content` is its whole line, `place` counts within this. `split(line)` returns the
 * sentences of a line and what is between them.
 */
export function sentencesOf(text, split) {
  const found = [];
  let begin = 0;
  text.split("\n").forEach((content, line) => {
    const { sentences, between } = split(content);
    let end = begin;
    sentences.forEach((sentence, place) => {
      const start = end + between[place].length;
      end = start + sentence.length;
      found.push({ text: sentence, content, line, place, index: found.length, start, end });
    });
    begin += content.length + 1;
  });
  return found;
}

/** Returns the first items, {text, prefix}, that fit into one request: `most` or fewer. */
export function fitting(items, { characters = Infinity, lines = Infinity, bytes = Infinity }, most) {
  let [length, size] = [0, HEAD];
  const end = items.findIndex(({ text, prefix }, n) => {
    length += text.length + prefix.length;
    size += encoder.encode(JSON.stringify([text, prefix])).length;
    return n >= Math.min(most, lines) || length > characters || size > bytes;
  });
  return end < 0 ? items : items.slice(0, end);
}
