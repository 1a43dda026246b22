"""`Searcher`: trained models that search for translations, sample and score them.

A line's translation does not depend on the lines translated with it, nor on the number
of devices: the shape of the arrays depends on the length of the line alone
(`decoding/batches.py`).
"""

import copy
import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

import jax
from etils import epath

from t2t_jax import __version__
from t2t_jax import config as fields
from t2t_jax.config import ENGINES, WEIGHTS, Config, DecodeConfig, TaskConfig
from t2t_jax.data.tokenizers.vocabulary import Vocabulary
from t2t_jax.decoding import alignment, scoring
from t2t_jax.decoding.batch_decoding import (
    check_memory,
    check_room,
    decode_batch,
)
from t2t_jax.decoding.batches import longest_output, replicate
from t2t_jax.decoding.constraints import Constraints, Phrases, constraints_for
from t2t_jax.decoding.inputs import (
    InputReader,
    Member,
    Source,
    check_lines,
    recorded_weights,
)
from t2t_jax.decoding.programs import Search
from t2t_jax.decoding.results import Hypothesis, Score, Translation
from t2t_jax.decoding.scoring import Pairs
from t2t_jax.decoding.search_options import (
    DEFAULTS,
    SHARED,
    SamplingOptions,
    SearchRequest,
    beam_search_algorithm,
    sampling_algorithm,
    takes,
)
from t2t_jax.io import ideas
from t2t_jax.io.atomic import sha256_of
from t2t_jax.io.errors import UserError, did_you_mean
from t2t_jax.model.layers import Parameters, compute_dtype
from t2t_jax.model.model import Model, build
from t2t_jax.model.products import quantized
from t2t_jax.parallel import processes
from t2t_jax.parallel.process_setup import set_up_process
from t2t_jax.search.algorithm import Algorithm
from t2t_jax.sections import at_address, checked_options
from t2t_jax.workdir import Workdir

JAX = "jax"


class Searcher:
    """Searches for translations; attributes and arguments are those of `Translator`."""

    tag: str = ""
    engine = JAX

    def __init__(
        self,
        config: Config,
        vocabulary: Vocabulary,
        model: Model,
        parameters: Parameters,
        steps: Sequence[int] = (),
        devices: Sequence[jax.Device] | None = None,
    ):
        parameters = replicate(parameters, devices)
        self.members = (Member(config, model, parameters, tuple(steps)),)
        self.vocabulary = vocabulary

    @classmethod
    def load(
        cls,
        workdir: Workdir | epath.PathLike | Sequence[epath.PathLike],
        checkpoint: str | int | None = None,
        dtype: str | None = None,
        weights: str = "float32",
        engine: str | None = None,
    ) -> Self:
        """Loads a workdir for translation; executes no code from it.

        Args:
          workdir: a folder, or gs://BUCKET/FOLDER, or the folder of an export for
            CTranslate2. A list of them is an ensemble, which predicts with the mean of
            the members' probabilities.
          checkpoint: `average` (of the last `config.decode.average` checkpoints,
            section 6.1), `average:N` (of the last N), `last`, `best` (highest dev BLEU
            of all evaluations), `best:N` (the average of the N best), a step, or steps
            to average such as `"1000,2000"`; `config.decode.checkpoint` if None.
            Damaged checkpoints are reported by name. The next intact ones replace them,
            unless steps or a number N are given.
          dtype: of activations, `float32` or `bfloat16`; as in training if None.
          weights: `float32`, or `int8`: weights are rounded once, and activations in
            each product with them, to a quarter of the memory (`model/products.py`).
          engine: `jax`, `ctranslate2` (a workdir is exported, once), or `auto`, the
            quicker one; None: what the folder is for.

        Raises:
          UserError: not a workdir; no such checkpoint; too few intact ones; or members
            whose vocabularies differ.
        """
        from t2t_jax.training import (
            averaging,  # loads Orbax, which `describe` does without
        )

        if weights not in WEIGHTS:
            raise UserError(f"weights={weights!r}{did_you_mean(weights, WEIGHTS)}")
        if engine not in (None, *ENGINES):
            raise UserError(f"engine={engine!r}{did_you_mean(engine, ENGINES)}")
        set_up_process()
        if engine not in (None, JAX):
            load = at_address("tools.bridges.kept.load")
            return load(workdir, checkpoint, dtype, weights, engine)
        if isinstance(workdir, list | tuple):
            if not workdir:
                raise UserError("no workdir is given; want at least one")
            return cls.ensemble(
                [cls.load(w, checkpoint, dtype, weights) for w in workdir]
            )
        workdir = Workdir.open(workdir)
        if workdir.export:
            if engine:
                raise UserError(
                    f"engine={engine}: {workdir.export} is an export for CTranslate2; "
                    "give the workdir that it was made from"
                )
            load = at_address("extensions.decoding.exported.load")
            return load(workdir, checkpoint, dtype, weights)
        config, vocabulary = workdir.config_and_vocabulary()
        if dtype:
            config = fields.changed(config, "model", dtype=dtype)
        model = build(config.model, *vocabulary.sizes)
        # Only process 0 reads the checkpoints; the others receive its parameters.
        steps, parameters = processes.arrays_from_first(
            "the parameters",
            lambda: averaging.read_translating(workdir, config, model, checkpoint),
            model.shapes,
        )
        if weights == "int8":
            parameters = quantized(parameters, model.summed)
        return cls(config, vocabulary, model, parameters, steps)

    @classmethod
    def ensemble(cls, translators: Sequence["Searcher"]) -> Self:
        """Joins translators into one, on the devices of the first.

        The first one's `config.decode` applies to all.

        Raises:
          UserError: no translators, or their vocabularies or tasks differ.
        """
        if not translators:
            raise UserError("the ensemble is empty; want at least one translator")
        leader, *followers = translators
        target = leader.vocabulary
        for follower in followers:
            if follower.config.task.kind != leader.config.task.kind:
                raise UserError(
                    f"config.task.kind={leader.config.task.kind!r} and "
                    f"{follower.config.task.kind!r}; the members of an ensemble must "
                    "be trained for one task"
                )
        for follower in followers:
            for vocabulary, expected, field in (
                (follower.vocabulary, target, "tokenizer"),
                (follower.vocabulary.source, target.source, "source_tokenizer"),
            ):
                if vocabulary.model != expected.model:
                    raise UserError(
                        f"the vocabularies {vocabulary.name} and {expected.name} "
                        "differ; the members of an ensemble must share one vocabulary: "
                        f"train them with the same --config.data.{field}"
                    )
        joint = cls.__new__(cls)  # `__init__` would build a translator of one member
        joint.vocabulary = target
        devices = [*leader.members[0].mesh.devices.flat]
        joint.members = tuple(
            m._replace(parameters=replicate(m.parameters, devices))
            for translator in translators
            for m in translator.members
        )
        return joint

    @property
    def config(self) -> Config:
        return self.members[0].config

    @property
    def model(self) -> Model:
        return self.members[0].model

    @property
    def parameters(self) -> Parameters:
        return self.members[0].parameters

    @property
    def steps(self) -> tuple[int, ...]:
        return self.members[0].steps

    def __repr__(self) -> str:
        members = "; ".join(
            f"{member.model.count():,} parameters"
            + (" of steps " * bool(member.steps))
            + ", ".join(f"{step:,}" for step in member.steps)
            + (f", {member.weights}" if member.weights != "float32" else "")
            for member in self.members
        )
        name = type(self).__name__
        return f"{name}({self.what}, {self.vocabulary!r}, {members})"

    @property
    def what(self) -> str:
        """A name for messages, such as en -> de; a tag, or the name of its task."""
        data, kind = self.config.data, self.config.task.kind
        translates = kind == TaskConfig().kind
        return self.tag or (f"{data.source} -> {data.target}" if translates else kind)

    def save(self, workdir: Workdir | epath.PathLike) -> Workdir:
        """Stores a model of your own, which no run has trained, as a new workdir.

        Other commands then read it, and `finetune:WORKDIR` trains it further.

        Args:
          workdir: a new folder, or gs://BUCKET/FOLDER.

        Raises:
          UserError: the folder is not empty; it is an ensemble, or has int8 weights.
        """
        return at_address("extensions.decoding.saving.save")(self, workdir)

    def with_options(self, **decode) -> Self:
        """Returns the same models with other values of `config.decode`: `beam=10`.

        Raises:
          UserError: a field does not exist, or a value is out of its range.
        """
        searcher = copy.copy(self)
        searcher.members = tuple(
            member._replace(config=fields.changed(member.config, "decode", **decode))
            for member in self.members
        )
        return searcher

    def with_extra_length(self, extra_length: int | None) -> Self:
        """Returns the same models with another limit of outputs; None keeps it.

        Raises:
          UserError: it is out of its range, or a model has too few positions.
        """
        if extra_length is None:
            return self
        options = self.config.decode.override(extra_length=extra_length)
        _ = self.search_parameters, self.phrases  # made once: copies share them
        searcher = self.with_options(extra_length=options.extra_length)
        searcher.reader(1, warn=False)  # checks the positions
        return searcher

    def tagged(self, tag: str) -> Self:
        """Returns the same models, which read a tag such as `<2de>` before each line.

        It chooses the subtask of a text-to-text model. Lines without a visible
        character get none; their translation is empty.
        """
        searcher = copy.copy(self)
        searcher.tag = tag
        return searcher

    def provenance(self) -> dict:
        """Provenance: everything translations depend on, except lines and arguments.

        A stored result is used again only if this is what it was then. The `definition`
        is the config that a run has fixed, and the code of the entries it chooses.
        """
        configs = [member.config for member in self.members]
        sections = [s for c in configs for s in (c.task, c.model, c.decode)]
        entries = [section.entries() for section in sections]
        fixed = [[vars(c.task), c.model.fixed(), c.data.fixed()] for c in configs]
        return {
            "t2t_jax": __version__,
            "checkpoints": [[*member.steps] for member in self.members],
            "parameters_sha256": [m.parameters_sha256() for m in self.members],
            "dtype": [compute_dtype(m.config.model).name for m in self.members],
            **recorded_weights(self.members),
            "vocabulary_sha256": self.vocabulary.sha256,
            "decode": self.decode_options(),
            "task_options": [dict(config.task.options) for config in configs],
            "ideas": ideas.modules() | ideas.foreign_code(*entries),
            "definition_sha256": sha256_of([fixed, ideas.code_of(*entries)]),
            **({"tag": self.tag} if self.tag else {}),
        }

    def decode_options(self) -> dict:
        """The fields of `config.decode` that change translations."""
        decode = self.config.decode
        lengths = {"extra_length": decode.extra_length, "max_source": decode.max_source}
        return decode.recorded() | lengths

    def search(
        self, lines: Sequence[str], request: SearchRequest = DEFAULTS
    ) -> list[Translation]:
        """Finds the best hypotheses of each line by beam search, in order."""
        search = self.beam_search(request.nbest, **request.search)
        return self._translations(search, lines, request)

    def draw(
        self, lines: Sequence[str], request: SearchRequest, options: SamplingOptions
    ) -> list[Translation]:
        """Draws `request.samples` translations of each line, as `sample` does."""
        search = self.sampling(request.samples, options, **request.search)
        return self._translations(search, lines, request)

    @takes(SamplingOptions)
    def sample(
        self,
        lines: Sequence[str],
        *,
        samples: int = 1,
        alpha: float | None = None,
        penalty: str | None = None,
        no_repeat_ngram: int | None = None,
        repetition_penalty: float | None = None,
        extra_length: int | None = None,
        prefix: str | Sequence[str | None] | None = None,
        must_not: str | Sequence = (),
        batch_size: int | None = None,
        first_line: int = 1,
        warn: bool = True,
        **sampling: Any,
    ) -> list[Translation]:
        """Draws `samples` translations of each line at random.

        A sample depends only on the line, the seed and the number of the sample: equal
        lines give equal samples, different lines independent ones. For a model without
        a source it also depends on the number of the line (`first_line` and on), so
        that equal lines go on differently.

        Args:
          samples: translations to draw for each line.
          sampling: fields of `SamplingOptions`: `temperature`, `top_k`, `top_p`,
            `epsilon` and `seed` (`decoding/search_options.py`).
          others: as for `Translator.translate`.

        Raises:
          UserError: an option is out of its range.
        """
        options = SamplingOptions(**checked_options(SamplingOptions, sampling))
        shared = alpha, penalty, no_repeat_ngram, repetition_penalty
        request = SearchRequest(
            search=dict(zip(SHARED, shared, strict=True)),
            prefix=prefix,
            must_not=must_not,
            samples=samples,
            seed=options.seed,
            batch_size=batch_size,
            first_line=first_line,
            warn=warn,
        )
        return self.with_extra_length(extra_length).draw(lines, request, options)

    def score(
        self,
        pairs: Sequence[tuple],
        *,
        alpha: float | None = None,
        penalty: str | None = None,
        first_line: int = 1,
        warn: bool = True,
    ) -> list[Score]:
        """Computes the log-probability of each target given its source.

        A hypothesis gets the same log-probability as in the search that found it, up to
        rounding: the sum runs in another order.

        Args:
          pairs: (source, target). A target is a text, which is encoded anew, or a
            `Hypothesis` or `Translation`, whose own tokens are scored.
          alpha, penalty, first_line, warn: as for `Translator.translate`.

        Raises:
          UserError: the model predicts tokens in their places, of which the other
            pieces are given: they have no probability together.
        """
        if self.model.predicts == "source":
            raise UserError(
                f"config.model.kind={self.config.model.kind!r} gives no probability of "
                "a whole line, only of hidden tokens; `evaluate` has their perplexity, "
                "and a language model scores lines"
            )
        pairs = self.reader(first_line, warn).pairs(pairs)
        decode = self.config.decode.override(alpha=alpha, penalty=penalty)
        return scoring.scores(
            self.vocabulary,
            pairs,
            self.token_log_probs(pairs),
            decode.alpha,
            decode.penalty,
        )

    # ---------------------------------------------------------------------- the engine
    # What computes: JAX here, CTranslate2 in `extensions/decoding/exported.py`, which
    # has these methods, `beam_search` and `sampling` of its own.

    def check_request(self, request: SearchRequest) -> None:
        """Raises UserError for what the engine cannot do of a request; JAX can all."""

    def decode(
        self,
        search: Search,
        sources: Sequence[Source],
        constraints: Sequence[Constraints],
        seed: int = 0,
    ) -> list[tuple[Hypothesis, ...]]:
        """Returns the hypotheses of each source, in order; at least one for each."""
        decode = self.config.decode
        longest = max((len(source.ids) for source in sources), default=0)
        check_memory(search, longest, decode)
        arguments = sources, constraints, self.vocabulary, self.phrases, decode, seed
        return decode_batch(search, *arguments)

    def token_log_probs(self, pairs: Pairs) -> list[list[float]]:
        """Computes the log-probability of each token of encoded targets."""
        return scoring.token_log_probs(self.vocabulary, self.members, pairs)

    def confidences(
        self, measure: str, options: scoring.ConfidenceOptions, pairs: Pairs
    ) -> list[float]:
        """Computes an entry of `scoring.CONFIDENCES` for encoded pairs."""
        scoring.check_dropout(measure, self.members)
        scorer = scoring.Scorer(self.vocabulary, self.members, options)
        return scoring.CONFIDENCES[measure](scorer, pairs)

    def alignment_weights(
        self, pairs: Pairs, layer: int | None = None
    ) -> alignment.Weights:
        """Computes the attention that aligns encoded pairs: of a layer, or the best."""
        arguments = self.vocabulary, self.members, pairs, layer
        return alignment.alignment_weights(*arguments)

    def check_attention(self) -> None:
        """Raises UserError if a model has no attention to align words by."""
        for member in self.members:
            alignment.checked_cross_layers(member)

    @cached_property
    def search_parameters(self) -> tuple[Parameters, ...]:
        """Each member's parameters as searches multiply by them."""
        return tuple(map(_search_parameters, self.members))

    @cached_property
    def phrases(self) -> Phrases:
        """Phrases of constraints, as automata over this vocabulary."""
        return Phrases(self.vocabulary)

    def beam_search(self, nbest: int = 1, **search: Any) -> Search:
        """A beam search with these models; `search` are fields of `SearchOptions`."""
        options = self.config.decode.override(**search)
        return self._search(beam_search_algorithm(options, self.vocabulary, nbest))

    def sampling(self, samples: int, options: SamplingOptions, **search: Any) -> Search:
        """A sampling with these models; `search` has options of `SHARED`."""
        shared = self.config.decode.override(**search)
        return self._search(
            sampling_algorithm(options, shared, self.vocabulary, samples)
        )

    def _search(self, algorithm: Algorithm) -> Search:
        """The search of an algorithm with these models, if all generate text."""
        for member in self.members:
            if not member.model.generates:
                raise UserError(
                    f"config.model.kind={member.config.model.kind!r} generates no text "
                    "to search for; choose a kind that does, or ask for what its task "
                    "predicts"
                )
        return Search(
            parameters=self.search_parameters,
            definitions=tuple(member.model.definition for member in self.members),
            mesh=self.members[0].mesh,
            algorithm=algorithm,
        )

    def encode(
        self, lines: Sequence[str], request: SearchRequest = DEFAULTS
    ) -> tuple[list[Source], list[Constraints]]:
        """Encodes lines, and the constraints on the translation of each."""
        check_lines(lines)
        self.check_request(request)
        reader = self.reader(request.first_line, request.warn)
        encode = reader.sources
        if not self.model.has_source:
            if prefix := request.prefix:
                raise UserError(
                    f"prefix={prefix!r}: config.model.kind={self.config.model.kind!r} "
                    "has no source, and goes on from the line itself; write the "
                    "beginning of the text into the line, and leave out the prefix"
                )
            encode = reader.prompts
            request = dataclasses.replace(request, prefix=list(lines))
        constraints = constraints_for(
            len(lines), self.vocabulary, self.phrases, request
        )
        sources = encode(lines)
        for number, pair in enumerate(
            zip(sources, constraints, strict=True), request.first_line
        ):
            check_room(*pair, number, self.config.decode)
        return sources, constraints

    def reader(self, first_line: int, warn: bool) -> InputReader:
        """Reads lines and pairs as token ids; warns of those that are cut."""
        return InputReader(self.vocabulary, self.members, first_line, warn, self.tag)

    def _translations(
        self, search: Search, lines: Sequence[str], request: SearchRequest
    ) -> list[Translation]:
        """Searches for the lines, `request.batch_size` at a time."""
        size = request.batch_size
        if size is not None and size < 1:
            raise UserError(f"batch_size={size}; want at least 1 line")
        decode = self.config.decode
        sources, constraints = self.encode(lines, request)
        nbest_lists: list[tuple[Hypothesis, ...]] = []
        # No lines are a batch, too, whose search is checked.
        for start in range(0, max(1, len(lines)), size or max(1, len(lines))):
            part = slice(start, start + (size or len(lines)))
            searched = sources[part], constraints[part], request.seed
            nbest_lists += self.decode(search, *searched)
        reader = self.reader(request.first_line, request.warn)
        _warn_if_unended(reader, sources, nbest_lists, decode)
        return [
            Translation(line, nbest, source.cut)
            for line, nbest, source in zip(lines, nbest_lists, sources, strict=True)
        ]


def _warn_if_unended(
    reader: InputReader,
    sources: Sequence[Source],
    results: Sequence[tuple[Hypothesis, ...]],
    decode: DecodeConfig,
) -> None:
    """Warns of lines without a translation, and of translations at their limit."""
    best = [hypotheses[0] for hypotheses in results]
    for cause in dict.fromkeys(filter(None, (h.failure for h in best))):
        rows = [row for row, h in enumerate(best) if h.failure == cause]
        several = f"lines have no translation: {cause}"
        reader.warn(rows, len(best), f": {cause}", several)
    unended = [row for row, h in enumerate(best) if not (h.ended or h.failure)]
    room = longest_output(len(sources[unended[0]].ids), decode) if unended else 0
    extra = f"extra_length={decode.extra_length}"
    hint = f"({extra}, in a command --{extra}; more allows longer ones)"
    reader.warn(
        unended,
        len(best),
        f": its output did not end within {room} tokens {hint}",
        f"outputs reached their longest length {hint}",
    )


def _search_parameters(member: Member) -> Parameters:
    """A member's parameters as searches multiply by them."""
    if member.weights != "float32":
        return member.parameters
    parameters = member.model.for_search(
        member.parameters, member.config.model, jax.default_backend()
    )
    return replicate(parameters, [*member.mesh.devices.flat])
