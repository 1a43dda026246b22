// Requests to the server that the page came from.

const KEY = "t2t_jax.api_key"; // in sessionStorage: forgotten with the tab
const PAUSE = 2; // seconds, where the server does not say how long to wait

/** The server's refusal: its message, and the status of HTTP. */
export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Keeps the API key that requests carry from now on. */
export function setKey(key) {
  sessionStorage.setItem(KEY, key);
}

/** True if a refusal asks for a key, or for another one. */
export function wantsKey({ status }) {
  return status === 401 || (status === 403 && sessionStorage.getItem(KEY) !== null);
}

/**
 * Returns the JSON at a path; POSTs `body` if there is one.
 *
 * While the server is busy (429) or not ready (503), says so by `waiting(text)`, waits as
 * long as the server asks, and tries again. Throws a Refusal, or an AbortError.
 */
export async function ask(path, { body, signal, waiting }) {
  for (;;) {
    const response = await reached(path, { ...optionsOf(body), signal });
    const text = await response.text();
    const answer = parsed(text);
    if (response.ok) return answer;
    const { status } = response;
    const message = answer?.error?.message ?? answer?.compiled?.at(-1) ?? "";
    if (status !== 429 && status !== 503)
      throw new Refusal(status, message || `The server answered with status ${status}.`);
    const seconds = Number(response.headers.get("Retry-After")) || PAUSE;
    waiting(status === 429 ? busy(seconds) : unready(path, message));
    await pause(seconds, signal);
  }
}

function optionsOf(body) {
  const key = sessionStorage.getItem(KEY);
  const headers = key === null ? {} : { Authorization: `Bearer ${key}` };
  if (body === undefined) return { headers };
  headers["Content-Type"] = "application/json";
  return { method: "POST", headers, body: JSON.stringify(body) };
}

async function reached(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, "The server cannot be reached.");
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

const busy = (seconds) => `The server is busy; asking again in ${seconds} s.`;

function unready(path, message) {
  const state = path === "ready" ? "The server is compiling" : "The server is not ready";
  return message ? `${state}: ${message}` : `${state} …`;
}

function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, 1000 * seconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}
