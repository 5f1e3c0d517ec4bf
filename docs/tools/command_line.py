"""The reference of the command line as Markdown, made from the options themselves.

    python docs/tools/command_line.py               # print every page
    python docs/tools/command_line.py forecast

The site's build calls `page` for every verb (docs/tools/site_hooks.py), so no option is described twice.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
import textwrap
import warnings
from collections.abc import Sequence

import tyro

from copilot4d.cli.main import VERBS


def file_name(verb: str) -> str:
    """The page of a verb, below docs/."""
    return f"command_line/{verb.replace(' ', '_')}.md"


def page(verb: str) -> str:
    """What the verb does, its example, and a table of every option with its values and its default."""
    parser = parser_of(verb)
    parts = [f"# copilot4d {verb}", _description(parser.description or "")]
    for group in parser._action_groups:
        rows = [_row(action) for action in group._group_actions if "--help" not in action.option_strings]
        if rows:
            title = (group.title or "options").capitalize()
            about = [group.description] if group.description else []
            table = "\n".join(["| option | values | default | what it does |", "|---|---|---|---|", *rows])
            parts += [f"## {title}", *about, table]
    return "\n\n".join(parts) + "\n"


def overview(guides: Sequence[str] = ()) -> str:
    """The page that lists the verbs; `guides` are the names of the pages that explain one."""
    lines = ["# Command line", "Every verb has `--help`. These pages are made from the same options."]
    rows = ["| verb | what it does |", "|---|---|"]
    for name, verb in VERBS.items():
        guide = name.replace(" ", "_")
        more = f" ([guide](../{guide}.md))" if guide in guides else ""
        rows.append(f"| [`copilot4d {name}`]({file_name(name).split('/')[1]}) | {verb.summary}{more} |")
    codes = (
        "Exit codes: 0 done; 1 the work failed, and the message says why; 2 wrong usage; 130 interrupted; 143 ended by "
        "SIGTERM. `--debug` shows the traceback of an error. `--version` prints the version."
    )
    return "\n\n".join([*lines, "\n".join(rows), codes]) + "\n"


def parser_of(verb: str) -> argparse.ArgumentParser:
    """The verb's own parser."""
    module = importlib.import_module(f"copilot4d.cli.{VERBS[verb].module}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # no other way to the options that tyro parses
        return tyro.extras.get_parser(module.Options, prog=f"copilot4d {verb}")


def _description(text: str) -> str:
    """The help's prose unchanged; its examples, indented or after 'Example:', as code.

    >>> print(_description("Score. Example: copilot4d evaluate --out x"))
    Score. Example:
    <BLANKLINE>
    ```text
    copilot4d evaluate --out x
    ```
    """
    parts: list[str] = []
    for block in re.split(r"\n\s*\n", text.strip()):
        if block.startswith("copilot4d ") or all(line.startswith("    ") for line in block.splitlines()):
            parts.append(_code(textwrap.dedent(block)))
            continue
        words = re.split(r"(Example[^:]*:) (copilot4d .*?)(?= Example|$)", " ".join(block.split()))
        for before, label, command in zip(words[::3], [*words[1::3], ""], [*words[2::3], ""], strict=True):
            parts += [_plain(f"{before} {label}")] if before.strip() or label else []
            parts += [_code(command)] if command else []
    return "\n\n".join(parts)


def _code(text: str) -> str:
    return f"```text\n{text}\n```"


def _row(action: argparse.Action) -> str:
    names = ", ".join(f"`{name}`" for name in action.option_strings) or f"`{str(action.dest).upper()}`"
    values = str(action.metavar or "").replace("{None}|", "").replace("{None,", "{")
    about, default = _split_default(action.help or "")
    if action.required or default == "required":
        default = "**required**"
    elif default not in ("", "None"):
        default = f"`{default}`"
    else:
        default = ""
    cells = [names, f"`{values}`" if values else "", default, _plain(about)]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _split_default(text: str) -> tuple[str, str]:
    """'Seed. (default: 0)' -> 'Seed.', '0'.

    >>> _split_default("Where to write. (required)")
    ('Where to write.', 'required')
    """
    found = re.search(r"\s*\((required|default: ?(.*))\)$", text, re.DOTALL)
    if found is None:
        return text, ""
    return text[: found.start()], found[2] if found[2] is not None else "required"


def _plain(text: str) -> str:
    """On one line, with nothing that Markdown would read as markup."""
    return re.sub(r"([<>*_])", r"\\\1", " ".join(text.split()))


if __name__ == "__main__":
    for chosen in sys.argv[1:] or VERBS:
        print(page(chosen))
