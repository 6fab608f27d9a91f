"""results - a database of results as data frames.

     results = speclab.open("demo.db")
     results                      # in a notebook: the summary
     results.cells                # a row for each cell, with the intervals that `speclab report` prints
     results.view("acceptance")   # any view of results/views*.sql
     results.sql("SELECT ...")

Numbers have one source: the views, and what the program computes from them (`speclab report --json`); nothing is
computed here again. Times are integer nanoseconds (`_ns`), speeds are per second (`_per_s`), rates and shares are
fractions of 1 (docs/results.md). p is the target, q the drafter.
"""

import html
from contextlib import AbstractContextManager
from functools import cached_property

import pandas as pd

from speclab import database, engine
from speclab.command import Misuse
from speclab.shown import figure_with_interval

SUMMARY = {"tokens_per_s": "tokens/s", "speedup": "speedup over none", "tokens_per_step": "tokens/step", "acceptance_rate": "accepted, %"}
# The first of these columns that a table or a view has selects the rows of an experiment.
_OWN = {"run": "run IN (SELECT id FROM run WHERE experiment = ?1)",
        "sequence": "sequence IN (SELECT q.id FROM sequence AS q JOIN run AS r ON r.id = q.run WHERE r.experiment = ?1)",
        "experiment": "experiment = ?1"}  # fmt: skip


class Results(AbstractContextManager):
    """A database of results, which is only read. `experiment`: only this one's results; default: all.

    What another process stores meanwhile is in `sql`, `view` and the tables, which are read on each call; `cells` and
    what is made from them are read once. Raises Fault or Misuse, whose text is a sentence.
    """

    def __init__(self, path: str, experiment: str | None = None):
        self.path, self.experiment = str(path), experiment
        self.connection = database.connect(self.path)

    def close(self) -> None:
        self.connection.close()

    def __exit__(self, *_) -> None:
        self.close()

    # ---- tables and views

    def query(self, sql: str, parameters=()) -> tuple[list[str], list[tuple]]:
        """Returns names of the columns of a query over tables and views, and its rows."""
        with database.faults(self.path):
            rows = self.connection.execute(sql, parameters)
            if rows.description is None:
                raise Misuse("sql: expected a query, as SELECT ..")
            return [column[0] for column in rows.description], rows.fetchall()

    def sql(self, query: str, parameters=()) -> pd.DataFrame:
        """Returns the rows of a query. A NULL is NaN or None."""
        names, rows = self.query(query, parameters)
        return pd.DataFrame(rows, columns=names)

    def view(self, name: str) -> pd.DataFrame:
        """Returns all rows of a view, or of a table; docs/results.md and results/views*.sql define its columns."""
        known = [*self.views, *self.tables]
        if name not in known:
            raise Misuse(f'view: expected one of {", ".join(known)}, found "{name}"')
        query = f'SELECT * FROM "{name}"'
        columns, _ = self.query(f"{query} LIMIT 0")
        own = next((where for column, where in _OWN.items() if column in columns), None)
        return self.sql(query) if self.experiment is None or own is None else self.sql(f"{query} WHERE {own}", (self.experiment,))

    @cached_property
    def views(self) -> list[str]:
        """Returns the names of the views."""
        return database.view_names()

    @cached_property
    def tables(self) -> list[str]:
        """Returns the names of the tables."""
        return [name for (name,) in self.connection.execute("SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")]

    @property
    def runs(self) -> pd.DataFrame:
        """Returns a row for each run: its settings (table `run`)."""
        return self.view("run")

    @property
    def texts(self) -> pd.DataFrame:
        """Returns a row for each text that was decoded (table `sequence`), with the run's drafter and rule."""
        return self.sql("SELECT q.*, r.experiment, r.drafter, r.rule, r.sampling FROM sequence AS q JOIN run AS r ON r.id = q.run"
                        " WHERE ?1 IS NULL OR r.experiment = ?1", (self.experiment,))  # fmt: skip

    @property
    def steps(self) -> pd.DataFrame:
        """Returns a row for each step: a pass of the target (table `step`), with its run and prompt."""
        return self.sql("SELECT q.run, q.prompt, q.turn, q.repeat, q.category, t.* FROM step AS t JOIN sequence AS q ON q.id = t.sequence"
                        # fmt: skip.
                        " JOIN run AS r ON r.id = q.run WHERE ?1 IS NULL OR r.experiment = ?1", (self.experiment,))

    # ---- results that the program computes

    @cached_property
    def report(self) -> dict:
        """Returns `speclab report --json` (engine.report)."""
        return engine.report(self.path, self.experiment)

    @property
    def comparisons(self) -> list[dict]:
        """Returns the comparisons of `report`."""
        return self.report["comparisons"]

    @cached_property
    def cells(self) -> pd.DataFrame:
        """Returns a row for each cell: run_summary's columns and the 95 % intervals of its statistics (NAME_low,
        NAME_high).

        `comparison` is the title of its comparison, `name` what distinguishes the cell in it. Acceptance by position is
        in lists.
        """
        rows = [{"comparison": c["title"], **cell} for c in self.comparisons for cell in c["cells"]]
        return pd.DataFrame(rows).drop(columns="by_category", errors="ignore")

    @cached_property
    def by_category(self) -> pd.DataFrame:
        """Returns a row for each cell and category of prompts: speedup and tokens per step with their intervals, and
        the numbers of prompts."""
        return pd.DataFrame([{"comparison": c["title"], "run": cell["run"], "name": cell["name"], **row}
                             # fmt: skip.
                             for c in self.comparisons for cell in c["cells"] for row in cell["by_category"]])

    def against(self, run: int) -> pd.DataFrame:
        """Compares every other run of the same prompts with one, in pairs if there are any (`report --against`)."""
        return pd.DataFrame(engine.objects("report", f"--db={self.path}", "--against", str(run), "--jsonl"))

    def plot(self, name: str) -> list:
        """Returns the pictures of a figure of the page ("speedup_by_category", "sweep", ..), each a figure of
        matplotlib, which can be restyled."""
        from speclab.figures import page

        return page.plots(self, name)

    @property
    def summary(self) -> pd.DataFrame:
        """Returns the report's first table as text, with intervals: a row for each cell."""
        rows = []
        for c in self.comparisons:
            for cell in c["cells"]:
                numbers = {head: figure_with_interval(cell, name, 100 if "%" in head else 1) for name, head in SUMMARY.items()}
                numbers |= {"speedup over none": "1", "accepted, %": ""} if cell["baseline"] else {}
                name = cell["name"] + " *" * (not cell["lossless"])
                rows.append({"comparison": c["title"], "run": cell["run"], "cell": name} | numbers | {"equal texts": cell["equal"]})
        return pd.DataFrame(rows)

    def _repr_html_(self) -> str:
        parts = [f"<p>{html.escape(self.report['disturbed'])}</p>"] if self.report["disturbed"] else []
        table = self.summary
        for c in self.comparisons:
            words = ", ".join(filter(None, [c["target"], c["sampling"], f"batch {c['batch']}", c["common"] and f"all: {c['common']}"]))
            parts.append(f"<p><b>{html.escape(c['title'])}</b>: {html.escape(words)}</p>")
            parts.append(table[table.comparison == c["title"]].drop(columns="comparison").to_html(index=False, border=0))
        return "\n".join(parts)

    def __repr__(self) -> str:
        return f"<speclab.Results of {self.path}: {self.sql('SELECT count(*) FROM run').iat[0, 0]} runs>"
