"""Random commands over hostile files: a line out for a line in, or an error and a cure.

Hypothesis draws commands, flags and files: line separators of Unicode, NUL, bytes that
are not UTF-8, cut .gz files, uneven pairs, names with commas and spaces. Each command
ends with status 0, or with 2 and one error message that says what to do. Files that
were there stay as they are, and no half-written one gets a name.

    python -m tests.fuzz [--minutes=10] [--seed=0] [--rounds=0] [--command=translate]

A failure is printed with its files and command, as small as Hypothesis makes them. The
commands run in this process, with a random model, so most take a tenth of a second.
"""

import argparse
import collections
import contextlib
import gzip
import io
import itertools
import json
import logging
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import hypothesis
import jax
from absl import flags
from hypothesis import strategies as st

from t2t_jax.commands import launch, runner
from t2t_jax.parallel import rendezvous
from tests import small_run
from tests.decoding.small_translator import vocabulary
from tests.test_nasty_lines import NASTY

COMMANDS = "translate", "evaluate", "score", "prepare"
LINES = [line.encode() for line in NASTY.values() if len(line) < 200]
LINES += [b"The cat sees 3 <b>dogs</b>, {name}.", b"cat\tKatze", b"a ||| b"]
NOT_UTF_8 = b"\xff", b"\xed\xa0\x80", b"caf\xe9", b"\xc0\x80", b"\xf4\x90\x80\x80"
NAMES = ["in", "in.gz", "a.en", "a", "d e", "z", "nix", "", ".", "/nix/x", "é\n\x1b"]
PREFIXES = {"a": "a", "d e": "d e", r"b\,c": "b,c", "z": "z"}  # as written -> as named
# Flags that would start processes or import code, or that are always given.
LEFT_OUT = {"ideas", "coordinator_address", "num_processes", "process_id", "runner"}
LEFT_OUT |= {"beam_options", "engine", "shard", "workdir", "config"}
# Flag -> values, good ones first; of others by their type.
VALUES = {
    "checkpoint": "average last 3 best 03 average:2 last:0",
    "choose": "probability mbr:samples=2 mbr mbr:utility=x rerank mbr:",
    "confidence": "log_prob entropy dropout_mean:passes=2 x",
    "damage": "capitals codes key_typos al codes,codes",
    "ignored": "b b,i",
    "must": "cat the \u2028",
    "must_not": "cat e dog",
    "noise": "drop@0.5 swap@3 blank@0.1,drop@0.1 drop drop@2",
    "output": "out b,c.out o\u2028 old no/out out.gz in .",
    "pairs": "out b,c.out o\u2028 old no/out a",
    "part": "1/1 1/2 2/3 3/2 0/1 1/1000 1/٢ x",
    "prefix": "Die \u2028 </s>",
    "tag": "<bt> <2> bt",
    "task": "en-de x",
}
VALUES = {name: [*values.split(" "), ""] for name, values in VALUES.items()}
VALUES["test"] = [*PREFIXES, "b,c", "a,z", "a,a", "a.en", "nix", ""]
INTEGERS = ["1", "2", "3", "0", "-1", "4294967296", "9" * 30, "x", "1.5", ""]
FLOATS = ["0.5", "1", "2", "0", "-1", "nan", "inf", "1e400", "x", ""]
CURE = re.compile(
    r"\b(add|at least|at most|change|choose|compress|convert|created?|give|help"
    r"|leave|name|needs?|remove|rename|run|set|stands for|there are|use|want|written"
    r"|[Dd]id you mean)\b"
)


class Example(NamedTuple):
    command: str
    flags: list[str]
    files: dict[str, bytes]
    source: bytes = b""  # standard input


class UnexpectedError(AssertionError):
    """A command did what none may do; `kind` tells such errors apart."""

    def __init__(self, kind: str, message: str):
        super().__init__(f"{kind}\n{message}")
        self.kind = kind


@st.composite
def texts(draw, count: int | None = None) -> bytes:
    """A text file, of this number of lines or of any."""
    least, most = (0, 4) if count is None else (count, count)
    line = st.sampled_from(LINES) | st.text(max_size=20).map(str.encode)
    end = draw(st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"]))
    text = end.join(draw(st.lists(line, min_size=least, max_size=most)))
    text += draw(st.sampled_from([end, b""]))
    kind = draw(st.integers(0, 30))
    if kind == 1:
        text += draw(st.sampled_from(NOT_UTF_8))
    elif kind == 2:
        text = text.decode().encode("utf-16")
    elif kind == 3:
        text = b"\xef\xbb\xbf" + text
    elif kind == 4:
        text += b"x" * draw(st.sampled_from([10_000] * 30 + [10_000_000]))
    return text


@st.composite
def examples(draw, command: str, table: dict[str, list[str]]) -> Example:
    files = {"old": b"an earlier output\n", "in": draw(texts())}
    for prefix in PREFIXES.values():
        count = draw(st.sampled_from([0, 1, 2, 3, 3, None]))
        for language in ("en", "de"):
            files[f"{prefix}.{language}"] = draw(texts(count))
    for name, plain in {"in": files["in"], "z.en": None, "z.de": None}.items():
        packed = gzip.compress(files.pop(name) if plain is None else plain, mtime=0)
        cut = draw(st.sampled_from([0, 0, 0, 1, 12, len(packed) // 2]))
        files[f"{name}.gz"] = packed[: len(packed) - cut]
    test = draw(st.sampled_from([*PREFIXES] * 3 + VALUES["test"]))
    if command == "prepare":
        given = ["--config=tiny", f"--config.data.train={test}"]
        given += ["--config.data.tokenizer=work/tokenizer.model"]
    else:
        places = ["work"] * 20 + ["nix", "", ".", "in", "work/"]
        given = [f"--workdir={draw(st.sampled_from(places))}", f"--test={test}"]
    if command == "translate":
        piped = [[], ["--input=in"], ["--input=in", "--output=out"], ["--input=in.gz"]]
        given[1:] = draw(st.sampled_from(piped))
    for name in draw(st.lists(st.sampled_from(sorted(table)), max_size=3)):
        values = st.sampled_from(table[name][:3]) | st.sampled_from(table[name])
        given.append(draw(values))
    return Example(command, given, files, draw(texts()))


@contextlib.contextmanager
def own_flags():
    """Forgets the flags that a command defines."""
    defined = {*flags.FLAGS}
    try:
        yield defined
    finally:
        for name in {*flags.FLAGS} - defined:
            delattr(flags.FLAGS, name)
        logging.getLogger("t2t_jax").handlers.clear()


def written_flags(command: str) -> dict[str, list[str]]:
    """The flags that a command defines -> how each may be written."""
    table = {"mistyped": ["--beem=3", "word", "--", "-x", "--input"]}
    with own_flags() as defined:
        launch.module_of(command).define_flags()
        for name in {*flags.FLAGS} - defined - LEFT_OUT:
            flag = flags.FLAGS[name]
            kinds = {"int": INTEGERS, "float": FLOATS, "string": NAMES}
            values = VALUES.get(name) or kinds.get(flag.flag_type())
            if values is None:  # of an enum
                values = [*getattr(flag.parser, "enum_values", ()), "nix", ""]
            table[name] = [f"--{name}={value}" for value in values]
            if flag.boolean:
                table[name] = [f"--{name}", f"--no{name}", f"--{name}=perhaps"]
    if command == "prepare":
        for field in ("max_length", "max_ratio", "temperature", "subword_dropout"):
            values = INTEGERS + FLOATS
            table[field] = [f"--config.data.{field}={value}" for value in values]
    return table


def run(example: Example) -> tuple[int, str, str]:
    """Runs a command; returns its status, and what it prints on either stream."""
    given = {"stdin": example.source, "stdout": b"", "stderr": b""}
    streams = {n: io.TextIOWrapper(io.BytesIO(b), "utf-8") for n, b in given.items()}
    argv = [f"t2t_jax {example.command}", *example.flags]
    alone = mock.patch.object(rendezvous, "may_have_others", bool)  # False
    with own_flags(), alone, mock.patch.multiple(sys, argv=argv, **streams):
        status = 0
        try:
            runner.run(example.command, launch.module_of(example.command))
        except SystemExit as end:
            status = end.code or 0
        sys.stdout.flush()
        sys.stderr.flush()
    printed = [streams[n].buffer.getvalue().decode() for n in ("stdout", "stderr")]
    return status, *printed


def check(example: Example, workdir: Path) -> int:
    """Runs an example in a folder of its own; returns the status.

    Raises UnexpectedError.
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        shutil.copytree(workdir, "work")
        for name, content in example.files.items():
            Path(name).write_bytes(content)
        before = small_run.contents(Path("."))
        try:
            with mock.patch.dict(os.environ, T2T_JAX_CACHE=f"{folder}/cache"):
                status, stdout, stderr = run(example)
        except Exception as e:
            frames = traceback.extract_tb(e.__traceback__)
            own = [frame for frame in frames if "/t2t_jax/" in frame.filename]
            where = f"{Path(own[-1].filename).name}, line {own[-1].lineno}"
            kind = f"{example.command}: {type(e).__name__} in {where}"
            raise UnexpectedError(kind, traceback.format_exc()[-3_000:]) from None

        def want(condition: bool, kind: str) -> None:
            if not condition:
                told = f"status {status}\n{stdout[-500:]}\n{stderr[-2_000:]}"
                raise UnexpectedError(f"{example.command}: {kind}", told)

        after = small_run.contents(Path("."))
        new = {n for n in after.keys() - before.keys() if not n.startswith("cache/")}
        want(before.items() <= after.items(), "a file is lost or changed")
        want(status in (0, 2), "the status is neither 0 nor 2")
        want("Traceback" not in stderr, "a traceback")
        want(stdout.endswith("\n") or not stdout, "half a line is printed")
        if status:
            want(stderr.count("error: ") == 1, "not one error message")
            error = stderr.partition("error: ")[2]
            want(bool(CURE.search(error)), f"no cure in {error[:30]!r}")
            finished = {name for name in new if ".partial" not in name}
            want(not finished, "a file of a failed command")
            want(not new or "continues" in stderr, "an unfinished file is not named")
        else:
            flag = dict(f.lstrip("-").partition("=")[::2] for f in example.flags)
            check_of = globals()[f"check_{example.command}"]
            check_of(example.files, flag, example.source, stdout, new, want)
        return status


def lines_of(text: bytes) -> int:
    return text.count(b"\n") + bool(text.rpartition(b"\n")[2])


def pairs_of(files, prefix: str) -> int | None:
    """The number of pairs that a prefix names; None if it is not one prefix."""
    if (name := PREFIXES.get(prefix)) == "z":
        return lines_of(gzip.decompress(files["z.en.gz"]))
    return lines_of(files[f"{name}.en"]) if name else None


def check_translate(files, flag, source, stdout, new, want):
    if "input" in flag:
        source = files[flag["input"]]
        source = gzip.decompress(source) if flag["input"] == "in.gz" else source
    part, parts = map(int, flag.get("part", "1/1").split("/"))
    ending = f".{part:0{len(str(parts))}}-of-{parts}" if parts > 1 else ""
    count = lines_of(source)
    begin, end = count * (part - 1) // parts, count * part // parts
    if flag.get("pairs"):
        names = [f"{flag['pairs']}{ending}.{e}" for e in ("en", "de", "hashes", "json")]
        want(new == {*names}, "other files than the pairs")
        counts = {lines_of(Path(name).read_bytes()) for name in names[:3]}
        want(len(counts) == 1, "the files of pairs are not in step")
        want(max(counts) <= end - begin, "more pairs than lines")
        return
    output = stdout
    if name := flag.get("output"):
        want(new - {f"{name}{ending}.json"} == {name + ending}, "other files")
        output = Path(name + ending).read_bytes().decode()
    if flag.get("format"):
        return
    rows = output.split("\n")
    want(rows.pop() == "", "half a line is written")
    want(all(len(row.splitlines()) <= 1 for row in rows), "a line has a line separator")
    if (nbest := int(flag.get("nbest", 1))) == 1:
        want(len(rows) == end - begin, "not one line for each line")
        return
    numbers = [int(row.partition(" ||| ")[0]) for row in rows]
    want(numbers == sorted(numbers), "an n-best list is not in order")
    want({*numbers} == {*range(begin, end)}, "an n-best list lacks a line")
    most = max(collections.Counter(numbers).values(), default=0)
    want(most <= nbest, "an n-best list has too many of a line")


def check_score(files, flag, source, stdout, new, want):
    want(not new, "scoring leaves files")
    rows = stdout.split("\n")[:-1]
    pairs = pairs_of(files, flag["test"])
    want(pairs in (None, len(rows)), "not one score for each pair")
    for row in rows:
        fields = json.loads(row) if row.startswith("{") else row.split("\t")
        want(len(fields) in (3, 4), "a row without a field")


def check_evaluate(files, flag, source, stdout, new, want):
    want(all(name.startswith("work/") for name in new), "files outside of the workdir")
    if (pairs := pairs_of(files, flag["test"])) is not None:
        name = PREFIXES[flag["test"]]
        answers = Path(f"work/translations/{name}.de").read_bytes()
        want(lines_of(answers) == pairs, "not one answer for each pair")
        stored = json.loads(Path(f"work/scores/{name}.json").read_bytes())
        want(stored["lines"] == pairs, "not each pair is scored")


def check_prepare(files, flag, source, stdout, new, want):
    want(not new, "files outside of the cache")


def search(
    seconds: float, seed: int, commands=COMMANDS, rounds: int = 0, size: int = 50
) -> list[str]:
    """Draws examples until the time or the rounds are over; returns what went wrong.

    Args:
      rounds: of `size` examples; 0: until the time is over.
    """
    known, last, statuses = [], [], collections.Counter()
    until = time.monotonic() + seconds

    def one(example: Example) -> None:
        try:
            statuses[example.command, check(example, workdir)] += 1
        except UnexpectedError as error:
            if error.kind not in known:  # each is searched for once
                last[:] = [example, error]
                raise

    with tempfile.TemporaryDirectory() as folder:
        decode = {"max_source": 16, "extra_length": 4, "beam": 2}
        config = small_run.config_for(folder, decode=decode, data={"test": ""})
        workdir = Path(folder) / "work"
        small_run.stored(workdir, small_run.from_config_dict(config), vocabulary())
        check(Example("translate", ["--workdir=work"], {}, b"a\n"), workdir)
        for number in itertools.count():
            if (rounds and number == rounds) or time.monotonic() > until:
                break
            command = commands[number % len(commands)]
            drawn = hypothesis.given(examples(command, written_flags(command)))(one)
            drawn = hypothesis.settings(
                max_examples=size,
                deadline=None,
                database=None,
                phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
                suppress_health_check=[*hypothesis.HealthCheck],
                report_multiple_bugs=False,
                print_blob=False,
            )(hypothesis.seed(seed + number)(drawn))
            try:
                drawn()
            except UnexpectedError:
                example, error = last
                known.append(error.kind)
                print(f"\n{error}")
                for name, content in example.files.items():
                    print(f"{name}: {content[:200]!r} ({len(content):,} bytes)")
                print(f"standard input: {example.source[:200]!r}")
                print(shlex.join(["t2t_jax", command, *example.flags]))
                again = f"--seed={seed + number} --command={command} --rounds=1"
                print(f"python -m tests.fuzz {again}", flush=True)
    ended = ", ".join(f"{c} {s}: {n:,}" for (c, s), n in sorted(statuses.items()))
    print(f"{len(known)} failures; ends of commands: {ended}")
    return known


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=0, help="0: until time is over")
    parser.add_argument("--command", choices=COMMANDS, action="append")
    args = parser.parse_args()
    # Each command has a cache folder of its own.
    jax.config.update("jax_enable_compilation_cache", False)
    commands = args.command or COMMANDS
    sys.exit(bool(search(60 * args.minutes, args.seed, commands, args.rounds)))
