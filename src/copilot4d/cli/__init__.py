"""The command line: one file per verb, each an `Options` dataclass and a `run(options)`; `main.py` holds the table."""
