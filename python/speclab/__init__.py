"""speclab - tools around the engine: imports, exports, figures, tables, conversion of checkpoints.

The engine, its experiments, its database and its proofs are C; this package reads what they write
(docs/architecture.md).
"""

__version__ = "0.2.0"


def open(path: str, experiment: str | None = None):
    """Opens a database of results as data frames: speclab.results.Results."""
    from speclab.results import Results

    return Results(path, experiment)


_PLUGINS = ("Drafter", "Rule", "Wrong", "FINAL", "DETERMINISTIC", "SAMPLED", "DISTINCT")
_DECODING = ("Target", "Text", "Tokenizer", "decode")


def __getattr__(name: str):
    """The classes of plugins and what notebooks use, with numpy only where they are used."""
    if name in _PLUGINS:
        from speclab import plugins

        return getattr(plugins, name)
    if name in _DECODING:
        from speclab import decoding

        return getattr(decoding, name)
    if name == "Fault":
        from speclab.command import Fault

        return Fault
    raise AttributeError(f"module speclab has no attribute {name}")
