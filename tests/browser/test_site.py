"""The built site (`make docs`), page by page: it opens from disk, asks no other server, and fits the window."""

from __future__ import annotations

import pytest

from tests.support.real_data import REPOSITORY

pytestmark = pytest.mark.browser

SITE = REPOSITORY / "site"


@pytest.fixture(scope="module")
def pages():
    found = sorted(path for path in SITE.rglob("*.html") if path.name != "404.html")
    if not found:
        pytest.skip("the site is not built: make docs")
    return found


@pytest.mark.timeout(900)
def test_every_page_opens_without_errors_and_fits_the_window(browser, pages):
    page = browser.open(pages[0].as_uri())
    wrong = []
    for path in pages:
        page.load(path.as_uri())
        name = path.relative_to(SITE).as_posix()
        if not page.evaluate("document.querySelector('h1') !== null && document.querySelectorAll('nav a').length > 50"):
            wrong.append(f"{name}: no heading, or no navigation")
        if page.evaluate("document.documentElement.scrollWidth > window.innerWidth + 1"):
            wrong.append(f"{name}: wider than the window")
        broken = page.evaluate("[...document.images].filter((i) => i.complete && !i.naturalWidth).map((i) => i.src)")
        wrong += [f"{name}: no picture {source}" for source in broken]
    assert not wrong, wrong
    assert not [error for error in page.errors if "file:" not in error], page.errors
    assert all(request.startswith(("file:", "data:", "blob:")) for request in page.requests)
    page.close()
