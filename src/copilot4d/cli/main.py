"""`copilot4d VERB ...`: finds the verb, parses its options, runs it, and turns errors into one clear paragraph.

Exit codes: 0 done, 1 the work failed (message on stderr), 2 wrong usage, 130 interrupted, 143 ended by SIGTERM.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from copilot4d.cli.console import console, errors_console
from copilot4d.cli.data_words import with_data_flag
from copilot4d.cli.flags import with_flags
from copilot4d.cli.former_names import present_verb, refuse_former_words
from copilot4d.errors import Copilot4dError, UsageError, did_you_mean
from copilot4d.version import __version__


class Verb(NamedTuple):
    """A verb's module under `copilot4d.cli` (imported only when the verb is used) and its line in the overview."""

    module: str
    summary: str


VERBS: dict[str, Verb] = {
    "demo": Verb("demo", "forecast a simulated street, score it, and write a page with 3D views (about 2 minutes)"),
    "simulate": Verb("simulate", "write simulated drives, with traffic that reacts to the ego"),
    "doctor": Verb("doctor", "check a data set: what is wrong with it, and how to fix it"),
    "train tokenizer": Verb("train_tokenizer", "train the network that encodes sweeps as tokens"),
    "train occupancy-4d": Verb("train_occupancy", "train our variant of the learned baseline 4D-Occ"),
    "train baseline": Verb("train_baseline", "train another system of the paper: st3dcnn, spfnet, s2net, 4d_occ"),
    "evaluate-tokenizer": Verb("evaluate_tokenizer", "score how well a tokenizer reconstructs sweeps"),
    "tokenize": Verb("tokenize", "encode drives as tokens, on which a world model is trained"),
    "train world-model": Verb("train_world_model", "train the network that predicts future tokens"),
    "train depth-selector": Verb("train_depth_selector", "train the choice between rendered and measured depths"),
    "export": Verb("export", "write a trained model into one folder, to share it"),
    "forecast": Verb("forecast", "predict the sweeps that follow a moment of a drive, and write them"),
    "serve": Verb("serve", "play a log in real time, and forecast from its newest sweep"),
    "view": Verb("view", "what-if studio in the browser: draw a path for the ego, see the forecast"),
    "evaluate": Verb("evaluate", "score a model or a baseline on a data set by the field's protocol"),
    "compare": Verb("compare", "compare score files in one table"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    # Idle OpenMP threads sleep instead of spinning: on a machine with other work that saves half of the time. Torch
    # reads it when it is loaded, which has not happened yet. A value that the user has set stays.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    arguments = [a for a in arguments if a != "--debug"]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        console.print(overview(), markup=False, highlight=False)
        return 0
    if arguments[0] in ("-V", "--version"):
        console.print(f"copilot4d {__version__}", highlight=False)
        return 0
    verb: str | None = None
    try:
        if arguments[0] in ("--tyro-print-completion", "--tyro-write-completion"):
            from copilot4d.cli.completion import print_completion

            return print_completion(arguments, {name: options_of(name) for name in VERBS})
        if arguments[0] in ("completion", "__complete"):
            return complete(arguments)
        if is_group(arguments):
            console.print(overview(arguments[0]), markup=False, highlight=False)
            return 0
        verb, rest = split_verb(arguments)
        return run_verb(verb, rest)
    except Copilot4dError as error:
        if debug:
            raise
        message = with_flags(str(error), None if verb is None else options_of(verb))
        errors_console.print(f"copilot4d: {message}", style="red", markup=False, highlight=False)
        return 2 if isinstance(error, UsageError) else 1
    except OSError as error:  # a full disk, a path that may not be written
        if debug:
            raise
        errors_console.print(f"copilot4d: {_about(error)}", style="red", markup=False, highlight=False)
        return 1
    except KeyboardInterrupt as error:
        if debug:
            raise
        errors_console.print("copilot4d: interrupted; what was already written is kept", markup=False)
        return int(getattr(error, "exit_code", 130))


def _about(error: OSError) -> str:
    place = f"{error.filename}: " if error.filename is not None else ""
    return f"{place}{error.strerror or error}. What was written before is kept; --debug shows where it happened"


def split_verb(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """('train tokenizer', rest) or ('doctor', rest): verbs have one word or two."""
    for words in (2, 1):
        verb = " ".join(arguments[:words])
        if verb in VERBS:
            return verb, list(arguments[words:])
        present = present_verb(verb)
        if present is not None:
            raise UsageError(f"`copilot4d {verb}` is called `copilot4d {present}` now")
    group = [verb for verb in VERBS if verb.startswith(f"{arguments[0]} ")]
    if group:
        near = did_you_mean(" ".join(arguments[:2]), group)
        raise UsageError(f"`copilot4d {arguments[0]}` needs one of: {', '.join(group)}{near}")
    near = did_you_mean(arguments[0], [*VERBS, *(verb.split()[0] for verb in VERBS)], "copilot4d ")
    known = "" if near else f"; the verbs are: {', '.join(VERBS)}"
    raise UsageError(f"there is no verb {arguments[0]!r}{near}{known}. Try: copilot4d --help")


def run_verb(verb: str, arguments: Sequence[str]) -> int:
    """Parse a verb's own options and run it."""
    import tyro

    refuse_former_words(verb, arguments)
    kind = options_of(verb)
    options = tyro.cli(kind, args=with_data_flag(kind, arguments), prog=f"copilot4d {verb}")
    if hasattr(options, "check"):  # what can be told before torch is loaded
        options.check()
    if getattr(options, "submit", None) is not None:
        from copilot4d.cli import submit

        if submit.is_to_be_submitted(options):
            return submit.submit(verb, arguments, options)
    return int(importlib.import_module(f"copilot4d.cli.{VERBS[verb].module}").run(options))


def options_of(verb: str) -> Any:
    """The type of a verb's options. Its own file imports next to nothing, so that help and wrong options come at once;
    a verb that needs nothing heavy may have it beside its `run`.
    """
    module = VERBS[verb].module
    folder = "copilot4d.cli.options" if importlib.util.find_spec(f"copilot4d.cli.options.{module}") else "copilot4d.cli"
    return importlib.import_module(f"{folder}.{module}").Options


def is_group(arguments: Sequence[str]) -> bool:
    """`copilot4d train`, alone or with --help: the first word of several verbs."""
    return any(verb.startswith(f"{arguments[0]} ") for verb in VERBS) and (
        len(arguments) == 1 or arguments[1] in ("-h", "--help")
    )


def complete(arguments: Sequence[str]) -> int:
    """`completion SHELL` prints the lines for the shell's start-up file; `__complete WORDS` answers them."""
    from copilot4d.cli.complete import SCRIPTS, candidates

    if arguments[0] == "completion":
        if len(arguments) != 2 or arguments[1] not in SCRIPTS:
            raise UsageError(
                f"completion needs the name of your shell: {', '.join(SCRIPTS)} (tcsh and fish: "
                '--tyro-print-completion). Bash: add `eval "$(copilot4d completion bash)"` to ~/.bashrc'
            )
        print(SCRIPTS[arguments[1]], end="")
        return 0
    for word in candidates(arguments[1:], list(VERBS), options_of):
        print(word)
    return 0


def overview(group: str | None = None) -> str:
    """What `copilot4d --help` shows; `copilot4d train --help` shows the verbs of that group."""
    shown = {name: verb for name, verb in VERBS.items() if group is None or name.startswith(f"{group} ")}
    width = max(map(len, shown))
    lines = [
        f"copilot4d {__version__}: lidar world models, from logs on disk to scored forecasts",
        "",
        "usage: copilot4d VERB [options]        copilot4d VERB --help shows its options and an example",
        "",
        *(f"  {name:<{width}}  {verb.summary}" for name, verb in shown.items()),
        "",
        "  --debug (with any verb) shows the traceback of an error",
        "  --version prints the version; copilot4d completion bash|zsh prints the shell completion",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
