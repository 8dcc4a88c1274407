"""README.md and docs/: each relative link leads to a file and a heading; how long they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^( *)```.*?^\1```", re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


def broken_links(page: Path) -> list[str]:
    """Return the relative links of a page that lead nowhere."""
    broken = []
    for link in LINK.findall(FENCED.sub("", page.read_text())):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if re.match(r"\w+:", link):
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_somewhere(page):
    assert broken_links(page) == []


def test_the_index_and_that_of_deployments_name_every_page_once():
    indexes = [ROOT / "docs" / "README.md", ROOT / "docs" / "deployment" / "README.md"]
    listed = [
        (index.parent / link).resolve()
        for index in indexes
        for link in LINK.findall(index.read_text().partition("\n## ")[0])
        if not link.startswith("..")
    ]
    assert sorted(listed) == [page for page in PAGES[1:] if page != indexes[0]]


@pytest.mark.parametrize(
    ("pages", "most"),
    [
        ("README.md", 1_100),
        ("docs/*.md", 23_700),  # what a user reads
        ("docs/sources/*.md", 5_400),  # and of these what is about the own source
        ("docs/internals/*.md", 11_600),  # and a contributor
        ("docs/deployment/*.md", 8_650),  # and who installs it in a deployment that exists
    ],
)
def test_the_pages_stay_short(pages, most):
    """Whoever adds a fact takes one out that is said twice."""
    words = {str(page): len(page.read_text().split()) for page in ROOT.glob(pages)}
    assert 0 < sum(words.values()) <= most, words


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One, `two`\n[a](#one-two) [b](#three) [c](gone.md) [d](https://a.example)\n")
    assert broken_links(page) == ["#three", "gone.md"]
