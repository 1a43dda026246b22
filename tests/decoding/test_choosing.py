"""Choices among hypotheses: their laws, with made-up models where none matters."""

import types

import numpy as np
import pytest
import sacrebleu

from t2t_jax import UserError
from t2t_jax.config import Config, changed
from t2t_jax.decoding import choosing
from t2t_jax.decoding.batch_decoding import EMPTY
from t2t_jax.decoding.choosing import parse_choice, ranked
from t2t_jax.decoding.results import Hypothesis, Translation
from t2t_jax.decoding.search_options import SearchRequest
from t2t_jax.decoding.searcher import Searcher
from tests.decoding.small_translator import TEXT, translator, vocabulary

WORDS = ["der", "Hund", "sieht", "die", "Katze", "ein", "Mann", "schläft", "nicht"]


def hypothesis(text, log_prob=-1.0):
    pieces = tuple(range(len(text.split()) + 1))
    return Hypothesis(text, log_prob / 2, log_prob, True, pieces)


def translations(lines, count, seed=0):
    """Made-up hypotheses of lines, best first; each a function of its line alone."""
    results = []
    for line in lines:
        rng = np.random.default_rng([seed, *line.encode()])
        texts = [" ".join(rng.choice(WORDS, rng.integers(1, 6))) for _ in range(count)]
        log_probs = sorted(rng.uniform(-9, -1, count), reverse=True)
        hypotheses = tuple(map(hypothesis, texts, log_probs))
        results.append(Translation(line, hypotheses if line else (EMPTY,)))
    return results


class MadeUp:
    """A translator without a model."""

    model = types.SimpleNamespace(has_source=True)
    config = Config()

    @property
    def vocabulary(self):
        return vocabulary()

    def search(self, lines, request):
        return translations(lines, request.nbest)

    def draw(self, lines, request, options):
        return translations(lines, request.samples, request.seed)


def made(text):
    name, options = parse_choice(text)
    config = changed(Config(), "decode", choose=name, options=options)
    return config.decode.variant("choose")(config)


def chosen(text, lines, nbest=1, must=(), **search):
    request = SearchRequest(nbest=nbest, search=search, must=must)
    return made(text).translate(MadeUp(), lines, request)


def test_of_equals_the_earlier_and_of_equal_texts_one():
    translation = Translation("line", tuple(map(hypothesis, ("a", "b", "a", "c"))))

    def ranks(scores, nbest):
        return [
            (h.text, h.score) for h in ranked(translation, scores, nbest).hypotheses
        ]

    expected = [("a", 3.0), ("b", 2.0), ("c", 2.0)]
    assert ranks([1.0, 2.0, 3.0, 2.0], 9) == expected
    assert ranks([1.0, 2.0, 3.0, 2.0], 2) == expected[:2]
    # Rounding decides nothing.
    assert ranked(translation, [0.3, 0.1 + 0.2, 0.0, 0.3 + 1e-13], 1).text == "a"


@pytest.mark.parametrize("text", ["mbr:samples=5", "rerank:length=0.7"])
def test_a_line_does_not_depend_on_its_neighbours(text):
    lines = ["one", "", "two", "three", "one"]
    together = chosen(text, lines, 3)
    assert [chosen(text, [line], 3)[0] for line in lines] == together
    assert together[0] == together[4]
    assert len(together[0].hypotheses) > 1


@pytest.mark.parametrize(
    ("candidates", "name"), [("samples", "chrf"), ("beam", "chrf"), ("beam", "bleu")]
)
def test_the_best_has_the_highest_expected_utility(candidates, name):
    scorers = {"chrf": sacrebleu.CHRF(), "bleu": sacrebleu.BLEU(effective_order=True)}
    lines = [f"line {n}" for n in range(6)]
    text = f"mbr:candidates={candidates},utility={name},samples=6,nbest=6"
    results = chosen(text, lines, 9)
    for line, previous in zip(results, translations(lines, 6), strict=True):
        weights = np.ones(6)
        if candidates == "beam":
            weights = np.exp([h.log_prob for h in previous.hypotheses])
        texts = [h.text for h in previous.hypotheses]
        utilities = [
            [
                scorers[name].sentence_score(text, [reference]).score
                for reference in texts
            ]
            for text in texts
        ]
        expected = utilities @ weights / sum(weights)
        assert line.text == texts[int(np.argmax(np.round(expected, 9)))]
        scores = [h.score for h in line.hypotheses]
        expected_values = [expected[texts.index(h.text)] for h in line.hypotheses]
        assert scores == pytest.approx(expected_values, abs=1e-9)


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


@pytest.mark.parametrize(("reverse", "lm", "length"), [(0.5, 3, 0), (-1, 2, 1.5)])
def test_the_sum_is_that_of_the_page(reverse, lm, length, monkeypatch):
    text = f"rerank:reverse_weight={reverse},lm_weight={lm},length={length}"
    choice, lines = with_models(text, monkeypatch), ["one", "and two words", "three"]
    results = choice.translate(MadeUp(), lines, SearchRequest(99, {"alpha": 0.8}))
    for line, previous in zip(results, translations(lines, 12), strict=True):
        ids = vocabulary().encode([previous.source], end=True)[0]
        penalty, total = ((5 + len(ids)) / 6) ** 0.8, {}
        for h in previous.hypotheses:
            terms = -reverse * (len(h.text) + len(previous.source))
            terms += -lm * h.text.count("H") + length * len(h.tokens)
            total[h.text] = max(h.score + terms / penalty, total.get(h.text, -np.inf))
        assert {h.text: h.score for h in line.hypotheses} == pytest.approx(total)
        assert line.score == pytest.approx(max(total.values()))


def test_models_of_another_kind_are_refused(monkeypatch):
    model = types.SimpleNamespace(config=Config())
    monkeypatch.setattr(Searcher, "load", lambda place: model)
    with pytest.raises(UserError, match="want the opposite direction"):
        made("rerank:reverse=there")
    with pytest.raises(UserError, match="want a model of the task 'language_model'"):
        made("rerank:lm=there")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("mbr:32", {}, "'32' is not OPTION=VALUE"),
        ("mbr:sampels=3", {}, "no option 'sampels'.*samples"),
        ("mbr:utility=blue", {}, "utility='blue'.*bleu"),
        ("rerank", {}, "nothing to rank by"),
        ("mbr", {"beam": 4, "must": "y"}, "beam, must: an option of beam search"),
        ("rerank:length=1", {"beam": 4}, "beam=4, but the choice is among nbest=12"),
    ],
)
def test_mistakes_are_named(text, options, message):
    with pytest.raises(UserError, match=message):
        chosen(text, ["x"], **options)


def test_a_translator_chooses_and_says_so():
    plain, lines = translator(), [TEXT[0], "", TEXT[1]]
    file_text = plain.with_choice("mbr:samples=4", seed=5, epsilon=0.05)
    results = file_text.translate(lines, nbest=9, warn=False)
    drawn = plain.sample(lines, samples=4, seed=5, epsilon=0.05, warn=False)
    for translation, samples in zip(results, drawn, strict=True):
        assert {h.text for h in translation.hypotheses} == {
            h.text for h in samples.hypotheses
        }
    # What translations depend on; without a choice, what was stored before there was.
    expected = {"name": "mbr", "candidates": "samples", "utility": "chrf"}
    expected |= {"samples": 4, "seed": 5, "epsilon": 0.05}
    described = file_text.provenance()["decode"]
    assert described == plain.decode_options() | {"choose": expected}
    assert file_text.with_choice("probability").provenance() == plain.provenance()
    assert "choose" not in plain.decode_options()


def test_models_that_re_rank_are_known_by_their_parameters(monkeypatch):
    choice = with_models("rerank:length=0.5", monkeypatch)
    choice.models = {"reverse": translator(1)}
    results = choice.provenance()
    expected = translator(1).members[0].parameters_sha256()
    assert results["reverse"]["parameters_sha256"] == [expected]
    assert (results["length"], results["nbest"]) == (0.5, 12)
