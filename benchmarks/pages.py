"""Measures explanation pages: their size, their computation, and how fast they open.

    python -m benchmarks.pages                            # base and big, random weights
    python -m benchmarks.pages --models=base --pieces=30 --rounds=3 --output=PATH
    python -m benchmarks.pages --workdir=DIR --test=PREFIX

Random weights: the sizes of configs/base.py and configs/big.py with 32,000 pieces, a
source and a translation of N tokens each. As initialized, such a model attends almost
evenly and predicts almost evenly, which no trained model does, and a page's size
depends on it. So queries, keys and logits are scaled until weights and predictions are
about as sharp as a trained model's; the table says how sharp, beside a workdir's.

With a workdir, the sources are lines of a test set, joined up to N pieces.

The seconds of `explain` are those of a first call, which compiles or loads its
programs, as the command does, and of a further call.
With Playwright and a Chromium ($CHROMIUM, or one in PATH), each page is opened from
disk: time to the first paint, time until the translation is drawn, and the heap of
JavaScript after garbage collection, on opening and after scrolling through all views.
"""

import contextlib
import itertools
import os
import shutil
import tempfile
import time
from pathlib import Path
from statistics import mean, median

import jax
import numpy as np
from absl import flags

from benchmarks import measuring, run
from benchmarks.random_translator import random_tokens, random_translator
from t2t_jax.commands.config_files import load_config
from t2t_jax.commands.flags import test_sets
from t2t_jax.config import from_config_dict
from t2t_jax.decoding.translator import Translator
from t2t_jax.io.errors import UserError
from t2t_jax.io.messages import say
from t2t_jax.tools.explain import explain
from t2t_jax.tools.explain.explanation import Explanation

BOUNDS = {("base", 30): 200e3, ("big", 60): 1.5e6}  # bytes of a page
VOCABULARY = 32_000
ATTENTION, LOGITS = 2.5, 2.5  # factors of queries and keys, and of logits

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = ["--no-sandbox", "--disable-gpu", "--enable-precise-memory-info"]
DRAWN = "#translation .reading .piece"
# Promises the time at which the translation is there; runs before the page does.
WATCH = f"""
window.drawn = new Promise((resolve) => {{
  const note = () => setTimeout(() => resolve(performance.now()));
  new MutationObserver((_, observer) => {{
    if (!document.querySelector("{DRAWN}")) return;
    observer.disconnect();
    requestAnimationFrame(note);
  }}).observe(document, {{childList: true, subtree: true}});
}});
"""
PAINTS = "performance.getEntriesByType('paint').map((entry) => entry.startTime)"
SCROLL = """async () => {
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  for (let y = 0; y < document.documentElement.scrollHeight; y += 500) {
    scrollTo(0, y);
    await wait(50);
  }
  await wait(500);
}"""


def sharpened(translator: Translator) -> Translator:
    """Scales queries, keys and logits of a random model."""

    def scale(path, leaf):
        name = jax.tree_util.keystr(path)
        if name.endswith(("['query']", "['key']")):
            return leaf * ATTENTION
        if name == last_norm:
            return leaf * LOGITS
        return leaf

    layers = translator.config.model.layers
    last_norm = f"['decoder'][{layers - 1}]['ff_sub']['norm']['scale']"
    parameters = jax.tree_util.tree_map_with_path(scale, translator.parameters)
    return Translator(
        translator.config, translator.vocabulary, translator.model, parameters
    )


def random_line(name: str, pieces: int) -> tuple[Translator, str]:
    """A random model of a config's sizes, and a source of so many tokens with EOS."""
    model = from_config_dict(load_config(name)).model
    decoding = random_translator(model, VOCABULARY, 1, pieces, pieces + 1)
    numbers = random_tokens((1, pieces - 1), VOCABULARY)
    (line,) = decoding.vocabulary.decode(numbers.tolist())
    return sharpened(decoding), line


def real_line(translator: Translator, args, pieces: int) -> str:
    """Lines of a test set, joined until they have about so many pieces."""
    line = ""
    for source, _ in test_sets(args, translator.config)[0].pairs():
        longer = f"{line} {source}".strip()
        if line and len(translator.vocabulary.encode([longer])[0]) > pieces:
            break
        line = longer
    return line


def explained(translator: Translator, line: str, rounds: int):
    """Returns an explanation, its page, and its seconds: (first, again)."""
    seconds = []
    for _ in range(1 + rounds):
        began = time.perf_counter()
        explanation = explain.explain(translator, line)
        page = explanation.html()
        seconds.append(time.perf_counter() - began)
    return explanation, page, (seconds[0], median(seconds[1:]))


def sharpness(explanation: Explanation) -> str:
    """Describes how sharp attention and predictions are."""
    reading = explanation.readings[0]
    bits = mean(float(np.mean(head.entropy)) for head in reading.heads.values())
    probability = float(np.exp(reading.distribution.log_probs).mean())
    return (
        f"{len(explanation.sentences[0].pieces)} and {len(reading.pieces)} pieces, "
        f"attention of {bits:.2f} bits, mean probability {probability:.2f}, "
        f"{len(reading.continuations)} alternatives followed"
    )


@contextlib.contextmanager
def chromium():
    """A headless Chromium; None without one."""
    path = os.environ.get("CHROMIUM") or next(
        filter(None, map(shutil.which, BROWSERS)), None
    )
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        path = None
    if not path:
        say("no Playwright (pip install 't2t_jax[browser]') or no Chromium: sizes only")
        yield None
        return
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=OPTIONS)
        yield browser
        browser.close()


def opened(browser, file: Path) -> dict[str, float]:
    """Opens a page: milliseconds until it is drawn, and MB of JavaScript's heap."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.add_init_script(WATCH)
    page.goto(file.as_uri())
    drawn = page.evaluate("() => window.drawn")
    paints = page.evaluate(PAINTS)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def heap() -> float:
        session.send("HeapProfiler.collectGarbage")
        metrics = session.send("Performance.getMetrics")["metrics"]
        return {m["name"]: m["value"] for m in metrics}["JSHeapUsedSize"] / 1e6

    first_heap = heap()
    page.evaluate(SCROLL)
    figures = {
        "first paint, ms": min(paints),
        "translation drawn, ms": drawn,
        "heap, MB": first_heap,
        "heap after all views, MB": heap(),
    }
    page.close()
    return figures


def define_flags():
    measuring.define_flags(rounds=3)
    flags.DEFINE_list("models", ["base", "big"], "Configs of random models.")
    flags.DEFINE_list("pieces", ["30", "60", "200"], "Pieces of a sentence.")
    flags.DEFINE_integer("again", 1, "Further calls of `explain`.", 1)
    flags.DEFINE_string("workdir", None, "Workdir of a trained run, for real text.")
    flags.DEFINE_string("test", None, "PREFIX of the real text.")


def main(_):
    args = flags.FLAGS
    measuring.begin(args)
    if args.workdir and not args.test:
        raise UserError("--workdir needs --test=PREFIX, the text to explain")
    rows = []
    names = [args.workdir] if args.workdir else args.models
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        for name, pieces in itertools.product(names, map(int, args.pieces)):
            if args.workdir:
                translator = Translator.load(name)
                line = real_line(translator, args, pieces)
            else:
                translator, line = random_line(name, pieces)
            explanation, page, seconds = explained(translator, line, args.again)
            work = f"{Path(name).name} {pieces}"
            say(f"{work}: {sharpness(explanation)}")
            file = Path(folder) / "page.html"
            file.write_text(page, encoding="utf-8")
            size = file.stat().st_size
            rows += rows_of(work, BOUNDS.get((name, pieces)), size, seconds)
            if browser:
                rows += rows_of_browser(
                    work, [opened(browser, file) for _ in range(args.rounds)]
                )
    measuring.publish(rows, args.output)


def rows_of(work, bound, size, seconds) -> list[measuring.Row]:
    """Rows of a page's size, with its bound, and of the seconds of `explain`."""
    bounds = {"peer": bound / 1e3, "peer_name": "bound"} if bound else {}
    initial, repeated = seconds
    return [
        _row(work, "size", "kB", size / 1e3, **bounds),
        _row(work, "explain", "s", initial, peer=repeated, peer_name="again"),
    ]


def rows_of_browser(work: str, rounds: list[dict[str, float]]) -> list[measuring.Row]:
    """Rows of the medians of what `opened` returned."""
    return [
        _row(work, *named.rsplit(", ", 1), median(opening[named] for opening in rounds))
        for named in rounds[0]
    ]


def _row(work: str, name: str, unit: str, value: float, **extra) -> measuring.Row:
    return measuring.Row(f"{work}: {name}", unit, value, more_is_better=False, **extra)


if __name__ == "__main__":
    run(main, define_flags)
