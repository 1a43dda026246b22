"""Choices among hypotheses: their laws, with made-up models where none matters."""

import types

import numpy as np
import pytest
import sacrebleu

from t2t_jax import UserError
from t2t_jax.config import Config, changed
from t2t_jax.decoding import choosing
from t2t_jax.decoding.batch_decoding import EMPTY, NOTHING
from t2t_jax.decoding.choosing import parse_choice, ranked
from t2t_jax.decoding.results import Hypothesis, Translation
from t2t_jax.decoding.searcher import Request, Searcher
from t2t_jax.evaluation import dev_answers
from t2t_jax.run.train import _check_model
from t2t_jax.tasks.table import task_of
from tests.decoding.small_translator import TEXT, translator, vocabulary

WORDS = ["der", "Hund", "sieht", "die", "Katze", "ein", "Mann", "schläft", "nicht"]


def hypothesis(text, log_prob=-1.0):
    pieces = tuple(range(len(text.split()) + 1))
    return Hypothesis(text, log_prob / 2, log_prob, True, pieces)


def translations(lines, count, seed=0):
    """Made-up hypotheses of lines, best first; each a function of its line alone."""
    found = []
    for line in lines:
        rng = np.random.default_rng([seed, *line.encode()])
        texts = [" ".join(rng.choice(WORDS, rng.integers(1, 6))) for _ in range(count)]
        log_probs = sorted(rng.uniform(-9, -1, count), reverse=True)
        hypotheses = tuple(map(hypothesis, texts, log_probs))
        found.append(Translation(line, hypotheses if line else (EMPTY,)))
    return found


class MadeUp:
    """A translator without a model, which records what it was asked for."""

    model = types.SimpleNamespace(has_source=True)
    config = Config()

    def __init__(self):
        self.vocabulary, self.asked = vocabulary(), {}

    def search(self, lines, request):
        self.asked = {**request.search, "nbest": request.nbest, "must": request.must}
        return translations(lines, request.nbest)

    def sample(self, lines, samples, seed, **search):
        self.asked = search | {"samples": samples, "seed": seed}
        return translations(lines, samples, seed)


def made(text):
    name, options = parse_choice(text)
    config = changed(Config(), "decode", choose=name, options=options)
    return config.decode.variant("choose")(config)


def chosen(text, lines, nbest=1, must=(), **search):
    translator = MadeUp()
    request = Request(nbest=nbest, search=search, must=must)
    return made(text).translate(translator, lines, request), translator.asked


def test_of_equals_the_earlier_and_of_equal_texts_one():
    of = Translation("line", tuple(map(hypothesis, ("a", "b", "a", "c"))))

    def ranks(scores, nbest):
        return [(h.text, h.score) for h in ranked(of, scores, nbest).hypotheses]

    wanted = [("a", 3.0), ("b", 2.0), ("c", 2.0)]
    assert ranks([1.0, 2.0, 3.0, 2.0], 9) == wanted
    assert ranks([1.0, 2.0, 3.0, 2.0], 2) == wanted[:2]
    # Rounding decides nothing.
    assert ranked(of, [0.3, 0.1 + 0.2, 0.0, 0.3 + 1e-13], 1).text == "a"
    assert ranked(of, [0.3, 0.3 + 1e-6, 0.0, 0.0], 1).text == "b"


@pytest.mark.parametrize("single", [EMPTY, NOTHING])
@pytest.mark.parametrize("text", ["mbr", "mbr:candidates=beam", "rerank:length=1"])
def test_where_there_is_nothing_to_choose_from_nothing_changes(text, single):
    translator, line = MadeUp(), Translation("x", (single,))
    translator.search = translator.sample = lambda lines, *_, **__: [line]
    assert made(text).translate(translator, ["x"], Request()) == [line]


@pytest.mark.parametrize(
    "text", ["mbr:samples=5", "mbr:candidates=beam,utility=bleu", "rerank:length=0.7"]
)
def test_a_line_does_not_depend_on_its_neighbours(text):
    lines = ["one", "", "two", "three", "one"]
    together = chosen(text, lines, 3)[0]
    assert [chosen(text, [line], 3)[0][0] for line in lines] == together
    assert together[0] == together[4]
    assert len(together[0].hypotheses) > 1


@pytest.mark.parametrize("name", ["chrf", "bleu"])
@pytest.mark.parametrize("candidates", ["samples", "beam"])
def test_the_best_has_the_highest_expected_utility(name, candidates):
    scorers = {"chrf": sacrebleu.CHRF(), "bleu": sacrebleu.BLEU(effective_order=True)}
    lines = [f"line {n}" for n in range(6)]
    text = f"mbr:candidates={candidates},utility={name},samples=6,nbest=6"
    found, _ = chosen(text, lines, 9)
    for of_line, before in zip(found, translations(lines, 6), strict=True):
        weights = np.ones(6)
        if candidates == "beam":
            weights = np.exp([h.log_prob for h in before.hypotheses])
        texts = [h.text for h in before.hypotheses]
        utilities = [
            [scorers[name].sentence_score(text, [other]).score for other in texts]
            for text in texts
        ]
        expected = utilities @ weights / sum(weights)
        assert of_line.text == texts[int(np.argmax(np.round(expected, 9)))]
        scores = [h.score for h in of_line.hypotheses]
        wanted = [expected[texts.index(h.text)] for h in of_line.hypotheses]
        assert scores == pytest.approx(wanted, abs=1e-9)
        assert scores == sorted(scores, reverse=True)


def test_a_text_that_was_drawn_twice_counts_twice():
    found = choosing.expected_utilities(
        ["a", "b", "b"], np.full(3, 1 / 3), choosing.UTILITIES["chrf"]
    )
    assert found == pytest.approx([100 / 3, 200 / 3, 200 / 3])
    assert found[1] == found[2]


def test_candidates_are_drawn_or_searched_for_as_the_options_say():
    _, asked = chosen("mbr:samples=7,epsilon=0.1,seed=3", ["x"], alpha=0.3)
    assert (asked["samples"], asked["epsilon"], asked["seed"]) == (7, 0.1, 3)
    assert asked["alpha"] == 0.3
    assert not {"beam", "stop", "must"} & {*asked}
    _, asked = chosen("mbr:candidates=beam,nbest=7", ["x"], must=["y"], stop="first")
    assert (asked["nbest"], asked["beam"]) == (7, 7)
    assert (asked["must"], asked["stop"]) == (["y"], "first")
    assert chosen("mbr:candidates=beam,nbest=2", ["x"])[1]["beam"] == 4  # the config's
    assert chosen("rerank:length=1", ["x"], beam=20)[1]["beam"] == 20


def with_models(text, monkeypatch):
    """A re-ranking whose models say how much they like a text by its letters."""

    def reverse(pairs, warn):
        scores = [-float(len(h) + len(source)) for h, source in pairs]
        return [types.SimpleNamespace(log_prob=score) for score in scores]

    def language(_, texts):
        return [-float(text.count("H")) for text in texts]

    monkeypatch.setattr(choosing.Reranking, "_language", language)
    monkeypatch.setattr(choosing, "_places", lambda options: {})
    choice = made(text)
    choice.models["reverse"] = types.SimpleNamespace(score=reverse)
    return choice


@pytest.mark.parametrize(
    ("reverse", "lm", "length"), [(0, 0, 0), (0.5, 3, 0), (-1, 2, 1.5)]
)
def test_the_sum_is_that_of_the_page(reverse, lm, length, monkeypatch):
    text = f"rerank:reverse_weight={reverse},lm_weight={lm},length={length}"
    choice, lines = with_models(text, monkeypatch), ["one", "and two words", "three"]
    found = choice.translate(MadeUp(), lines, Request(99, {"alpha": 0.8}))
    for of_line, before in zip(found, translations(lines, 12), strict=True):
        ids = vocabulary().encode([before.source], end=True)[0]
        penalty, total = ((5 + len(ids)) / 6) ** 0.8, {}
        for h in before.hypotheses:
            others = -reverse * (len(h.text) + len(before.source))
            others += -lm * h.text.count("H") + length * len(h.tokens)
            total[h.text] = max(h.score + others / penalty, total.get(h.text, -np.inf))
        assert {h.text: h.score for h in of_line.hypotheses} == pytest.approx(total)
        assert of_line.score == pytest.approx(max(total.values()))


def config_of(kind="translation", source="de", target="en"):
    config = changed(Config(), "task", kind=kind)
    return changed(config, "data", source=source, target=target)


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("reverse", config_of(source="en", target="de"), "want the opposite direction"),
        ("reverse", config_of("parsing"), "'parsing'; want a model of the task 'trans"),
        ("lm", config_of(), "'translation'; want a model of the task 'language_model'"),
        ("reverse", config_of(), None),
        ("lm", config_of("language_model"), None),
    ],
)
def test_models_of_another_kind_are_refused(name, config, message, monkeypatch):
    model = types.SimpleNamespace(config=config)
    monkeypatch.setattr(Searcher, "load", lambda place: model)
    workdir = types.SimpleNamespace(config=lambda: config)
    monkeypatch.setattr(choosing.Workdir, "open", lambda place: workdir)
    text = f"rerank:{name}=there"
    if message is None:
        assert made(text).models == {name: model}
        assert made(f"{text},{name}_weight=0").models == {}
        return
    with pytest.raises(UserError, match=message):
        made(text)
    ours = changed(Config(), "decode", choose="rerank", options={name: "there"})
    with pytest.raises(UserError, match=f"{name}=there .*{message}"):
        ours.decode.variant("choose").check(ours)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("mbrr", {}, "--choose='mbrr'.*mbr"),
        ("mbr:32", {}, "'32' is not OPTION=VALUE"),
        ("mbr:sampels=3", {}, "no option 'sampels'.*samples"),
        ("mbr:samples=many", {}, "samples='many'; want int, such as 32"),
        ("mbr:samples=3,samples=4", {}, "given twice"),
        ("mbr:samples=1", {}, "samples=1 is too small"),
        ("mbr:utility=blue", {}, "utility='blue'.*bleu"),
        ("mbr:epsilon=1", {}, "epsilon=1.0 is too large"),
        ("probability:samples=3", {}, "probability has no options"),
        ("rerank", {}, "nothing to rank by"),
        ("rerank:lm_weight=nan,lm=x", {}, "want a finite number"),
        ("mbr", {"beam": 4, "must": "y"}, "beam, must: an option of beam search"),
        ("rerank:length=1", {"beam": 4}, "beam=4, but the choice is among nbest=12"),
        ("mbr", {"nbest": 0}, "nbest=0"),
    ],
)
def test_mistakes_are_named(text, options, message):
    with pytest.raises(UserError, match=message):
        chosen(text, ["x"], **options)


def test_a_model_without_a_source_has_no_choice():
    language_model = MadeUp()
    language_model.model = types.SimpleNamespace(has_source=False)
    with pytest.raises(UserError, match="has no source"):
        made("mbr").translate(language_model, ["x"], Request())


@pytest.mark.usefixtures("quick_compiler")
def test_a_translator_chooses_and_says_so():
    plain, lines = translator(), [TEXT[0], "", TEXT[1]]
    ours = plain.with_choice("mbr:samples=4", seed=5, epsilon=0.05)
    found = ours.translate(lines, nbest=9, warn=False)
    drawn = plain.sample(lines, samples=4, seed=5, epsilon=0.05, warn=False)
    for each, samples in zip(found, drawn, strict=True):
        assert {h.text for h in each.hypotheses} == {h.text for h in samples.hypotheses}
    # What translations depend on; without a choice, what was stored before there was.
    wanted = {"name": "mbr", "candidates": "samples", "utility": "chrf"}
    wanted |= {"samples": 4, "seed": 5, "epsilon": 0.05}
    described = ours.provenance()["decode"]
    assert described == plain.decode_options() | {"choose": wanted}
    assert ours.with_choice("probability").provenance() == plain.provenance()
    assert "choose" not in plain.decode_options()


def test_models_that_re_rank_are_known_by_their_parameters(monkeypatch):
    choice = with_models("rerank:length=0.5", monkeypatch)
    window = {"window": 64, "stride": 32}
    task = types.SimpleNamespace(answer_options=lambda: window)
    monkeypatch.setattr(choosing.Reranking, "_language_task", lambda _: task)
    models = {"reverse": translator(1), "lm": translator(2)}
    choice.models = models
    found = choice.provenance()
    for name, model in models.items():
        assert found[name]["parameters_sha256"] == model.members[0].parameters_sha256()
        assert found[name]["checkpoints"] == [7]
    assert found["reverse"] != found["lm"]
    assert window.items() <= found.items()
    assert (found["length"], found["nbest"]) == (0.5, 12)


def test_evaluations_during_training_do_not_choose(monkeypatch):
    made_with = []

    def make(config, *_):
        made_with.append(config.decode)
        return MadeUp()

    monkeypatch.setattr(dev_answers, "Translator", make)
    task = types.SimpleNamespace(
        dev_sets=lambda corpora, most: {"dev": (task, [("a", "b")])},
        answers=lambda translator, pairs, warn: ["c"],
        quick_scores=lambda answers, pairs: {"bleu": 1.0},
        joined_scores=lambda scores: scores["dev"],
        example=lambda answer, pair: [],
    )
    config = changed(Config(), "decode", choose="mbr", options={"samples": 8}, beam=7)
    answers = dev_answers.DevAnswers(task, config, None, None, ["corpus"])
    assert answers({}, 3) == {"bleu": 1.0}
    wanted = changed(Config(), "decode", beam=7).decode
    assert made_with == [wanted]


def test_a_run_whose_answers_are_not_searched_for_refuses_a_choice():
    config = changed(Config(), "task", kind="language_model")
    config = changed(config, "model", kind="decoder_only", layers=1, width=16, heads=2)
    config = changed(config, "decode", choose="mbr")
    with pytest.raises(UserError, match="'mbr' chooses among hypotheses of a search"):
        _check_model(task_of(config), config)
