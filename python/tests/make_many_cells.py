#!/usr/bin/env python3
"""make_many_cells.py FROM.db TO.db CELLS - a database of many cells from one of few, by SQL: its runs again and again, under other names and with
other times. Every fifth copy is a group of settings of its own (another seed), with none and pairs; the others join the group that they are copied
from. --hostile: names that mean something to a shell, to SQL or to HTML."""
import shutil
import sqlite3
import sys

HOSTILE = ("""50% 5%g</script><script>alert(1)</script> 'q' "d" `touch hostile` $(touch hostile) a_b^{c} @x \\n &amp; <b> ''); DROP TABLE run; --"""
           "\n; !touch hostile 模型\U0001f600")


def columns(db, table):
    return [row[1] for row in db.execute(f"PRAGMA table_info({table})")]


def copy(db, table, where, **change):
    """Rows of a table once more; a change is an expression over the old row."""
    names = columns(db, table)
    values = ", ".join(change.get(name, name) for name in names)
    db.execute(f"INSERT INTO {table} ({', '.join(names)}) SELECT {values} FROM {table} WHERE {where}")


def copy_runs(db, k, offset, last):
    """The k-th copy of the runs up to id `last`; ids grow by k * offset of their table."""
    run, sequence, pair = (k * offset[table] for table in ("run", "sequence", "pair"))
    alone = k % 5 == 0
    which = f"id <= {last}" + ("" if alone else " AND drafter_kind <> 'none'")
    factor = f"{0.7 + (k * 0.618) % 0.6:.3f}"
    drafter = f"replace(drafter, ')', ', copy={k})')"
    if alone:
        copy(db, "run", which, id=f"id + {run}", cell=f"cell || '-{k}'", peers=f"peers || '-{k}'", seed=str(k + 1),
             settings=f"json_set(settings, '$.seed', {k + 1})")
        copy(db, "pair", f"id <= {offset['pair']}", id=f"id + {pair}", uuid="lower(hex(randomblob(16)))")
    else:
        copy(db, "run", which, id=f"id + {run}", cell=f"cell || '-{k}'", drafter=drafter,
             drafter_options=f"iif(drafter LIKE '%)', json_set(drafter_options, '$.copy', '{k}'), drafter_options)")
    sequences = f"run IN (SELECT id FROM run WHERE {which}) AND id <= {offset['sequence']}"
    copy(db, "sequence", sequences, id=f"id + {sequence}", run=f"run + {run}", pair=f"pair + {pair if alone else 0}",
         decode_ns=f"CAST(decode_ns * {factor} AS INTEGER)")
    copy(db, "step", f"sequence IN (SELECT id FROM sequence WHERE {sequences})", sequence=f"sequence + {sequence}",
         **{name: f"CAST({name} * {factor} AS INTEGER)" for name in ("propose_ns", "verify_ns", "advance_ns", "at_ns")})


def main():
    arguments = [word for word in sys.argv[1:] if word != "--hostile"]
    if len(arguments) != 3:
        sys.exit(__doc__)
    source, to, cells = arguments[0], arguments[1], int(arguments[2])
    shutil.copyfile(source, to)
    db = sqlite3.connect(to)
    offset = {table: db.execute(f"SELECT max(id) FROM {table}").fetchone()[0] for table in ("run", "sequence", "pair")}
    if "--hostile" in sys.argv:
        db.execute("UPDATE run SET experiment = 'x' || ?, drafter = drafter || ?, rule = rule || ?, target = target || ?, machine = ?, revision = ?,"
                   " sampling = sampling || ?", (HOSTILE,) * 7)
        db.execute("UPDATE sequence SET category = category || ?, prompt_id = ?", (HOSTILE, HOSTILE))
        db.execute("UPDATE bench SET target = ?", (HOSTILE,))
    k = 0
    while db.execute("SELECT count(*) FROM run").fetchone()[0] < cells:
        k += 1
        copy_runs(db, k, offset, offset["run"])
    db.execute("DELETE FROM run WHERE id IN (SELECT id FROM run ORDER BY id DESC LIMIT max(0, (SELECT count(*) FROM run) - ?))", (cells,))
    db.commit()
    print(f"{to}: {cells} cells, {db.execute('SELECT count(*) FROM step').fetchone()[0]} steps")


main()
