"""What must survive a translation: markup, placeholders, terms, sentences."""

import dataclasses
import html
import re

import polib
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from t2t_jax.decoding.results import Hypothesis, Translation
from t2t_jax.extensions.decoding import preserving
from t2t_jax.extensions.text import placeholders
from t2t_jax.extensions.text.formats import LineDocument
from t2t_jax.extensions.text.markup import parse
from t2t_jax.extensions.text.terms import Terms
from t2t_jax.io.errors import UserError
from t2t_jax.text.units import SYMBOLS
from tests.decoding.small_translator import translator

PLAIN = ["the cat", "", "  a dog  sees\tthe cat ", " ", "the dog, the cat!"]
EACH = {"markup": "html"}, {"markup": "xml"}, {"split": "sentences"}
EACH += ({"placeholders": True}, {"term_mode": "hard"}, {"term_mode": "soft"})


def terms(tmp_path, *rows):
    (file := tmp_path / "terms.tsv").write_text("".join(f"{row}\n" for row in rows))
    return Terms(str(file))


@pytest.mark.parametrize("options", EACH, ids=str)
def test_a_text_with_nothing_to_preserve_is_searched_as_it_is(tiny, options, tmp_path):
    if "term_mode" in options:
        options = options | {"terms": terms(tmp_path, "horse\tPferd")}
    # White space around a sentence is not searched, and stays.
    lines = [line_results.strip() for line_results in PLAIN]
    results = tiny.translate(lines, nbest=3, **options)
    expected = tiny.translate(lines, nbest=3)
    assert results == expected


AROUND = st.text(" \t\u00a0\u3000\u2009\ufeff\r\n", max_size=3)
FORMATS = {}, {"format": "po"}, {"format": "po", "markup": "html"}


@pytest.mark.parametrize("options", [*EACH[:4], *FORMATS], ids=str)
@settings(max_examples=40)
@example("", "\u00a0", "")  # a text that is blank
@given(AROUND, AROUND, st.sampled_from(["", "The dog", "1 < 2 é"]))
def test_what_is_around_a_text_is_not_searched_and_stays(options, before, after, word):
    if "markup" in options or "format" in options:  # a mark is for the begin of lines
        before, after = before.replace("\ufeff", ""), after.replace("\ufeff", "")
    text = f"{before}{word}{after}"
    complete = text
    if "format" in options:
        complete = str(polib.POEntry(msgid=text or "x")) + "\n"
    elif options.get("markup"):
        complete = f"<p>{html.escape(before + word)}{after}</p>"
    support = preserving.ModelSupport((), False, "en", "de", lambda line: True)
    options = preserving.PreservingOptions(**options)
    prepared = preserving.PreparedText(complete, 1, options, support)
    assert not any(prepared.prepare())
    assert all(part.line in ("", word, "x") for part in prepared.parts)
    for part in prepared.parts:
        hypothesis = Hypothesis("y & z" if part.line else "", 0.0, 0.0, ended=True)
        part.translation = Translation(part.line, (hypothesis,))
    results = prepared.finished(iter(()), preserving.Report()).text
    expected = f"{before}y & z{after}" if word else text
    if options.format == "po":
        (entry,) = polib.pofile(results)
        assert entry.msgstr == (expected if word else "y & z" * (not text))
        assert ("fuzzy" in entry.flags) == bool(word or not text)
    elif options.markup:
        assert html.unescape(results) == f"<p>{expected}</p>"
    else:
        assert results == expected


def tags(text):
    return re.findall("<[^>]*>", text)


def test_tags_stay_once_around_a_translation_that_they_do_not_change():
    tiny, options = translator(3), {"nbest": 3, "beam": 3}
    plain = "the cat sees the dog, a dog sleeps"
    for line in (
        "<b>the cat</b> sees <i>the <u>dog</u>,</i> a <br>dog sleeps",
        "<p>the cat sees <x id='1'></x>the dog, a dog sleeps</p>",
        "the cat <a href='a&amp;b'>sees the</a> dog, a dog sleeps<!-- the cat -->",
    ):
        report = preserving.Report()
        (results,) = tiny.translate([line], markup="html", report=report, **options)
        (expected,) = tiny.translate([plain], **options)
        assert sum(report.markup.values()) >= 1
        for hypothesis, plain_hypothesis in zip(
            results.hypotheses, expected.hypotheses, strict=True
        ):
            assert sorted(tags(hypothesis.text)) == sorted(tags(line))
            text = html.unescape(re.sub("<[^>]*>", "", hypothesis.text))
            assert text.split() == plain_hypothesis.text.split()
            assert hypothesis.log_prob == plain_hypothesis.log_prob


def test_placeholders_come_back_once_or_their_line_is_named(tiny, caplog):
    lines = ["the cat %s", "a dog", "{0} the %d dog", "a {}" * 9]
    report = preserving.Report()
    results = tiny.translate(lines, placeholders=True, report=report)
    for number, (line, line_results) in enumerate(zip(lines, results, strict=True), 1):
        remaining = [
            [text[p.begin : p.end] for p in placeholders.find(text)]
            for text in (line, line_results.text)
        ]
        assert sorted(remaining[0]) == sorted(remaining[1]) or number in report.lost
    assert 1 not in report.lost  # one is easy to demand
    assert report.placeholders["asked"] == 12
    assert report.placeholders["searched again"] >= 2
    named = [r.getMessage() for r in caplog.records if "placeholder" in r.getMessage()]
    assert bool(named) == bool(report.lost)


def test_a_model_with_symbols_reads_them_in_place_of_placeholders(tiny, monkeypatch):
    model = tiny.preserving_support
    assert (model.symbols, model.shows_terms) == ((), False)
    model_with_marks = model._replace(symbols=SYMBOLS, shows_terms=True)
    monkeypatch.setattr(type(tiny), "preserving_support", model_with_marks)
    searched = []
    original = type(tiny.choice).translate

    def recording(choice, searcher, lines, request):
        searched.append((list(lines), request.must))
        return original(choice, searcher, lines, request)

    monkeypatch.setattr(type(tiny.choice), "translate", recording)
    (results,) = tiny.translate(["the %s dog {x}"], placeholders=True)
    assert searched[0] == (["the <ph1> dog <ph2>"], ())
    assert searched[1][1] == [("<ph1>", "<ph2>")]
    assert "<ph" not in results.text


def test_options_of_each_line_stay_those_of_their_lines(tiny):
    lines = ["a dog", "the %s cat", "{x} a dog"]
    prefix, must = ["ein", "die", None], [["Hund"], [], ["Katze"]]
    options = {"prefix": prefix, "must": must, "must_not": [[], ["ein"], []]}
    results = tiny.translate(lines, placeholders=True, warn=False, **options)
    for line_results, begin, expected in zip(results, prefix, must, strict=True):
        assert line_results.text.startswith(begin or "")
        assert all(phrase in line_results.text for phrase in expected)
    assert results[0] == tiny.translate(lines, warn=False, **options)[0]


def test_a_placeholder_that_cannot_be_demanded_is_reported(tiny):
    report = preserving.Report()
    lines = ["a %s dog", "a {foo} cat"]
    options = {"must_not": "{foo}", "report": report, "warn": False}
    results = tiny.translate(lines, placeholders=True, **options)
    assert ("%s" in results[0].text, "{foo}" in results[1].text) == (True, False)
    assert report.lost == [2]


def test_ranks_of_a_text_of_several_lines_keep_their_order(tiny):
    (results,) = tiny.translate(["the cat\na dog"], format="whole", nbest=3)
    line_results = [tiny.translate([line], nbest=3)[0] for line in ("the cat", "a dog")]
    texts = [
        "\n".join(map(str, rank))
        for rank in zip(
            line_results[0].hypotheses, line_results[1].hypotheses, strict=True
        )
    ]
    assert [h.text for h in results.hypotheses] == [*dict.fromkeys(texts)]
    options = preserving.PreservingOptions(format="whole")
    ranked = preserving.PreparedText("a\nb", 1, options, tiny.preserving_support)
    assert [*ranked.prepare()] == [None, None]
    for part, translation in zip(ranked.parts, line_results, strict=True):
        twice = tuple(h for h in translation.hypotheses for _ in (0, 1))
        part.translation = dataclasses.replace(translation, hypotheses=twice)
    deduplicated = ranked.finished(iter(()), preserving.Report())
    assert deduplicated.hypotheses == results.hypotheses  # a text comes once


def test_a_text_without_tags_is_written_as_markup_all_the_same():
    document = parse(" Tom  Cat", "xml")
    assert document.segments == [" Tom  Cat"]
    assert document.assemble(["A & B < C"], [None]) == "A &amp; B &lt; C"
    assert document.assemble(document.segments, [None]) == " Tom  Cat"


def test_white_space_between_the_lines_of_a_text_stays():
    complete = LineDocument("\ufeffa\r\n\r\n\tb c ")
    assert complete.segments == ["a", "b c"]
    assert complete.assemble(["A", "B"]) == "\ufeffA\r\n\r\n\tB "
    assert LineDocument(" a  b ").segments == [" a  b "]


@pytest.mark.parametrize("kind", ["bytenet", "decoder_only"])
def test_a_model_without_attention_keeps_placeholders_and_refuses_markup(kind):
    options = {"bytenet": {"positions": "sinusoid"}, "decoder_only": {}}[kind]
    tiny = translator(1, kind=kind, **options)
    assert len(tiny.translate(["the cat", "a dog"], placeholders=True, warn=False)) == 2
    with pytest.raises(UserError, match="no attention to the source"):
        tiny.translate(["<b>a</b> dog"], markup="html")


def test_terms_are_shown_or_demanded_or_counted(tiny, tmp_path):
    glossary = terms(tmp_path, "dog\tHund", "the cat\tdie Katze")
    report = preserving.Report()
    ask = {"terms": glossary, "report": report}
    (hard,) = tiny.translate(["the cat sees"], term_mode="hard", **ask)
    assert "die Katze" in hard.text
    assert report.terms["the cat", "die Katze"]["exact"] == 1
    (checked,) = tiny.translate(["the cat sees"], term_mode="check", **ask)
    assert checked == tiny.translate(["the cat sees"])[0]
    assert hard == tiny.translate(["the cat sees"], **ask)[0]  # has no marks
    options = preserving.PreservingOptions(terms=glossary, term_mode="soft")
    text = preserving.PreparedText("a dog", 1, options, tiny.preserving_support)
    next(text.prepare())
    assert [part.line for part in text.parts] == ["a<term> dog<is> Hund</term>"]


def test_sentences_are_searched_by_themselves_and_joined_as_they_were(tiny):
    text = "the cat sees.  the dog sleeps!\n\n a dog.\r\n"
    (results,) = tiny.translate([text], split="sentences")
    parts = [t.text for t in tiny.translate(["the cat sees.", "the dog sleeps!"])]
    assert results.text.startswith(f"{parts[0]}  {parts[1]}\n\n ")
    assert results.text.endswith("\r\n")
    long_text = "the cat sees the dog " * 20
    assert tiny.translate([long_text], warn=False)[0].cut
    assert not tiny.translate([long_text], split="sentences")[0].cut


def test_files_keep_all_but_their_texts(tiny):
    cues = "1\n00:00:01,000 --> 00:00:02,000\n<i>the cat</i>\n\n"
    (results,) = tiny.translate([cues], format="srt", markup="html")
    assert results.text.startswith(cues[:32])
    assert tags(results.text) == ["<i>", "</i>"]
    messages = 'msgid "the cat"\nmsgstr ""\n\nmsgid "a dog"\nmsgstr "ein Hund"\n'
    (results,) = tiny.translate([messages], format="po")
    assert results.text.endswith('msgid "a dog"\nmsgstr "ein Hund"\n')
    assert tiny.translate(["the cat"])[0].text in results.text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"markup": "htm"}, "html"),
        ({"split": "words"}, "sentences"),
        ({"term_mode": "soft"}, "needs terms"),
        ({"ignored": ["x"]}, "needs markup=html or xml"),
        ({"markup": "html", "must": "x"}, "leave them out"),
        ({"markup": "html", "must_not": [["x"], []]}, "phrases for all lines"),
        ({"terms": "missing.tsv"}, "missing.tsv"),
    ],
    ids=str,
)
def test_what_does_not_go_is_refused(tiny, options, said):
    with pytest.raises(UserError, match=said):
        tiny.translate(["<p>a</p><p>b</p>", "c"], **options)
