// The piece of the target that all views of a model look at.

/** A position in the target, and who wants to know when it changes. */
export class Selection {
  constructor(position) {
    this.position = position;
    this.listeners = new Set();
  }

  /** Selects another piece. */
  set(position) {
    if (position === this.position) return;
    this.position = position;
    for (const listener of this.listeners) listener(position);
  }

  /** Calls `listener` with the position after each change. */
  listen(listener) {
    this.listeners.add(listener);
  }
}
