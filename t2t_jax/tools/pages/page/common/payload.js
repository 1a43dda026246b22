// The page's data: decompressed when first asked for.

import { unpacked, unpackedText } from "./unpack.js";

/** The values of an array, which are its bytes times a scale. */
export class Tensor {
  constructor(raw, shape, scale) {
    this.raw = raw;
    this.shape = shape;
    this.scale = scale;
  }

  /** Returns the value at these indices. */
  at(...indices) {
    return this.raw[this.offset(indices)] * this.scaleOf(indices[0]);
  }

  /** Returns the values along the last axis, at these indices of all others. */
  row(...indices) {
    const length = this.shape[this.shape.length - 1];
    const from = this.offset([...indices, 0]);
    const scale = this.scaleOf(indices[0]);
    const values = new Float32Array(length);
    // A loop is ten times as fast as Float32Array.from, and a map has thousands of rows.
    for (let i = 0; i < length; i++) values[i] = this.raw[from + i] * scale;
    return values;
  }

  offset(indices) {
    return indices.reduce((sum, index, axis) => sum * this.shape[axis] + index, 0);
  }

  scaleOf(index) {
    return typeof this.scale === "number" ? this.scale : this.scale[index];
  }
}

/** Returns the page's document. */
export async function openDocument() {
  return JSON.parse(await unpackedText("payload"));
}

const blobs = new Map();

/** Returns the array that a reference of the document stands for. */
export async function array(reference) {
  const { blob, shape, kind, scale } = reference;
  if (!blobs.has(blob)) blobs.set(blob, unpacked(`blob-${blob}`));
  const bytes = await blobs.get(blob);
  return new Tensor(kind === "i1" ? new Int8Array(bytes) : bytes, shape, scale);
}
