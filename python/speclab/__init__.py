"""speclab - tools around the engine: imports, exports, figures, tables, conversion of checkpoints.

The engine, its experiments, its database and its proofs are C; this package reads what they write (docs/architecture.md).
"""

__version__ = "0.1.0"


def open(path: str, experiment: str | None = None):
    """A database of results as data frames: speclab.results.Results."""
    from speclab.results import Results

    return Results(path, experiment)
