"""A language is the same one, however its code is written."""

import itertools
import re

import pytest

from t2t_jax import config
from t2t_jax.data.corpus import open_corpus
from t2t_jax.evaluation.provenance import PUBLISHED, ScoredText, compare_with
from t2t_jax.extensions.tasks.treebank import open_treebank
from t2t_jax.extensions.text.formats import Po
from t2t_jax.extensions.text.language_identification import Guesser
from t2t_jax.extensions.text.sentences import split
from t2t_jax.io.errors import UserError
from t2t_jax.metrics import plain
from t2t_jax.metrics.text_measures import tokenizer
from t2t_jax.tasks.table import task_of
from t2t_jax.text.languages import OTHER, distance, identify, nearest, pair_of
from t2t_jax.tools.bridges.vocabularies.huggingface import M2M100, NLLB, language_tokens
from t2t_jax.tools.plan.describe import beside_paper
from t2t_jax.tools.serve.service import Service
from t2t_jax.tools.serve.settings import Settings
from tests.serve.fake_engine import FakeEngine, FakeGuesser

# The first is the shortest; the scripts of matches are the same.
SPELLINGS = {
    "en": ("EN", "eng", "eng_Latn", "EN-GB", "en_US"),
    "de": ("DE", "ger", "deu", "deu_Latn", "de_DE", "de-AT", "de_DE.UTF-8"),
    "fr": ("fre", "fra", "fra_Latn", "fr-CA"),
    "zh": ("ZH", "chi", "zho", "cmn", "zho_Hans", "zh-Hans", "zh-CN"),
    "ja": ("JA", "jpn", "jpn_Jpan", "ja-JP"),
    "ko": ("kor", "kor_Hang", "kor_Kore", "ko-KR"),
}
SIDES = ["狗看见猫。", "Am 3. Mai kam M. X."], ["狗看见狗。", "Am 3. Mai ging M. Y."]
SENTENCES = "Am 3. Mai kam M. Dupont. Er ging. 好。是。"
PO = 'msgid ""\nmsgstr "Language: {}\\n"\n\nmsgid "A"\nmsgstr ""\n'
(NEWS,) = (each for each in PUBLISHED if {*each.first} == {"en", "fr"})
PRIVATE = "clean src tgt xx x_y 1 a-b-c de2 und deu_Lat"
SERVED = "en-de", "de-en", "eng_Latn-zho_Hans", "fr-zh_TW"


def published(source, target):
    first = [NEWS.first.get(identify(code).code, "") for code in (source, target)]
    return compare_with(ScoredText("x", source, target, 3_003, "", "", *first), 1)


def tag(source, target):
    data = config.DataConfig(train="en-de:a,de-zho_Hans:b", source="en", target="de")
    task = config.Config(data=data, task=config.TaskConfig(kind="text_to_text"))
    return task_of(task).tag(f"xx-{re.split('[.@]', target)[0].replace('-', '_')}")


def data(source, target):
    return config.DataConfig(source=source, target=target)


def served(source, target):
    service = Service(FakeEngine(*SERVED), Settings(), FakeGuesser())
    return [model.name for model in service.fitting(source, target)]


# All that reads a code of a language: functions of source and target.
READERS = {
    "scores": lambda s, t: plain.plain_scores(*SIDES, t),
    "words": lambda s, t: [*map(tokenizer(t), SIDES[0])],
    "left out": lambda s, t: plain.meaningless(t),
    "by words": lambda s, t: (plain.by_words(t) or [""])[0],
    "the paper's": lambda s, t: plain.paper_scores(*SIDES, t, s),
    "lower-cased": lambda s, t: plain.tokenized_scores(*SIDES, t),
    "sentences": lambda s, t: [*split(SENTENCES, t)],
    "PO": lambda s, t: [Po(PO.format(c), t) and c for c in SPELLINGS["de"]],
    "published": published,
    "built-in": lambda s, t: open_corpus("grammar:dev", s, t).fingerprint(),
    "trees": lambda s, t: open_treebank("grammar:trees/dev", t, str).fingerprint(),
    "plan": lambda s, t: beside_paper(config.Config(data=data(s, t))),
    "tag": tag,
    "NLLB": lambda s, t: language_tokens(NLLB.split(), "{}", t, s),
    "M2M100": lambda s, t: language_tokens(M2M100.split(), "{}", t, s),
    "served": served,
    "guess": lambda s, t: Guesser([t, "es"]).guess("好。 Das ist ja ein Haus.")[1:],
}


def result(reader, *pair):
    try:
        return READERS[reader](*pair)
    except UserError:
        return "refused"
    except Exception as e:
        if getattr(e, "status", 0) == 400:  # of the server
            return "refused"
        raise


@pytest.mark.parametrize("reader", READERS)
def test_all_spellings_of_a_language_are_read_alike(reader, monkeypatch):
    monkeypatch.setattr(plain, "LONGEST", 0)  # without the bootstrap
    for target, spellings in SPELLINGS.items():
        source = "fr" if target == "en" else "en"
        expected = result(reader, source, target)
        for spelled in spellings:
            assert result(reader, source, spelled) == expected, spelled
    expected = result(reader, "en", "de")
    for spelled in SPELLINGS["en"]:
        assert result(reader, spelled, "deu_Latn") == expected, spelled


@pytest.mark.parametrize("reader", READERS)
def test_private_codes_are_not_refused_nor_another_language(reader, monkeypatch):
    monkeypatch.setattr(plain, "LONGEST", 0)
    for code in PRIVATE.split():
        assert identify(code).code not in SPELLINGS
        result(reader, "en", code)
    assert identify("src") == ("src", "", "", "", "src")


def test_scripts_are_not_confused():
    assert result("served", "en", "zh-TW") == "refused"
    assert result("served", "fr", "zh-Hant") == ["fr-zh_TW"]
    assert nearest("zh-HK", ("zho_Hans", "zho_Hant")) == "zho_Hant"
    assert nearest("zh", ("zho_Hant", "zho_Hans")) == "zho_Hans"
    assert nearest("pt-BR", ("pt-PT", "pt", "es")) == "pt"
    assert nearest("sr@latin", ("sr_Cyrl", "sr_Latn")) == "sr_Latn"
    assert distance("sr_RS.UTF-8@latin", "sr_Latn_RS") == 0
    chinese = ("zh", "zho_Hant", "yue_Hant", "zh_Hani")
    scores = [plain.plain_scores(*SIDES, target) for target in chinese]
    assert all(score == scores[0] for score in scores)


@pytest.mark.parametrize(
    ("name", "pair"),
    [
        *[("en-de", ("en", "de")), ("pt-BR-en", ("pt-BR", "en"))],
        *[("en-pt-BR", ("en", "pt-BR")), ("zh-TW-de", ("zh-TW", "de"))],
        *[("zho_Hans-eng_Latn", ("zho_Hans", "eng_Latn")), ("my-model", None)],
        *[("src-tgt", None), ("en", None), ("", None)],
    ],
)
def test_a_direction_is_divided_between_its_languages(name, pair):
    assert pair_of(name) == pair


def test_distance_is_symmetric_and_zero_for_itself():
    codes = [*itertools.chain(*SPELLINGS.values()), "zho_Hant", "zh-TW", "src", "x_y"]
    for code, other_code in itertools.product(codes, codes):
        assert distance(code, other_code) == distance(other_code, code) <= OTHER
        assert distance(code, code) == 0
