"""The pages at `/docs`, one for each room, rendered from the OpenAPI document alone.

They can be read without their script, which adds tabs, copies, searches and sends.
"""

from collections.abc import Callable, Iterator
from html import escape
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

from snapbid.describe import routes
from snapbid.describe.fields import FieldWriter, SearchEntry
from snapbid.describe.markup import inline, paragraphs, plain
from snapbid.describe.operation import operation

Document = dict[str, Any]


class Room(NamedTuple):
    """A page about some of the document's tags."""

    title: str
    tags: tuple[str, ...]


class Assets(NamedTuple):
    """The addresses of the style sheet and of the script."""

    style: str
    script: str


class RenderedPages(NamedTuple):
    """The pages by path, and what the search may lead to."""

    pages: dict[str, str]
    entries: list[SearchEntry]


ROOMS: Final = {
    routes.BIDDING: Room("Bidding", ("Bidding", "Notifications")),
    routes.REPORTS: Room("Reports", ("Report",)),
    routes.EVENTS: Room("Server events", ("Server events",)),
}
HONOURED: Final = "What we honour"


def render(document: Document, assets: Assets) -> RenderedPages:
    """All pages of the document."""
    entries: list[SearchEntry] = []
    navigation = "".join(_navigation(document))

    def page(path: str, title: str, parts: Iterator[str]) -> str:
        return _page(document, assets, title, _current(navigation, path), "".join(parts))

    pages = {routes.DOCS: page(routes.DOCS, "Overview", _overview(document))}
    for path, room in ROOMS.items():
        pages[path] = page(path, room.title, _room(document, path, room, entries))
    pages[routes.ATTRIBUTES] = page(routes.ATTRIBUTES, HONOURED, _attributes(document, entries))
    return RenderedPages(pages, entries)


def _page(document: Document, assets: Assets, title: str, navigation: str, main: str) -> str:
    name = f"{escape(document['info']['title'])} API"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>{escape(title)} · {name}</title>"
        f'<link rel="stylesheet" href="{assets.style}">'
        f'<script src="{assets.script}" defer></script></head><body>'
        f'<a class="skip" href="#top">Skip to the text</a>{navigation}<main>'
        f'<h1 id="top">{escape(title)}</h1>{main}</main></body></html>\n'
    )


def _operations(document: Document, tags: tuple[str, ...]) -> list[tuple[str, str, Any]]:
    """Method, path and description of the operations with these tags, in the tags' order."""
    return [
        (method, path, described)
        for tag in tags
        for path, methods in document["paths"].items()
        for method, described in methods.items()
        if tag in described["tags"]
    ]


def _navigation(document: Document) -> Iterator[str]:
    title, version = document["info"]["title"], document["info"]["version"]
    yield '<nav aria-label="Contents"><div class="bar">'
    yield f'<a class="name" href="{routes.DOCS}">{escape(title)} API '
    yield f"<small>{escape(version)}</small></a>"
    yield '<button id="menu" hidden aria-expanded="false" aria-controls="contents">Menu</button>'
    yield f'</div><div id="search" hidden data-source="{routes.SEARCH}"><input type="search" '
    yield 'aria-label="Search the API" placeholder="Search (press /)" autocomplete="off">'
    yield '<p role="status"></p><ul></ul></div><div id="contents">'
    for path, room in ROOMS.items():
        yield f'<h2><a href="{path}">{room.title}</a></h2><ul>'
        for method, _, described in _operations(document, room.tags):
            yield f'<li><a href="{path}#{described["operationId"]}">'
            yield f'<b class="{method}">{method}</b> {inline(described["summary"])}</a></li>'
        if path == routes.EVENTS:
            yield f'<li><a href="{path}#Event">The catalog of events</a></li>'
        yield "</ul>"
    yield f'<h2><a href="{routes.ATTRIBUTES}">{HONOURED}</a></h2>'
    yield f'<p><a href="{routes.DOCUMENT}">openapi.json</a></p></div></nav>'


def _current(navigation: str, path: str) -> str:
    """The navigation as the page at a path shows it."""
    link = f'href="{path}"'
    return navigation.replace(link, f'{link} aria-current="page"')


def _overview(document: Document) -> Iterator[str]:
    yield f'<p class="server"><code>{escape(document["servers"][0]["url"])}</code></p>'
    yield paragraphs(document["info"]["description"])
    described = {tag["name"]: tag["description"] for tag in document["tags"]}
    for path, room in ROOMS.items():
        yield f'<section><h2><a href="{path}">{room.title}</a></h2>'
        yield "".join(paragraphs(described[tag]) for tag in room.tags)
        yield '<ul class="operations">'
        for method, route, own in _operations(document, room.tags):
            name = own["operationId"]
            yield f'<li id="{name}"><a href="{path}#{name}">{inline(own["summary"])}</a>'
            yield f'<p class="route"><b class="{method}">{method}</b> '
            yield f"<code>{escape(route)}</code></p></li>"
        yield "</ul></section>"
    yield f'<section><h2 id="honoured"><a href="{routes.ATTRIBUTES}">{HONOURED}</a></h2>'
    yield "<p>Every attribute of a bid request: enforced, targeted, used, or why not.</p></section>"
    yield from _credentials(document, [*document["components"]["securitySchemes"]])


def _credentials(document: Document, names: list[str]) -> Iterator[str]:
    if not names:
        return
    yield '<section><h2 id="credentials">Credentials</h2><dl>'
    for name in names:
        scheme = document["components"]["securitySchemes"][name]
        header = "X-API-KEY: …" if scheme["type"] == "apiKey" else "Authorization: Bearer …"
        yield f'<dt id="{name}"><code>{header}</code></dt>'
        yield f"<dd>{inline(scheme['description'])}</dd>"
    yield "</dl></section>"


def _room(document: Document, path: str, room: Room, entries: list[SearchEntry]) -> Iterator[str]:
    base = document["servers"][0]["url"]
    yield f'<p class="server"><code>{escape(base)}</code></p>'
    described = {tag["name"]: tag["description"] for tag in document["tags"]}
    yield "".join(paragraphs(described[tag]) for tag in room.tags)
    operations = _operations(document, room.tags)
    schemes = [name for _, _, own in operations for names in own["security"] for name in names]
    credentials = [*dict.fromkeys(schemes)]
    is_guarded = all(own["security"] for _, _, own in operations)
    if is_guarded:
        yield from _credentials(document, credentials)
    fields = FieldWriter(document["components"]["schemas"], path)
    for method, route, own in operations:
        text = f"{method} {route} {plain(own['description'])}"
        entries.append(SearchEntry(plain(own["summary"]), f"{path}#{own['operationId']}", text))
        yield from operation(base, method, route, own, fields)
    if not is_guarded:
        yield from _credentials(document, credentials)
    entries += fields.entries


def _attributes(document: Document, entries: list[SearchEntry]) -> Iterator[str]:
    """What becomes of each attribute of a bid request, by object."""
    yield "<p>Every attribute of a bid request (OpenRTB 2.6 to 202606, Native Ads 1.2), and the "
    yield "lists of AdCOM. <b>Enforced</b>: a limit that no bid breaks. <b>Targeted</b>: campaigns "
    yield "can ask for it; the dimension is named. <b>Used</b>: read for another purpose.</p>"
    by_object: Callable[[dict[str, str]], str] = itemgetter("object")
    for owner, group in groupby(document["x-attributes"], by_object):
        yield f'<details><summary>{escape(owner)}</summary><div class="scroll"><table><thead><tr>'
        for head in ("Attribute", "Status", "How, or why not"):
            yield f'<th scope="col">{head}</th>'
        yield "</tr></thead><tbody>"
        for entry in group:
            anchor = f"{owner}.{entry['name']}".replace(" ", "-")
            entries.append(
                SearchEntry(
                    f"{owner}.{entry['name']}",
                    f"{routes.ATTRIBUTES}#{anchor}",
                    f"{entry['status']} {plain(entry['note'])}",
                )
            )
            yield f'<tr id="{escape(anchor)}"><td><code>{escape(entry["name"])}</code></td>'
            yield f"<td>{entry['status']}</td><td>{inline(entry['note'])}</td></tr>"
        yield "</tbody></table></div></details>"
