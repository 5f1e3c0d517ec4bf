"""Write the tables of the results from what make.py made so far (docs/make_results.md).

    python benchmarks/results/render.py --work results                          # print all tables
    python benchmarks/results/render.py --work results --only main guidance
    python benchmarks/results/render.py --work results --update docs/results.md # between its comments
    python benchmarks/results/render.py --work results --made --update docs/results.md # without rows that are not there

A page holds a table between the comments `<!-- results:NAME -->` and `<!-- /results:NAME -->`; what stands there is
replaced. Pictures are copied beside the page, into images/.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from plan import results_plan
from products import Products
from records import Book
from result_tables import rendered
from steps import Places, Plan, Row

from copilot4d.errors import Copilot4dError, UsageError

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
        old = options.update.read_text(encoding="utf-8")
        link = beside(options.update)
        tables = {name: partial(rendered, plan.tables[name], products, link) for name in names}
        text = updated(old, tables, plan)
        options.update.write_text(text, encoding="utf-8")
        marked = {mark[2] for mark in MARK.finditer(old)}
        without = [name for name in names if name not in marked]
        print(f"{options.update}: {'nothing changed' if text == old else 'written'}")
        if without:
            print(f"it has no place for: {', '.join(without)}")
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


def beside(page: Path) -> Callable[[Path], str]:
    """Copies a picture into the page's images/ and returns the link to it."""

    def link(picture: Path) -> str:
        place = Path("images") / f"{picture.parent.parent.name}_{picture.parent.name}_{picture.name}"
        (page.parent / place).parent.mkdir(exist_ok=True)
        shutil.copyfile(picture, page.parent / place)
        return place.as_posix()

    return link


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="the folder that make.py worked in")
    parser.add_argument("--only", nargs="+", default=[], metavar="TABLE")
    parser.add_argument("--made", action="store_true", help="leave out rows that are not there, instead of '-'")
    parser.add_argument("--update", type=Path, metavar="PAGE", help="replace the marked sections of this page")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
