"""Write the tables of the results from what make.py made so far (docs/make_results.md).

    python benchmarks/results/render.py --work results                          # print all tables
    python benchmarks/results/render.py --work results --only main guidance
    python benchmarks/results/render.py --work results --update                 # into the pages of docs/results/
    python benchmarks/results/render.py --work results --made --update          # without rows that are not there
    python benchmarks/results/render.py --work results --update page.md         # into another page

A page holds a table between the comments `<!-- results:NAME -->` and `<!-- /results:NAME -->`; what stands there is
replaced. Pictures are copied into images/ (of docs/, for its own pages), tables of single frames into data/ as CSV.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from plan import results_plan
from products import Products
from records import Book
from result_tables import Place, rendered
from steps import Places, Plan, Row

from copilot4d.errors import Copilot4dError, UsageError

PAGES = tuple(sorted((Path(__file__).resolve().parents[2] / "docs" / "results").glob("*.md")))
MARK = re.compile(r"<!-- (/?)results:(\w+) -->")


def main(arguments: Sequence[str] | None = None, *, plan: Plan | None = None) -> int:
    options = parse(arguments)
    try:
        plan = plan or results_plan()
        unknown = [name for name in options.only if name not in plan.tables]
        if unknown:
            raise UsageError(f"--only {unknown[0]}: no such table; there are {', '.join(plan.tables)}")
        products = Products(Book(plan, Places(work=options.work)))
        names = options.only or list(plan.tables)
        if options.made:
            plan = without_missing(plan, products)
        if options.update is None:
            print("\n\n".join(rendered(plan.tables[name], products) for name in names))
            return 0
        marked: set[str] = set()
        for page in options.update or PAGES:
            old = page.read_text(encoding="utf-8")
            beside = Beside(page)
            tables = {name: partial(rendered, plan.tables[name], products, beside) for name in names}
            text = updated(old, tables, plan)
            page.write_text(text, encoding="utf-8")
            marked |= {mark[2] for mark in MARK.finditer(old)}
            print(f"{page}: {'nothing changed' if text == old else 'written'}")
        without = [name for name in names if name not in marked]
        if without:
            print(f"no page has a place for: {', '.join(without)}")
    except Copilot4dError as error:
        print(f"render.py: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    return 0


def without_missing(plan: Plan, products: Products) -> Plan:
    """The plan with tables of those lines alone of which any number is there."""

    def line(row: Row) -> tuple[str, str, str]:
        """Rows that differ by K alone stand in one line."""
        return row.group, row.label, row.columns.get("schedule", row.step)

    tables = {}
    for name, table in plan.tables.items():
        there = {line(row) for row in table.rows if products.there(row.step)}
        tables[name] = replace(table, rows=tuple(row for row in table.rows if line(row) in there))
    return replace(plan, tables=tables)


def updated(page: str, tables: Mapping[str, Callable[[], str]], plan: Plan) -> str:
    """The page with these tables between their comments. All else stays, also tables that were not asked for."""
    parts: list[str] = []
    place, opened = 0, ""
    for mark in MARK.finditer(page):
        closes, name = bool(mark[1]), mark[2]
        if name not in plan.tables:
            raise UsageError(f"{mark[0]}: there is no such table; there are {', '.join(plan.tables)}")
        if closes != bool(opened) or (closes and name != opened):
            raise UsageError(f"{mark[0]}: each table needs its opening and then its closing comment")
        if closes:
            inside = page[place : mark.start()]
            parts.append(f"\n{tables[name]()}\n" if name in tables else inside)
            parts.append(mark[0])
        else:
            parts.append(page[place : mark.end()])
        place, opened = mark.end(), "" if closes else name
    if opened:
        raise UsageError(f"<!-- results:{opened} --> has no closing comment")
    return "".join([*parts, page[place:]])


class Beside(Place):
    """Pictures and data go into folders beside a page; the pictures of docs/results/ into docs/images/."""

    def __init__(self, page: Path) -> None:
        self.page = page

    def picture(self, path: Path) -> str:
        """Copy the picture; the link from the page."""
        folder = Path("../images" if self.page.resolve() in PAGES else "images")
        return self._put(folder / f"{path.parent.parent.name}_{path.parent.name}_{path.name}", path.read_bytes())

    def data(self, name: str, text: str) -> str:
        """Write the CSV file; the link from the page."""
        return self._put(Path("data") / f"{name}.csv", text.encode())

    def _put(self, link: Path, content: bytes) -> str:
        place = self.page.parent / link
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(content)
        return link.as_posix()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="the folder that make.py worked in")
    parser.add_argument("--only", nargs="+", default=[], metavar="TABLE")
    parser.add_argument("--made", action="store_true", help="leave out rows that are not there, instead of '-'")
    parser.add_argument(
        "--update",
        type=Path,
        nargs="*",
        metavar="PAGE",
        help="replace the marked sections of these pages; by default docs/results/",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
