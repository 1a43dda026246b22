"""The pages of the documentation, taken apart: their code blocks, commands and links.

A block of code is run by a test, or a comment before it, which no reader of the page
sees, says why not: `<!-- not run: needs a TPU -->`, or `<!-- run by: FILE, ... -->`.
"""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

from tests.small_run import ROOT

PAGES = sorted(
    [
        *(p for p in (ROOT / "docs").rglob("*.md") if "/_" not in p.as_posix()),
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
        ROOT / "SECURITY.md",
        ROOT / "launch/kubernetes/README.md",
    ]
)
FENCE = re.compile(
    r"(?:^ *<!-- (?P<mark>(?:not run|run by): [^>]+) -->\n)?"
    r"^(?P<indent> *)```(?P<language>\S*)\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
SEPARATORS = {"&&", "||", "|", ";", "&", "<", ">", ">>"}
LANGUAGES = {"bash", "python", "console"}  # what is run; others are shown
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


class Block(NamedTuple):
    """A block of code, at a line of a page (a file below the repository).

    `code` is without the indent of the block; `mark` is the comment before it, or "".
    """

    page: str
    line: int
    language: str
    code: str
    mark: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[list[str]]:
        """The words of each command of a shell block."""
        text = self.code
        if self.language == "console":  # other lines are what the command printed
            lines = [line for line in text.splitlines() if line.startswith("$ ")]
            text = "\n".join(line[2:] for line in lines)
        return commands(text)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        indent = match["indent"]
        code = re.sub(rf"^{indent}", "", match["code"], flags=re.MULTILINE)
        line = text.count("\n", 0, match.start("language")) + 1
        found.append(
            Block(name_of(page), line, match["language"], code, match["mark"] or "")
        )
    return found


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def commands(text: str) -> list[list[str]]:
    """Splits shell text into commands, and these into words."""
    found: list[list[str]] = []
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split, lexer.commenters = True, "#"
        words: list[str] = []
        for word in lexer:
            if word in SEPARATORS:
                found.append(words)
                words = []
            else:
                words.append(word)
        found.append(words)
    return [words for words in found if words]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    taken: dict[str, int] = {}
    for title in HEADING.findall(prose(page)):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
        taken[slug] = taken.get(slug, -1) + 1
    return {
        name
        for slug, last in taken.items()
        for name in [slug, *(f"{slug}-{n}" for n in range(1, last + 1))]
    }


def links(page: Path) -> list[str]:
    """What a page links to and shows, other pages of the web left out."""
    text = prose(page)
    found = re.findall(r"\]\(([^)\s]+)\)", text)
    found += re.findall(r'(?:src|srcset|href)="([^"]+)"', text)
    return [link for link in found if not re.match(r"\w+:", link)]


BLOCKS = [block for page in PAGES for block in blocks(page)]
CODE = [block for block in BLOCKS if block.language in LANGUAGES]
SHELL = [block for block in CODE if block.language != "python"]
PYTHON = [block for block in CODE if block.language == "python"]
# docs/your-idea.md quotes these; tests/test_your_idea.py compares and runs them.
QUOTED = {p.read_text(encoding="utf-8") for p in (ROOT / "docs/ideas").glob("*.py")}
TO_RUN = [b for b in CODE if not b.mark and b.code not in QUOTED]
