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
    """Take the order of the pages from docs/README.md, which names each of them."""
    index = Path(config.docs_dir, "README.md").read_text()
    sections = re.split(r"^\*\*(.+)\*\*$", index, flags=re.MULTILINE)[1:]
    pages = (re.findall(r"\]\((.+?\.md)\)", text) for text in sections[1::2])
    parts = zip(sections[::2], pages, strict=True)
    config.nav = ["README.md", README, *({title: names} for title, names in parts)]
    return config


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
