// Decompresses what the page carries.

/** Returns the bytes in an element of the page: gzip, in base64. */
export async function unpacked(id) {
  const packed = atob(document.getElementById(id).textContent);
  const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Returns the text in an element of the page. */
export async function unpackedText(id) {
  return new TextDecoder().decode(await unpacked(id));
}
