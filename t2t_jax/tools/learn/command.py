"""Learns from corrections: trains an adapter, and takes it if it is better.

python -m t2t_jax learn --workdir=BASE --corrections=FILE.jsonl --folder=LEARNED

FILE is what `serve --suggestions=FILE` writes: JSON objects, one a line, with `source`
and `target`. A fifth of the corrections is held back. The others train a new adapter
of BASE, together with text of BASE (replay). It becomes the current adapter of LEARNED
if chrF on the held-back corrections is better than that of what is current (p < 0.05)
and no old test set has lost more than --tolerance. `serve --adapter=NAME=LEARNED`
serves the current one; SIGHUP reloads it. --back returns to the one before. Nothing is
deleted.
"""

import collections
import datetime
import hashlib
from collections.abc import Iterator
from pathlib import Path

from absl import flags

from t2t_jax.commands.flags import define_workdir_flags
from t2t_jax.data.corpus import Corpus, Pair, open_corpora, open_specs, with_folder
from t2t_jax.extensions.training.current_adapter import CURRENT, current, record_of
from t2t_jax.io.atomic import checked_json, write_atomically
from t2t_jax.io.errors import UserError
from t2t_jax.io.json_lines import parse_lines
from t2t_jax.io.locations import join_names, split_names
from t2t_jax.io.lock import exclusive
from t2t_jax.io.messages import say
from t2t_jax.workdir import Workdir

HELD_BACK = 5  # one of so many corrections, chosen by its source
LEAST = 100  # corrections
REPLAYED = 3  # pairs of old text for each correction
DECIDES = "chrf"  # of few lines, it tells systems apart sooner than BLEU


def define_flags():
    define_workdir_flags(dtype=False, required=False)  # not for --back
    string = flags.DEFINE_string
    string("corrections", None, "File of corrections, JSON Lines.")
    string("folder", None, "Folder of the adapters and their texts.", required=True)
    string(
        "replay",
        None,
        "Text to go on training with, as config.data.train; by default BASE's own. "
        "Empty: none.",
    )
    string(
        "test",
        None,
        "Old test sets, as --test of evaluate; by default those of BASE.",
    )
    flags.DEFINE_float(
        "tolerance", 0.5, "chrF that an old test set may lose significantly.", 0
    )
    flags.DEFINE_boolean("back", False, "Return to the adapter before the current one.")


def main(_):
    args = flags.FLAGS
    folder = Path(args.folder).expanduser()
    if args.back:
        if not (folder / CURRENT).is_file():
            raise UserError(f"--folder={folder} is not a folder of learn: no {CURRENT}")
        with exclusive(folder):
            return _go_back(folder)
    if not (args.workdir and args.corrections):
        raise UserError("want --workdir=BASE and --corrections=FILE, or --back")
    return _learn(args, folder)


def _go_back(folder: Path) -> None:
    record = record_of(folder)
    if len(record["current"]) < 2:
        raise UserError(
            f"{folder} has no adapter before the current one; to serve the base alone, "
            "start the server without --adapter"
        )
    left = record["current"].pop()
    _write(folder, record, f"back from {left}")
    say(f"{current(folder)} is current again; SIGHUP makes a server load it")


def _learn(args: flags.FlagValues, folder: Path) -> None:
    base = Workdir(args.workdir)
    data = base.config().data
    if args.test is None:
        named = with_folder(data.test, data.dir)
    else:
        named = split_names(args.test)
    if not named:
        raise UserError("no old test set is named; want --test, of what must stay")
    pairs = corrections(Path(args.corrections).expanduser(), data.source, data.target)
    held = [pair for pair in pairs if is_held_back(pair[0])]
    learned = [pair for pair in pairs if not is_held_back(pair[0])]
    if len(pairs) < LEAST:
        raise UserError(
            f"{args.corrections} has {len(pairs)} corrections from {data.source} to "
            f"{data.target}; want {LEAST} or more, or a difference cannot be told from "
            "chance"
        )
    tests = _open_tests(base, named)
    say(f"{len(learned):,} corrections to learn from, {len(held):,} held back")
    replayed = _replay(args, data, len(learned))
    with exclusive(folder):  # made here: nothing is written before all is checked
        numbers = [int(p.name) for p in folder.iterdir() if p.name.isdecimal()]
        number = 1 + max(numbers, default=0)
        text, workdir = folder / f"text-{number}", folder / str(number)
        text.mkdir(exist_ok=True)
        for name, chosen in (("corrections", learned), ("held", held)):
            for side, language in enumerate((data.source, data.target)):
                lines = "".join(f"{pair[side]}\n" for pair in chosen)
                write_atomically(text / f"{name}.{language}", lines.encode())
        _train(args, text, workdir, replayed)
        verdicts = [*_compare(base, args.checkpoint, folder, workdir, text, tests)]
        _judge(args, base, folder, number, verdicts)


def _judge(
    args: flags.FlagValues, base: Workdir, folder: Path, number: int, verdicts: list
) -> None:
    """Makes an adapter the current one if it is better and forgets little."""
    workdir = folder / str(number)
    improved = verdicts[0]["verdict"] == "better"
    lost = [v for v in verdicts[1:] if v["verdict"] == "worse"]
    lost = [v for v in lost if v["difference"] < -args.tolerance]
    if improved and not lost:
        record = record_of(folder)
        record["current"].append(str(number))
        _write(folder, record, f"{number} is taken", verdicts)
        say(f"{workdir} is current now; SIGHUP makes a server load it")
        return
    why = "it has lost too much on an old test set"
    if not improved:
        why = "it is not significantly better on the corrections held back"
    _write(folder, record_of(folder), f"{number} is refused: {why}", verdicts)
    say(f"{workdir} is refused: {why}; {current(folder) or base} stays current")


def corrections(file: Path, source: str, target: str) -> list[Pair]:
    """Reads corrections between two languages, the last one of each source.

    Raises:
      UserError: a line is none, with its number.
    """

    def parse(entry: dict) -> tuple[str, str, list[str]]:
        pair = [" ".join(str(entry[side]).split()) for side in ("source", "target")]
        return *pair, [entry.get("source_language"), entry.get("target_language")]

    if not file.is_file():
        raise UserError(f"--corrections={file} is not a file")
    entries, _ = parse_lines(file.read_bytes().removesuffix(b"\n") + b"\n", parse)
    if None in entries:
        raise UserError(
            f"{file}, line {entries.index(None) + 1}, is not a correction; want a JSON "
            "object with source and target"
        )
    found = {
        entry[0]: entry[1]
        for entry in entries
        if entry[2] in ([None, None], [source, target]) and entry[0] and entry[1]
    }
    return [*found.items()]


def is_held_back(source: str) -> bool:
    """True for a fifth of all sources, the same ones each time."""
    return hashlib.sha256(source.encode()).digest()[0] % HELD_BACK == 0


def _open_tests(base: Workdir, tests: list[str]) -> list[Corpus]:
    """Opens the old test sets: a mistake is reported before training."""
    from t2t_jax.tasks.table import task_of

    corpora = open_specs(join_names(tests), task_of(base.config()).open)
    for corpus in corpora:
        collections.deque(corpus.pairs(), maxlen=0)
    return corpora


def _replay(args: flags.FlagValues, data, count: int) -> str:
    """The old text to train on, with weights, as a config names it."""
    specs = args.replay
    if specs is None:
        specs = join_names(with_folder(data.train, data.dir))
    if not specs:
        say("no text is replayed")
        return ""
    corpora = open_corpora(specs, data.source, data.target, "", True, data)
    try:
        pairs = sum(c.weight * sum(1 for _ in c.pairs()) for c in corpora)
    except UserError as e:
        raise UserError(f"{e}\n--replay=TEXT, or --replay= for none") from None
    share = min(1.0, REPLAYED * count / max(1, pairs))
    say(f"{share * pairs:,.0f} of {pairs:,.0f} old pairs are replayed in each pass")
    return join_names(f"{c.spec}@{c.weight * share:.9f}" for c in corpora)


def _train(args, text: Path, workdir: Path, replayed: str) -> None:
    from t2t_jax import load_config, train

    named = [join_names([str(text / "corrections")]), replayed]
    data = Workdir(args.workdir).config().data
    layout = {n: getattr(data, n) for n in ("columns", "score_column", "min_score")}
    start = {"init_checkpoint": args.checkpoint} if args.checkpoint else {}
    config = load_config(
        f"finetune:{args.workdir}",
        data={"train": ",".join(filter(None, named)), "dev": "", "test": "", **layout},
        train={"adapter": "lora", **start},
    )
    train(config, workdir)


def _compare(
    base: Workdir,
    checkpoint: str | None,
    folder: Path,
    workdir: Path,
    text: Path,
    tests: list[Corpus],
) -> Iterator[dict]:
    """Compares the new adapter with what is current, first on what was held back."""
    from t2t_jax import Translator, compare

    plain = Translator.load(base, checkpoint)
    before = current(folder)
    models = {
        "current": plain.with_adapter(before) if before else plain,
        "new": plain.with_adapter(workdir),
    }
    data = plain.config.data
    held = _open_tests(base, [str(text / "held")])
    for number, corpus in enumerate([*held, *tests]):
        lines, outputs = [source for source, _ in corpus.pairs()], {}
        for name, model in models.items():
            file = text / f"{number}-{name}.{data.target}"
            translations = model.translate(lines, warn=False)
            answers = "".join(f"{t.text}\n" for t in translations)
            write_atomically(file, answers.encode())
            outputs[name] = join_names([str(file)])
        direction = f"{data.source}-{data.target}"
        test = join_names([corpus.spec])
        comparison = compare(outputs, test, direction=direction, train="")
        (totals,) = ({t["name"]: t for t in s["totals"]} for s in comparison.sets)
        for total in totals.values():
            scores = [f"{system['score']:.2f}" for system in total["systems"]]
            (delta,) = total["differences"]
            p = max(delta["bootstrap"], delta["randomisation"])
            say(
                f"{corpus.name:10} {total['title']:5} {' -> '.join(scores)} "
                f"({delta['difference']:+.2f}, {delta['low']:+.2f} to "
                f"{delta['high']:+.2f}, p = {p:.3f}, {delta['verdict']})"
            )
        (decides,) = totals[DECIDES]["differences"]
        yield {"test": corpus.spec, "lines": len(lines), **decides}


def _write(folder: Path, record: dict, event: str, verdicts: list = ()) -> None:
    """Writes what is current, and what has happened."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    record["events"].append({"time": now, "event": event, "tests": [*verdicts]})
    write_atomically(folder / CURRENT, checked_json(record))
