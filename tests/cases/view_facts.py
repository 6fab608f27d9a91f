"""view_facts.py - the rows of views_facts.sql, a made-up database: batches, repeats, several pairs, an unfinished pair, pairs whose slices are
disturbed in part or in whole, texts cut by a stop string or by the context, texts without tokens, no category; a prompt whose category changed,
a cell added later, a text that is a prefix of the other's; and benches: one superseded by a later one, one of which no round counts, passes
of several slots, peers that did not run in every round.
"""

import pathlib
import re
import sqlite3

database = sqlite3.connect(":memory:")
database.row_factory = sqlite3.Row
FACTS = {}  # table: rows
for statement in pathlib.Path(__file__).with_name("views_facts.sql").read_text().splitlines():
    table, columns = re.match(r"INSERT INTO (\w+) \((.*?)\) VALUES", statement).groups()
    database.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
    database.execute(statement)
    FACTS[table] = [dict(row) for row in database.execute(f"SELECT * FROM {table} ORDER BY rowid")]
RUN = {r["id"]: r for r in FACTS["run"]}
