"""`snapbid campaign check --preview`: a page that shows each creative in a frame of its size.

The browser renders markup in sandboxed frames without access to the page. vast-client-js
(ATTRIBUTION.md) plays VAST without firing tracking events; other markup loads everything it refers
to, including its pixels. The bidder's macros are filled in with sample values.
"""

import base64
import contextlib
import re
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TextIO
from urllib.parse import quote

from snapbid.campaigns.campaign import Campaign, Creative
from snapbid.campaigns.native import NativeAd
from snapbid.campaigns.vast_facts import is_address

PLAYER: Final = "player.html"
LIBRARY: Final = files("snapbid.operations.preview").joinpath("vast-client.js")
VIDEO, AUDIO, NATIVE = (640, 420), (480, 160), (340, 460)  # pixels of frames without a size
ICON, LOGO = 1, 2  # types of native images
SPONSORED, DESCRIPTION, BUTTON = "1", "2", "12"  # types of native data

_MACRO: Final = re.compile(r"\{\{(\w+)\}\}")
_META: Final = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'


@contextlib.contextmanager
def preview(folder: Path) -> Iterator["Preview"]:
    """Write a page of creatives into a folder, created if needed.

    Yields the `Preview` to add the creatives to. Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PLAYER).write_text(_player(), encoding="utf-8")
    with (folder / "index.html").open("w", encoding="utf-8") as page:
        page.write(
            f'<!doctype html><html lang="en"><head>{_META}<title>Creatives</title>'
            f"<style>{_asset('page.css')}</style><script>{_asset('page.js')}</script></head>"
            "<body><main><h1>Creatives</h1>\n"
            '<p class="note">As a browser shows them. Markup loads everything it refers to,'
            " including its pixels; VAST events are not tracked.</p>\n"
        )
        yield Preview(page)
        page.write("</main></body></html>\n")


class Preview:
    """A page to which creatives are added one by one."""

    def __init__(self, page: TextIO) -> None:
        self._page = page

    def add(
        self,
        campaign: Campaign,
        creative: Creative,
        kind: str,
        says: dict[str, str],
        warnings: Sequence[str],
    ) -> None:
        """Add a creative; `kind`: its type of markup; `says`: the markup's properties by name."""
        facts = "".join(
            f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
            for name, value in says.items()
        )
        warned = "".join(f"<li>{escape(warning)}</li>" for warning in warnings)
        self._page.write(
            f"<article><h2>{escape(campaign.id)} / {escape(creative.id)}</h2>"
            f"<p>{escape(f'{creative.media}, {kind}')}</p>"
            + (f"<dl>{facts}</dl>" if facts else "")
            + (f"<ul>{warned}</ul>" if warned else "")
            + "".join(_frames(campaign, creative))
            + "</article>\n"
        )


def _frames(campaign: Campaign, creative: Creative) -> Iterator[str]:
    def fill(text: str) -> str:
        return filled(text, campaign.id, creative.id)

    title = f"{campaign.id} / {creative.id}"
    if creative.native is not None:
        yield _frame(title, NATIVE, {"sandbox": "", "srcdoc": native_page(creative.native, fill)})
        if creative.native.video is not None:
            yield _player_frame(f"{title}, video", VIDEO, fill(creative.native.video))
    elif creative.media == "banner":
        size = creative.w or 0, creative.h or 0
        markup = {"sandbox": "allow-scripts allow-popups", "srcdoc": fill(creative.adm)}
        yield _frame(title, size, markup)
    else:
        yield _player_frame(
            title, AUDIO if creative.media == "audio" else VIDEO, fill(creative.adm)
        )


def _player_frame(title: str, size: tuple[int, int], text: str) -> str:
    name, value = ("address", text.strip()) if is_address(text) else ("vast", text)
    attributes = {"class": "player", "sandbox": "allow-scripts", "src": PLAYER}
    return _frame(title, size, {**attributes, f"data-{name}": value})


def _frame(title: str, size: tuple[int, int], attributes: dict[str, str]) -> str:
    stated = {"title": title, "width": size[0], "height": size[1], "loading": "lazy", **attributes}
    written = " ".join(f'{name}="{escape(str(value))}"' for name, value in stated.items())
    return f"<iframe {written}></iframe>"


def filled(text: str, campaign: str, creative: str) -> str:
    """Fill in the bidder's macros, with sample values for those that depend on the auction."""
    values = {
        "auction_id": "preview",
        "imp_id": "1",
        "campaign_id": quote(campaign, safe=""),
        "creative_id": quote(creative, safe=""),
        "cachebuster": "0",
        "click_id": "preview",
        "open": "{{",
    }
    return _MACRO.sub(lambda macro: values.get(macro[1], macro[0]), text)


def native_page(native: NativeAd, fill: Any) -> str:
    """Render the assets of a native creative in a plain template."""
    parts = [f'<!doctype html><html lang="en"><head>{_META}<title>Native</title>'
             f"<style>{_asset('frame.css')}</style></head><body><main>"]  # fmt: skip
    data = {kind: escape(fill(text)) for kind, text in native.data.items()}
    for image in native.images:
        if image.type in (ICON, LOGO):
            parts.append(f'<img class="icon" src="{escape(fill(image.url))}" alt="icon">')
    parts.append(f"<h1>{escape(fill(native.title or ''))}</h1>")
    if SPONSORED in data:
        parts.append(f'<p class="soft">Sponsored by {data.pop(SPONSORED)}</p>')
    for image in native.images:
        if image.type not in (ICON, LOGO):
            parts.append(f'<img class="main" src="{escape(fill(image.url))}" alt="image">')
    if DESCRIPTION in data:
        parts.append(f"<p>{data.pop(DESCRIPTION)}</p>")
    button = data.pop(BUTTON, "")
    parts += (f'<p class="soft">data {kind}: {text}</p>' for kind, text in data.items())
    if button:
        parts.append(f'<p><span class="cta">{button}</span></p>')
    parts.append(
        f'<p class="soft">leads to {escape(fill(native.link.url))}</p></main></body></html>'
    )
    return "".join(parts)


def _player() -> str:
    """Return the player's page, with the library inlined since a sandboxed page cannot load it."""
    library = base64.b64encode(LIBRARY.read_bytes()).decode()
    load = (
        f'const {{VASTClient, VASTParser}} = await import("data:text/javascript;base64,{library}");'
    )
    return (
        f'<!doctype html><html lang="en"><head>{_META}<title>VAST</title>'
        f"<style>{_asset('frame.css')}</style></head><body><main></main>"
        f'<script type="module">{load}\n{_asset("player.js")}</script></body></html>\n'
    )


def _asset(name: str) -> str:
    return files("snapbid.operations.preview").joinpath(name).read_text(encoding="utf-8")
