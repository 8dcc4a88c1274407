"""What the site adds to the files of docs/: README.md, an order, and the files that pages name."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
README = "reliability.md"
OUTSIDE = re.compile(r"\]\(((?:\.\./)+[^)#\s]+)((?:#[^)\s]+)?)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take the order of the pages from docs/README.md, and from the indexes that it names."""
    docs = Path(config.docs_dir)
    sections = re.split(r"^\*\*(.+)\*\*$", (docs / "README.md").read_text(), flags=re.MULTILINE)[1:]
    parts = zip(sections[::2], (_pages(docs, "", text) for text in sections[1::2]), strict=True)
    config.nav = ["README.md", README, *({title: names} for title, names in parts)]
    return config


def _pages(docs: Path, folder: str, text: str) -> list[str]:
    """Return the pages of a folder that a text names, each index with those that it names."""
    pages = [folder + name for name in re.findall(r"\]\((\w[^)]*?\.md)\)", text)]
    indexed = (
        _pages(
            docs, page.removesuffix("README.md"), (docs / page).read_text().partition("\n## ")[0]
        )
        for page in pages
        if page.endswith("/README.md")
    )
    return [*pages, *(page for found in indexed for page in found)]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the clone's README.md as a page."""
    text = (ROOT / "README.md").read_text().replace("](docs/", "](")
    files.append(File.generated(config, README, content=text))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let a link to a file outside docs/ lead to a copy of it, shown as text."""
    up = "../" * page.file.src_uri.count("/")

    def to_copy(link: re.Match[str]) -> str:
        path = (Path(config.docs_dir, page.file.src_uri).parent / link[1]).resolve()
        if path == ROOT / "README.md":
            return f"]({up}{README}{link[2]})"
        if path.is_relative_to(config.docs_dir) or not path.is_file():
            return link[0]
        name = f"clone/{path.relative_to(ROOT)}.txt"
        if files.get_file_from_path(name) is None:
            files.append(File.generated(config, name, content=path.read_text()))
        return f"]({up}{name})"

    return OUTSIDE.sub(to_copy, markdown)
