from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from copilot4d.errors import UsageError
from copilot4d.pictures import Page, write_gif, write_mp4

NASTY = "<script>alert('x')</script> & \"quoted\""


class Reader(HTMLParser):
    """What a browser would see: tags, attributes, words; and whether every tag is closed in order."""

    VOID = frozenset({"meta", "img", "br"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def full_page() -> Page:
    page = Page(NASTY)
    page.heading(NASTY)
    page.heading(NASTY, level=3)
    page.text(NASTY)
    page.note(NASTY, "bad")
    page.code(NASTY)
    page.items([NASTY])
    page.table([NASTY], [[NASTY]], caption=NASTY)
    page.image(np.zeros((4, 4, 3), np.uint8), caption=NASTY, width=100)
    page.images([(np.zeros((4, 4, 3), np.uint8), NASTY)] * 2)
    return page


def test_every_text_is_escaped_and_every_tag_closed() -> None:
    seen = Reader(full_page().html())
    assert "script" not in {tag for tag, _ in seen.tags}
    assert sum(NASTY in words for words in seen.words) == 14  # each text above, and the title twice
    assert [a["alt"] for tag, a in seen.tags if tag == "img"] == [NASTY] * 3


def test_nothing_is_fetched_from_elsewhere() -> None:
    page = full_page().html()
    assert not re.search(r"(https?:)?//[a-z]", page)
    seen = Reader(page)
    for tag, attributes in seen.tags:
        assert tag not in ("link", "script", "iframe")
        assert attributes.get("src", "data:").startswith("data:")
    policy = next(a["content"] for tag, a in seen.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")


def test_pictures_are_in_the_page_pixel_for_pixel() -> None:
    image = np.random.default_rng(0).integers(0, 256, (9, 5, 3), dtype=np.uint8)
    page = Page("t")
    page.image(image)
    [source] = [a["src"] for tag, a in Reader(page.html()).tags if tag == "img"]
    shown = np.array(PIL.Image.open(BytesIO(base64.b64decode(source.split(",")[1]))))
    np.testing.assert_array_equal(shown, image)


def test_films_can_be_put_in(tmp_path: Path) -> None:
    frames = [np.full((16, 16, 3), v, np.uint8) for v in (0, 200)]
    page = Page("t")
    page.image(write_gif(tmp_path / "a.gif", frames))
    page.image(write_mp4(tmp_path / "a.mp4", frames), caption="a film")
    tags = {tag: a.get("src", "") for tag, a in Reader(page.html()).tags}
    assert tags["img"].startswith("data:image/gif;base64,")
    assert tags["video"].startswith("data:video/mp4;base64,")
    with pytest.raises(UsageError, match=r"notes\.txt"):
        page.image(tmp_path / "notes.txt")


def test_numbers_stand_right_with_four_digits_and_none_is_a_dash() -> None:
    page = Page("t")
    page.table(["name", "value"], [["a", 3.14159265], ["b", None], ["c", np.float32(1234567.0)], ["d", 12345]])
    seen = Reader(page.html())
    assert [w for w in seen.words if w.strip()][-8:] == ["a", "3.142", "b", "–", "c", "1.235e+06", "d", "12345"]
    assert [a.get("class") for tag, a in seen.tags if tag == "td"] == [None, "number"] * 4


def test_wrong_use_is_named() -> None:
    page = Page("t")
    with pytest.raises(UsageError, match="row 1 has 1 cells for 2 columns"):
        page.table(["a", "b"], [[1, 2], [3]])
    with pytest.raises(UsageError, match="level"):
        page.heading("x", level=1)
    with pytest.raises(UsageError, match="mood"):
        page.note("x", "angry")


def test_writes_one_file(tmp_path: Path) -> None:
    path = full_page().write(tmp_path / "new" / "page.html")
    assert path.read_text(encoding="utf-8") == full_page().html()
    assert [p.name for p in path.parent.iterdir()] == ["page.html"]


def test_links_lead_only_to_files_beside_the_page() -> None:
    page = Page("t")
    page.links([("forecast.mp4", NASTY), ("a folder/x&y.png", "words")])
    links = [a["href"] for tag, a in Reader(page.html()).tags if tag == "a"]
    assert links == ["forecast.mp4", "a%20folder/x%26y.png"]
    for elsewhere in ("https://example.org/x", "//example.org", "/etc/passwd", "../up.png", "javascript:alert(1)"):
        with pytest.raises(UsageError, match="beside it"):
            page.links([(elsewhere, "no")])


def test_a_page_without_a_viewer_runs_nothing() -> None:
    assert "script" not in full_page().html().replace("<script>alert", "").replace("&lt;script&gt;", "").replace(
        "&lt;/script&gt;", ""
    )
