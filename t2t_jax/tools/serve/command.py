"""Serves translations over HTTP: `python -m t2t_jax serve --workdir=DIR`.

Clients of LibreTranslate, DeepL, chat completions and others work with it unchanged,
and a browser shows a page to translate on. It answers /health at once, and translates
when /ready says so. SIGTERM and Ctrl-C answer what is accepted, then end it; SIGHUP
loads the newest checkpoints, keys and glossaries.
"""

import asyncio
import contextlib
import dataclasses
import importlib.util
import math
import re
import signal
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from absl import flags

from t2t_jax.commands.flags import (
    ENSEMBLE,
    SAMPLING,
    SEARCH,
    define_adapter_flag,
    define_engine_flag,
    define_search_flags,
    define_weights_flag,
    define_workdir_flags,
    search_flags,
)
from t2t_jax.data.corpus import Pair, open_specs
from t2t_jax.decoding.search_options import SamplingOptions
from t2t_jax.extensions.training.current_adapter import adapter_at
from t2t_jax.io.errors import UserError, first_line
from t2t_jax.io.growing import DiskFile, open_log
from t2t_jax.io.locations import is_local, locate, split_names
from t2t_jax.io.messages import say
from t2t_jax.sections import at_address, checked_options
from t2t_jax.tools.serve.settings import Glossary, Settings, read_keys
from t2t_jax.workdir import Workdir

if TYPE_CHECKING:
    from t2t_jax.decoding.translator import Translator

UNREAD = 30_000  # milliseconds until a connection whose client does not read is closed
PACKAGES = "starlette", "uvicorn", "python_multipart", "prometheus_client"
BEAMS, WIDEST = 8, 128  # beams to compile, and hypotheses of one, at most
# Options of the search that are those of all requests.
ALL_LINES = "extra_length", "no_repeat_ngram", "repetition_penalty"
EXTRA = 1 << 12  # the longest --extra_length: searches and scores have such rows


def define_flags():
    define_workdir_flags(ENSEMBLE, required=False)
    define_weights_flag()
    define_engine_flag()
    define_adapter_flag(
        "NAME=DIR, or NAME:DIRECTION=DIR: a direction of that name, of the first model "
        "or that of the direction, whose parameters it shares"
    )
    string, integer = flags.DEFINE_string, flags.DEFINE_integer
    several = flags.DEFINE_multi_string
    several(
        "model",
        [],
        "NAME=DIR: a direction to serve, such as en-de=runs/ende, in place of "
        "--workdir; several workdirs, separated by commas, form an ensemble",
    )
    string("host", "127.0.0.1", "Address to listen on; 0.0.0.0: of all networks.")
    integer("port", 5000, "Port to listen on; 0: any that is free.", 0, 65535)
    string("beams", "4", "Beams to compile, separated by commas; the first is default.")
    integer("longest", 128, "Tokens of a line, at most, with its end.", 2, 1 << 14)
    integer("phrases", 4, "Phrases of a line that may be asked for.", 0, 64)
    samples = "Samples of a line that may be asked for; 0: none."
    integer("samples", 0, samples, 0, 1024)
    define_search_flags([name for name in SEARCH if name not in ALL_LINES])
    define_search_flags(["seed"], SamplingOptions)
    queue = "Lines that wait, at most; others get status 429."
    integer("queue", 20_000, queue, 1, 10**7)
    states = "States of the automata of all phrases at a time."
    integer("states", 1024, states, 1, 1 << 16)
    string("api_keys", None, "File of API keys, one a line; default: none is wanted.")
    several(
        "terms",
        [],
        "NAME=FILE, or NAME:DIRECTION=FILE: a glossary, with lines SOURCE<TAB>TARGET; "
        "of the first direction, if none is named",
    )
    several(
        "dev",
        [],
        "PREFIX, or DIRECTION=PREFIX: text to measure precision on at the start, for "
        "min_precision; as --test of evaluate",
    )
    served = (
        "A text without a source language stays as it is if its language is less "
        "probably a served one; 0: all are translated."
    )
    flags.DEFINE_float("min_served", Settings.min_served, served, 0, 1)
    good = "A translation of dev with this sentence chrF is good."
    flags.DEFINE_float("good_chrf", Settings.good_chrf, good, 0, 100)
    divided = "Clients' texts are searched sentence by sentence, or line by line."
    flags.DEFINE_enum("split", Settings.split, ["sentences", "none"], divided)
    string("suggestions", None, "File to append users' corrections to, for `learn`.")
    hosts = "Names that the server is called by; *: any."
    flags.DEFINE_list("allowed_hosts", [], hosts)
    string("cors", "", "Origin whose pages may use the server; *: any. Default: none.")
    string("proxies", None, "Addresses of proxies; their X-Forwarded-For is believed.")
    characters = "Characters of a request, at most."
    integer("max_characters", Settings.characters, characters, 1, 1 << 28)
    lines = "Lines of a request, at most."
    integer("max_lines", Settings.lines, lines, 1, 10**6)
    size = "Bytes of a request's body, at most."
    integer("max_bytes", Settings.bytes, size, 1, 1 << 30)
    seconds = "Seconds after which a request is given up."
    flags.DEFINE_float("max_seconds", Settings.seconds, seconds, 0.1, 86_400)


def main(_):
    args = flags.FLAGS
    divided = args.split == "sentences"
    for name in (*PACKAGES, *(["sentencex"] if divided else ())):
        if importlib.util.find_spec(name) is None:
            raise UserError(f"{name} is not installed: pip install -e '.[serve]'")
    models = _models(args)  # mistakes are reported before JAX is imported
    _check_numbers(args)
    adapters = _adapters(args, models)
    beams, search = _beams(args.beams), search_flags(args)
    named = [name for name in SAMPLING if name != "seed"]
    if not args.samples and (unused := [n for n in named if args[n].present]):
        raise UserError(f"--{', --'.join(unused)}: of samples; add --samples=N")
    sampling = {name: args[name].value for name in named}
    sampling = SamplingOptions(**checked_options(SamplingOptions, sampling, "--"))
    terms = [_terms(value, models) for value in args.terms]
    settings = Settings(
        host=args.host,
        allowed_hosts=tuple(args.allowed_hosts),
        cors=args.cors,
        characters=args.max_characters,
        lines=args.max_lines,
        bytes=args.max_bytes,
        seconds=args.max_seconds,
        keys=() if args.api_keys is None else read_keys(args.api_keys),
        terms={glossary.name: glossary for glossary in terms},
        dev=dict(_dev(value, models) for value in args.dev),
        min_served=args.min_served,
        good_chrf=args.good_chrf,
        split=args.split if divided else "",
        suggestions=_suggestions(args.suggestions),
    )
    listener = listen(args.host, args.port)
    hangups: list[int] = []  # to reload; it waits until there is something
    signal.signal(signal.SIGHUP, lambda number, _: hangups.append(number))
    import jax

    from t2t_jax.decoding.translator import Translator
    from t2t_jax.parallel.process_setup import set_up_process
    from t2t_jax.tools.serve.app import application, serve
    from t2t_jax.tools.serve.engine import Engine, Limits

    # Before threads read parameters: those that run already keep arenas of their own.
    set_up_process()
    if jax.default_backend() == "cpu":  # elsewhere it keeps the choices of kernels
        jax.config.update("jax_enable_compilation_cache", False)  # see executables.py

    translators: dict[str, Translator] = {}
    engines: dict[str, str] = {}

    def load(name: str) -> "Translator":
        if name in adapters:
            base, place = adapters[name]
            workdir = adapter_at(place)
            say(f"{name}: the adapter {workdir} of {base}")
            return translators[base].with_adapter(workdir)
        places = models[name] if len(models[name]) > 1 else models[name][0]
        weights, engine = args.weights, engines.get(name, args.engine)
        if adapters and engine == "auto":
            engine = "jax"  # the only one that knows adapters
        translator = Translator.load(
            places, args.checkpoint, args.dtype, weights, engine
        )
        if engine == "auto":  # chosen once, for reloads too
            engines[name] = translator.engine
        say(f"{name}: {translator!r}")
        if search:
            longer = translator.with_extra_length(search.get("extra_length"))
            others = {n: x for n, x in search.items() if n != "extra_length"}
            translator = longer.with_options(**others)
        return translator

    def reload() -> None:
        for name in (*models, *adapters):
            with _or_say(f"{name}: goes on with the parameters it has"):
                engine.reload(name, new := load(name))
                translators[name] = new

    def read_again(settings: Settings) -> Settings:
        if args.api_keys is not None:
            with _or_say("goes on with the keys it has"):
                keys = read_keys(args.api_keys)
                settings = dataclasses.replace(settings, keys=keys)
        for value in args.terms:
            with _or_say("goes on with the terms it has"):
                glossary = _terms(value, models)
                terms = {**settings.terms, glossary.name: glossary}
                settings = dataclasses.replace(settings, terms=terms)
        return settings

    def compare_engines(translate: Callable) -> None:
        for name in models:
            direction = engine.directions[name]
            compare = at_address("tools.bridges.kept.other_engine")
            with _or_say(f"{name}: engines are not compared"):
                if line := compare(direction.translator, partial(translate, name)):
                    say(f"{name}: {line}")

    limits = Limits(
        beams=beams,
        longest=args.longest,
        phrases=args.phrases,
        states=args.states,
        queue=args.queue,
        samples=args.samples,
        sampling=sampling,
    )
    for name in (*models, *adapters):
        translators[name] = load(name)
    engine = Engine(translators, limits)
    host = f"[{args.host}]" if ":" in args.host else args.host
    say(f"http://{host}:{listener.getsockname()[1]}/ answers; compiling")
    app = application(engine, settings)
    files = reload, args.proxies, read_again, hangups
    asyncio.run(serve(app, listener, *files, compare_engines))


@contextlib.contextmanager
def _or_say(message: str) -> Iterator[None]:
    """Prints a line with an error in place of raising it: a server goes on."""
    try:
        yield
    except Exception as e:  # whatever a damaged file, or a lack of memory, raises
        say(f"{message}: {first_line(e)}")


def _models(args: flags.FlagValues) -> dict[str, list[str]]:
    """The workdirs of each direction; checks that each has a config that translates."""
    if bool(args.model) == (args.workdir is not None):
        raise UserError("want either --workdir=DIR or --model=NAME=DIR, one of them")
    models: dict[str, list[str]] = {}
    for value in args.model or [f"={args.workdir}"]:
        name, _, places = value.partition("=")
        listed = split_names(places)
        if args.model and not (name and listed):
            raise UserError(f"--model={value}; want NAME=DIR, such as en-de=runs/ende")
        if not listed:
            raise UserError(f"--workdir={args.workdir} names no workdir")
        configs = [Workdir(place).config() for place in listed]
        data = configs[0].data
        limit = min(config.decode.max_source for config in configs)
        if args["longest"].present and args.longest > limit:
            raise UserError(
                f"--longest={args.longest}: {listed[0]} reads at most {limit} tokens "
                "(config.decode.max_source)"
            )
        name = name or f"{data.source}-{data.target}"
        if name in models:
            raise UserError(f"--model={value}: {name} is there before, too; rename it")
        models[name] = listed
    return models


def _adapters(args: flags.FlagValues, models: dict) -> dict[str, tuple[str, str]]:
    """Of each adapter, by its name, the direction that it changes and its workdir."""
    adapters: dict[str, tuple[str, str]] = {}
    for value in args.adapter:
        named, _, place = value.partition("=")
        name, _, direction = named.partition(":")
        if not (name and place):
            raise UserError(
                f"--adapter={value}; want NAME=DIR or NAME:DIRECTION=DIR, such as "
                "captions=runs/captions"
            )
        if name in models or name in adapters:
            raise UserError(
                f"--adapter={value}: a direction or an adapter is called {name} "
                "already; rename it"
            )
        Workdir(workdir := adapter_at(place)).config()  # refuses what is none
        direction = _direction(f"--adapter={value}", direction, models)
        if args.engine == "ctranslate2" or args.weights != "float32":
            raise UserError(
                f"--adapter={value} wants --engine=jax and --weights=float32; or serve "
                f"it by itself, merged with its base: --model={name}={workdir}"
            )
        adapters[name] = direction, place
    return adapters


def _suggestions(name: str | None) -> DiskFile | None:
    """Opens the file of corrections, before anything is loaded."""
    if not name:
        return None
    if not is_local(name):
        raise UserError(f"--suggestions={name}: want a file on disk, which can grow")
    try:  # half a line, of a crash, is cut off
        return open_log(locate(name), lambda line: line, b'{"time"')[1]
    except OSError as e:
        raise UserError(f"--suggestions={name}: {e.strerror}") from None


def _beams(text: str) -> tuple[int, ...]:
    beams = [beam.strip() for beam in text.split(",")]
    numbers = [int(beam) for beam in beams if re.fullmatch("[0-9]{1,3}", beam)]
    good = [number for number in numbers if 1 <= number <= WIDEST]
    if len(good) < len(beams) or len(beams) > BEAMS:
        want = f"want at most {BEAMS} numbers from 1 to {WIDEST}, such as 4,1"
        raise UserError(f"--beams={text}; {want}")
    return tuple(dict.fromkeys(good))


def _check_numbers(args: flags.FlagValues) -> None:
    """Refuses what absl's bounds let pass: each of these would be waited for."""
    if (args.extra_length or 0) > EXTRA:
        raise UserError(f"--extra_length={args.extra_length}; want at most {EXTRA:,}")
    for name in ("max_seconds", "min_served", "good_chrf"):
        if math.isnan(args[name].value):
            raise UserError(f"--{name}=nan; want a number")


def _terms(value: str, models: dict) -> Glossary:
    named, _, file = value.partition("=")
    name, _, direction = named.partition(":")
    if not name or not file:
        raise UserError(f"--terms={value}; want NAME=FILE, or NAME:DIRECTION=FILE")
    return Glossary(name, _direction(f"--terms={value}", direction, models), file)


def _dev(value: str, models: dict) -> tuple[str, list[Pair]]:
    """A direction, and the pairs of its dev set."""
    direction, _, prefix = value.rpartition("=")
    name = _direction(f"--dev={value}", direction, models)
    from t2t_jax.tasks.table import task_of

    corpora = open_specs(prefix, task_of(Workdir(models[name][0]).config()).open)
    pairs = [pair for corpus in corpora for pair in corpus.pairs()]
    if not pairs:
        raise UserError(f"--dev={value} has no lines; want a dev set")
    return name, pairs


def _direction(flag: str, name: str, models: dict) -> str:
    """Checks the name of a direction; the first, if none is named."""
    if name and name not in models:
        names = ", ".join(models)
        raise UserError(f"{flag}: no direction {name!r}; there are: {names}")
    return name or next(iter(models))


def listen(host: str, port: int) -> socket.socket:
    """Takes a port before anything is loaded; clients wait until it is served.

    Raises:
      UserError: another program has it, or there is no such address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
        # asyncio does it for sockets that name their protocol. Without it an answer's
        # body waits for 40 ms until the client has acknowledged the head.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # of clients that never read
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD)
        return listener
    except OSError as e:
        raise UserError(
            f"--host={host} --port={port}: {e.strerror}; want an address of here, and "
            "a port that is free, such as --port=0"
        ) from None
