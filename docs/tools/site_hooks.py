"""What the site's build adds to the pages in docs/ (mkdocs.yml): generated reference pages, and links that hold there.

- the command line's reference, from the options (`command_line.py`);
- the API reference, one page per public package, from its docstrings (mkdocstrings);
- CONTRIBUTING and CHANGELOG, which stand outside docs/;
- a place in the navigation for every page that mkdocs.yml does not name.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import command_line

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
OUTSIDE = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md"}
API = {
    "copilot4d": "The two entry points",
    "copilot4d.forecaster": "The protocols that every model follows",
    "copilot4d.geometry": "Poses, rays, sweeps, drives",
    "copilot4d.datasets": "Logs on disk",
    "copilot4d.datasets.windows": "Which frames are forecast",
    "copilot4d.forecasting.copilot4d": "The model with all its parts",
    "copilot4d.baselines": "Baselines",
    "copilot4d.evaluation": "Scores",
    "copilot4d.simulator": "Simulated streets",
    "copilot4d.pictures": "Pictures, films, pages",
    "copilot4d.environment": "The gymnasium environment",
    "copilot4d.tokenizer": "The tokenizer",
    "copilot4d.world_model": "The world model",
    "copilot4d.rendering": "Volume rendering",
    "copilot4d.depth_selection": "Depth selection",
    "copilot4d.training": "Training",
    "copilot4d.presets": "Presets",
    "copilot4d.errors": "Errors",
}
OMITTED_GO_TO = "Guides"


def on_config(config: Any) -> Any:
    """Fill the generated sections of the navigation, and append what it does not name."""
    for section in config.nav:
        (title,) = section
        if title == "Command line":
            section[title] = [{"Overview": "command_line/README.md"}] + [
                {verb: command_line.file_name(verb)} for verb in command_line.VERBS
            ]
        elif title == "API reference":
            section[title] = [{"Overview": "api/README.md"}] + [{name: api_file(name)} for name in API]
    named = set(_paths(config.nav))
    omitted = sorted(
        path.relative_to(DOCS).as_posix()
        for path in DOCS.rglob("*.md")
        if path.relative_to(DOCS).as_posix() not in named and "tools" not in path.parts
    )
    for section in config.nav:
        if OMITTED_GO_TO in section:
            section[OMITTED_GO_TO].extend(omitted)
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are made here."""
    from mkdocs.structure.files import File

    guides = [path.stem for path in DOCS.glob("*.md")]
    pages = {"command_line/README.md": command_line.overview(guides), "api/README.md": api_overview()}
    pages |= {command_line.file_name(verb): command_line.page(verb) for verb in command_line.VERBS}
    pages |= {api_file(name): f"# {name}\n\n::: {name}\n" for name in API}
    pages |= {new: outside_page((ROOT / old).read_text(encoding="utf-8")) for old, new in OUTSIDE.items()}
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links that leave docs/ lead to the page that stands for the file, or name the file."""
    return site_links(markdown)


def api_file(name: str) -> str:
    """The page of a package, below docs/."""
    return f"api/{name}.md"


def api_overview() -> str:
    """The page that lists the packages."""
    rows = [f"| [`{name}`]({name}.md) | {about} |" for name, about in API.items()]
    head = "# API reference\n\nMade from the docstrings. [The library](../library.md) shows how the parts go together."
    return "\n".join([head, "", "| package | what it holds |", "|---|---|", *rows]) + "\n"


def outside_page(text: str) -> str:
    """A page of the repository's root as a page of the site: docs/x.md is x.md there."""
    return re.sub(r"\]\(docs/", "](", text)


def site_links(text: str) -> str:
    """Replace links out of docs/.

    >>> site_links("[how](../CONTRIBUTING.md#tests), [a file](../src/a.py)")
    '[how](contributing.md#tests), a file (`src/a.py`)'
    """
    for old, new in OUTSIDE.items():
        text = re.sub(rf"\]\((?:\.\./)?{old}(#[^)]*)?\)", lambda m, new=new: f"]({new}{m[1] or ''})", text)
    return re.sub(
        r"\[([^\]]*)\]\((?:\.\./)+((?:src|examples|tests|benchmarks|README)[^)#]*)[^)]*\)", r"\1 (`\2`)", text
    )


def _paths(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    if isinstance(nav, dict):
        return [path for value in nav.values() for path in _paths(value)]
    return [path for entry in nav or () for path in _paths(entry)]
