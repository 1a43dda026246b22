"""Of a file of subtitles or messages, only what is translated changes."""

import re

import polib
import pytest
import srt
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_jax.extensions.text.formats import Po, SubRip
from t2t_jax.extensions.text.markup import parse
from t2t_jax.io.errors import UserError
from t2t_jax.text.units import Aligned, units

TIMES = "00:00:0{},000 --> 00:00:09,000"
CUES = f"""1
{TIMES.format(1)} X1:100
<i>Hello there, this is
a long cue.</i>

2
{TIMES.format(2)}
{{\\an8}}- Hi.
- <b>Ho</b> ho & <i>so</i>
on
4
00:00:07.000 --> 0:00:08,5
♪ ...
"""
MESSAGES = r"""# A file
msgid ""
msgstr ""
"Language: sl\n"
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=3; plural=(n==2 ? 0 : n==1 ? 1 : 2);\n"

#. note
#: a.c:1
#, c-format
msgctxt "menu"
msgid "Open \"%s\"\n"
msgstr ""

#: b.c
#| msgid "old"
msgid   "%d file"
msgid_plural "%d "
"files"
msgstr[0] ""
msgstr[1] "ena"
msgstr[2] ""

msgid "done"
msgstr ""
"kon"
"čano"

#~ msgid "gone"
#~ msgstr ""
"""


@pytest.mark.parametrize("start", ["", "\ufeff", "\n\n"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_subtitles_keep_numbers_times_and_line_ends(start, line_end):
    text = start + CUES.replace("\n", line_end)
    document = SubRip(text)
    joined_cue = "Hello there, this is a long cue."
    assert document.segments == [joined_cue, "Hi.", "<b>Ho</b> ho & <i>so</i> on"]
    assert document.assemble(document.segments) == text
    long_cue = "A translation of this cue that has one or two words more."
    expected = text.replace(
        f"Hello there, this is{line_end}a long cue.",
        f"A translation of this cue that{line_end}has one or two words more.",
    ).replace("Hi.", long_cue)
    assert document.assemble([long_cue, long_cue, *document.segments[2:]]) == expected


def test_tags_of_subtitles_are_for_the_parser_of_markup():
    document = SubRip(CUES, lambda text: parse(text, "html"))
    assert document.inline == [False, False, True]
    words = [units(segment) for segment in document.segments]
    identity = [Aligned(w, w, [(n, n) for n in range(len(w))]) for w in words]
    assert document.assemble(document.segments, identity) == CUES
    # SubRip has no entities: signs that HTML would escape stay as they are.
    new = document.assemble(["<&>", *document.segments[1:]], identity)
    assert new == CUES.replace("Hello there, this is\na long cue.", "<&>")
    cue = f"1\n{TIMES.format(1)}\n"
    assert SubRip(f"{cue}<i>- A.\n- B <b>c</b>.</i>").segments == ["A.", "B <b>c</b>."]
    assert SubRip(f"{cue}<i>-5 A</i> <b>B</b>").segments == ["<i>-5 A</i> <b>B</b>"]


@given(
    st.lists(st.from_regex(r"([ab <i/{}♪.日、]{1,9}[-b>]\n){0,3}", fullmatch=True)),
    st.text(st.sampled_from("ab 日、"), min_size=1, max_size=120),
)
@settings(max_examples=40)
def test_times_of_any_subtitles_stay_and_no_cue_grows(cues, new):
    cues = enumerate(re.sub(r"(?m)^ +$", "a", cue) for cue in cues[:9])
    text = "".join(f"{n}\n{TIMES.format(n)}\n{cue}\n\n" for n, cue in cues)
    document = SubRip(text)
    assert document.assemble(document.segments) == text
    out = document.assemble([new] * len(document.segments))
    for before, after in zip(srt.parse(text), srt.parse(out), strict=True):
        assert (before.start, before.index) == (after.start, after.index)
        assert after.content.count("\n") <= before.content.count("\n")


def test_a_broken_cue_is_an_error_with_its_line():
    for right, wrong, line in [
        ("02,", "x", 7),
        ("4\n", "4\n1:00:05 -> 1:00:06\n", 11),
        ("1\n0", "x\n0", 1),
    ]:
        with pytest.raises(UserError, match=f"line {line}: "):
            SubRip(CUES.replace(right, wrong, 1))


def test_only_missing_translations_of_messages_change():
    document = Po(MESSAGES, "sl")
    assert document.segments == ['Open "%s"', "%d files", "%d files"]
    new = MESSAGES.replace("#, c-format", "#, fuzzy, c-format")
    new = new.replace("#| msgid", "#, fuzzy\n#| msgid")
    new = new.replace('%s\\"\\n"\nmsgstr ""', '%s\\"\\n"\nmsgstr "Odpri \\"%s\\"\\n"')
    new = new.replace('msgstr[0] ""', 'msgstr[0] "a"')
    new = new.replace('msgstr[2] ""', 'msgstr[2] "b"')
    assert document.assemble(['Odpri "%s"', "a", "b"]) == new
    assert Po(new, "sl").segments == []
    assert Po(new).assemble([]) == new
    windows = [text.replace("\n", "\r\n") for text in (MESSAGES, new)]
    assert Po(windows[0]).assemble(['Odpri "%s"', "a", "b"]) == windows[1]
    lean = Po('\ufeffmsgid "a\u2028b"\nmsgstr ""')
    fuzzy = '\ufeff#, fuzzy\nmsgid "a\u2028b"\nmsgstr "b"\n'
    assert lean.assemble(["b"]) == fuzzy
    template = MESSAGES.replace("nplurals=3; plural=(n==2 ? 0 : n==1 ? 1 : 2)", "{}")
    for rule, form in [("1; plural=0", "%d files"), ("2; plural=(n != 1)", "%d file")]:
        assert Po(template.replace("{}", f"nplurals={rule}")).segments[1] == form


# Some signs end a line for Python and polib, but not for gettext.
TEXTS = st.text(st.characters(exclude_characters="\x1c\x1d\x1e\x85\u2028\u2029"))


@given(TEXTS, TEXTS)
@settings(max_examples=40)
def test_any_message_and_translation_are_read_back(source, new):
    text = str(polib.POEntry(msgid="x" + source)) + "\n" + MESSAGES
    document = Po(text)
    out = document.assemble([new] * len(document.segments))
    messages = {entry.msgid for entry in polib.pofile(text)}
    assert {entry.msgid for entry in polib.pofile(out)} == messages
    assert Po(out).segments == [] or not new.strip()


def test_a_broken_file_of_messages_is_an_error_with_its_line():
    for right, wrong, line in [
        ('"done"', '"done', 24),
        ('msgid "done"', 'msgstr "done"', 24),
        ("#. note", "note", 8),
    ]:
        with pytest.raises(UserError, match=f"line {line} "):
            Po(MESSAGES.replace(right, wrong))
    with pytest.raises(UserError, match="of sl, but the target is de"):
        Po(MESSAGES, "de")
