"""Texts of several lines, subtitles (SubRip) and messages (PO).

All but the segments stays as it is.
"""

import html
import re
from collections import Counter
from collections.abc import Callable, Sequence
from gettext import c2py
from itertools import islice, pairwise
from typing import Any

from t2t_jax.extensions.text.sentences import HAN, cut, library, packed
from t2t_jax.io.errors import UserError
from t2t_jax.text.languages import same_language
from t2t_jax.text.units import Aligned, Span, splice

_BREAK_IN_HAN = rf"(?<=[{HAN}])\s*[\r\n]\s*(?=[{HAN}])"
LINE = 42  # characters of a line, the most that guides to subtitling allow
_SIGN = r"\s|♪|[-–—](?!\d)|\{\\[^}]*\}"  # such as {\an8}
_SPEAKER = re.compile(rf"(?m)^(?:<[^>]*>|{_SIGN})*?[-–—](?!\d)")
# What is between tags and signs; if only one tag of a pair is there, only signs.
_CORES = [rf"(?s)(?:{ends})*+(.*?)(?:{ends})*" for ends in (rf"<[^>]*>|{_SIGN}", _SIGN)]
# What a line may not be broken in: tags and signs stay with their word.
_WORD = re.compile(rf"(?:<[^>]*>|[^\s{HAN}])+|[{HAN}][、。，．！？」』）ー]*")

_STRINGS = r'(?:[ \t]*"(?:[^"\\\n]|\\.)*"[ \t\r]*(?:\n|\Z))+'
_FORM = re.compile(rf"msgstr(?:\[(\d+)\])?({_STRINGS})")
_ENTRY = re.compile(
    rf"(?m)^(\ufeff?(?:#(?!~).*\n)*)((?:msgctxt{_STRINGS})?msgid({_STRINGS})"
    rf"(?:msgid_plural({_STRINGS}))?)((?:{_FORM.pattern})+)"
)
_OTHER_LINE_ENDS = dict.fromkeys(map(ord, "\v\f\x1c\x1d\x1e\x85\u2028\u2029"), " ")


class LineDocument:
    """A document whose segments are spans of a text, by default its lines.

    These are without the white space around them; but one line is a segment as it is.

    Args:
      spans: of the text, in order.
      sources: what stands for each; by default its text in one line.
      inner: makes a document of a source, such as a parser of tags.

    Attributes:
      segments, inline, escapes, report: as in `Document` of
        `extensions/decoding/preserving.py`.
    """

    escapes = False

    def __init__(
        self,
        text: str,
        spans: Sequence[Span] | None = None,
        sources: Sequence[str] | None = None,
        inner: Callable[[str], Any] | None = None,
    ):
        if spans is None:
            several = re.search(r"[\r\n]", text)
            whole_text = 0, len(text)
            spans = cut(text, whole_text, r"[\r\n]+") if several else [whole_text]
            sources = [text[begin:end] for begin, end in spans]
        elif sources is None:
            joined = (re.sub(_BREAK_IN_HAN, "", text[b:e]) for b, e in spans)
            sources = [" ".join(source.split()) for source in joined]
        self.text, self.spans, self.sources = text, spans, sources
        self.segments, self.inline = sources, [False] * len(sources)
        self._documents = [*map(inner, sources)] if inner else []
        if inner:
            self.segments = [
                s for document in self._documents for s in document.segments
            ]
            self.inline = [i for document in self._documents for i in document.inline]

    def assemble(
        self, translations: Sequence[str], aligned: Sequence[Aligned | None] = ()
    ) -> str:
        """Returns the text with translations in place of the segments."""
        if len(translations) != len(self.segments):
            raise ValueError(f"got {len(translations)}; want {len(self.segments)}")
        remaining, links, assembled = iter(translations), iter(aligned), []
        for n, document in enumerate(self._documents):
            size = len(document.segments)
            new = document.assemble([*islice(remaining, size)], [*islice(links, size)])
            # These formats write signs as they are, unless there are entities.
            if document.escapes and not re.search(r"&#?\w+;", self.sources[n]):
                new = html.unescape(new)
            assembled.append(new)
        written = []
        translations = assembled if self._documents else translations
        rows = zip(self.spans, self.sources, translations, strict=True)
        for (begin, end), source, new in rows:
            old = self.text[begin:end]
            written.append(old if new == source else self.written(old, new))
        return splice(self.text, self.spans, written)[0]

    @property
    def report(self) -> Counter[str]:
        """The sum of the reports of the inner documents."""
        return sum((document.report for document in self._documents), Counter())

    def written(self, old: str, new: str) -> str:
        """Returns what replaces the text `old` of a span for a translation."""
        del old
        return new


class SubRip(LineDocument):
    """A document of the cues of a SubRip file; of a dialogue, of what each one says.

    A translation has as many lines as its cue or fewer. `inner` makes the document of a
    cue's text, such as a parser of its tags. Raises UserError at a broken cue.
    """

    def __init__(self, text: str, inner: Callable[[str], Any] | None = None):
        srt = library("srt", "--format=srt")
        spans, wrong = [], []
        try:
            list(srt.parse(text))
        except srt.SRTParseError as error:
            wrong.append(error.expected_start)
        # The library would rewrite times and line ends; its pattern gives the places.
        for cue in srt.SRT_REGEX.finditer(text):
            begin, end = cue.span(5)
            # A cue whose time cannot be read is taken for text of the cue before.
            if bad := re.search(r"-->|\d:\d\d:\d\d.*\d:\d\d:\d\d", cue[5]):
                wrong.append(begin + bad.start())
            speakers = [match.start() for match in _SPEAKER.finditer(text, begin, end)]
            starts = speakers[1:] if speakers[:1] == [begin] else []
            for piece in pairwise([begin, *starts, end]):
                cores = [re.compile(core).fullmatch(text, *piece) for core in _CORES]
                single = re.sub(r"<(\w+)[^>]*>[^<]*</\1>", "", cores[0][1])
                core = cores["<" in single]
                spans += [core.span(1)] if any(map(str.isalnum, core[1])) else []
        if wrong:
            bad_cue = text[min(wrong) :].lstrip()
            line = text.count("\n", 0, len(text) - len(bad_cue)) + 1
            expected = "a number, then a time 00:01:02,300 --> 00:01:04,500, then text"
            raise UserError(f"SubRip, line {line}: {bad_cue[:50]!r}; wanted {expected}")
        super().__init__(text, spans, inner=inner)

    def written(self, old: str, new: str) -> str:
        def fit(span: Span) -> bool:
            return len(re.sub("<[^>]*>", "", new[slice(*span)])) <= width

        lines = words = [match.span() for match in _WORD.finditer(new)]
        width = LINE
        while words and (width == LINE or len(lines) > len(old.splitlines())):
            lines, width = packed(words, fit), width + 1
        line_end = "\r\n" if "\r\n" in self.text else "\n"
        return line_end.join(new[begin:end] for begin, end in lines)


class Po(LineDocument):
    """A document of the messages of a PO file that have no translation.

    All are marked fuzzy, for review; until then, gettext does not use them. A plural
    form is a translation of the message's plural, that for one thing (by the header's
    rule) of its singular; of more than two forms it is a guess. The header stays as it
    is: gettext's `msginit` makes one. `target_language`, such as `de`, has to be that
    of the header.
    """

    def __init__(
        self,
        text: str,
        target_language: str = "",
        inner: Callable[[str], Any] = LineDocument,
    ):
        self.polib = library("polib", "--format=po")
        self.line_end = "\r\n" if "\r\n" in text else "\n"
        wrong = None
        try:
            read = self.polib.pofile(text.translate(_OTHER_LINE_ENDS) + "\n")
        except OSError as error:  # The line comes last, after the whole text.
            wrong = re.findall(r"\(line (\d+)\)", str(error))[-1]
        # The library lets strings pass that do not end.
        entries = {entry.start(3) for entry in _ENTRY.finditer(text)}
        for word in re.finditer(r"(?m)^[ \t]*msgid(?!\w)", text):
            if word.end() not in entries:
                wrong = wrong or text.count("\n", 0, word.end()) + 1
        if wrong:
            raise UserError(f"not a PO file: line {wrong} is not part of an entry")
        language = read.metadata.get("Language", "")
        if (
            target_language
            and language
            and not same_language(language, target_language)
        ):
            message = f"a PO file of {language}, but the target is {target_language}"
            raise UserError(f"{message}: msginit makes one from the template")
        rule = read.metadata.get("Plural-Forms", "")
        rule = re.match(r"nplurals *= *[2-9] *; *plural *= *([^;]+)", rule)
        try:
            singular_form = c2py(rule[1])(1) if rule else -1
        except ValueError:  # the template's EXPRESSION
            singular_form = -1
        text = _ENTRY.sub(self._prepared, text)
        spans, sources = [], []
        for entry in _ENTRY.finditer(text):
            for form in _FORM.finditer(text, *entry.span(5)):
                if self._value(entry[3]).strip() and not self._value(form[2]):
                    single = not entry[4] or int(form[1] or 0) == singular_form
                    spans.append(form.span())
                    sources.append(self._value(entry[3 if single else 4]))
        super().__init__(text, spans, sources, inner)

    def _value(self, strings: str) -> str:
        quoted = re.findall(r'"((?:[^"\\]|\\.)*)"', strings)
        return self.polib.unescape("".join(quoted))

    def _prepared(self, entry: re.Match) -> str:
        """Returns an entry, marked fuzzy if one of its forms is to be filled in."""
        comments, keys, msgid, _, forms = entry.groups()[:5]
        values = [self._value(form[2]) for form in _FORM.finditer(forms)]
        fills = self._value(msgid).strip() and not all(values)
        if fills and not re.search("(?m)^#,.*fuzzy", comments):
            flags = re.search("(?m)^#,", comments)
            was = re.search(r"(?m)^#\||\Z", comments)  # the message before
            position = flags.end() if flags else was.start()
            flag = " fuzzy," if flags else f"#, fuzzy{self.line_end}"
            comments = comments[:position] + flag + comments[position:]
        return comments + keys + forms

    def written(self, old: str, new: str) -> str:
        entry = str(self.polib.POEntry(msgid="", msgstr=new)).strip()
        form = entry.replace('msgid ""\nmsgstr', old.split('"')[0].strip(), 1)
        return form.replace("\n", self.line_end) + self.line_end
