"""From values to HTML: the templates, and how they write numbers, times and lengths."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from reliability.core.difference import format_cell
from reliability.core.texts import format_length
from reliability.core.tones import tone_of
from reliability.core.txids import format_txids
from reliability_airflow.page.addresses import PREFIX, run_path

_SIGNS = {
    "✓": "up to date, complete, committed, satisfied, passed",
    "↻": "replayed, replaced",
    "▶": "working, open, processing, sealing, emitting",
    "◷": "processed, waiting",
    "◇": "dry run",
    "⚑": "held",
    "‖": "paused",
    "∅": "parked, skipped",
    "◔": "late",
    "?": "missing",
    "↶": "rolled back",
    "⊘": "fenced",
    "■": "blocked",
    "✕": "failed, closed, given up",
}
#: word of a state -> its sign. The word is always shown: no colour alone tells it.
_SIGN_OF = {word: sign for sign, words in _SIGNS.items() for word in words.split(", ")}


def page_of(request: Request, dag_id: str) -> str:
    """Return the address of a topology's page."""
    return f"{request.scope.get('root_path', '')}/dags/{quote(dag_id, safe='')}"


def render(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page, or a part of one; `page` is the address of its topology, if it has one."""
    base = request.scope.get("root_path", "")
    values |= {
        "base": base,
        "airflow": base.removesuffix(PREFIX),
        "now": datetime.now(timezone.utc),
    }
    if "topology" in values:
        values["page"] = page_of(request, values["topology"])
    return HTMLResponse(_environment().get_template(template).render(values), status)


@cache
def _environment() -> Environment:
    folder = Path(__file__).with_name("templates")
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=_number,
        moment=_moment,
        ago=_ago,
        took=lambda seconds: "" if seconds is None else format_length(seconds),
        segment=lambda text: quote(str(text), safe=""),
        badge=_badge,
        prose=_prose,
        sign=lambda word: _SIGN_OF.get(_plain(word), "·"),
        tone=lambda word: tone_of(_plain(word)) or "past",
        percent=lambda value: f"{value:.3f}%",
        cell=format_cell,
        ranges=format_txids,
    )
    environment.globals.update(run_path=run_path)
    return environment


def _plain(word: Any) -> str:
    return str(getattr(word, "value", word)).lower().replace("_", " ")


def _badge(word: Any) -> Markup:
    plain = _plain(word)
    return Markup(
        '<span class="badge {}"><span class="sign" aria-hidden="true">{}</span>{}</span>'
    ).format(tone_of(plain) or "past", _SIGN_OF.get(plain, "·"), plain)


def _prose(text: str) -> Markup:
    """Write what stands between backticks as code."""
    return Markup(re.sub(r"`([^`]*)(?:`|\Z)", r"<code>\1</code>", str(escape(text))))


def _number(value: Any) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, (int, float)) else str(value)


def _moment(value: datetime | None) -> Markup:
    """Write a time in UTC, to the second."""
    if value is None:
        return Markup("")
    utc = value.astimezone(timezone.utc)
    return Markup('<time datetime="{}">{}</time>').format(
        utc.isoformat(), f"{utc:%Y-%m-%d %H:%M:%S}"
    )


def _ago(value: datetime | None, now: datetime) -> Markup:
    """Write how long ago something was; the time itself is its title."""
    if value is None:
        return Markup("never")
    utc = value.astimezone(timezone.utc)
    length = format_length(round(max((now - value).total_seconds(), 0)) or 0.0)
    length = "now" if (now - value).total_seconds() < 1 else f"{length} ago"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        utc.isoformat(), f"{utc:%Y-%m-%d %H:%M:%S} UTC", length
    )
