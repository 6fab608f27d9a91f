"""Mutants of the database's SQL: a small tokenizer, and words and operators that are exchanged for others."""
import re

from operators import Mutant

TOKEN = re.compile(r"--[^\n]*|'(?:[^']|'')*'|\"[^\"]*\"|[A-Za-z_][A-Za-z_0-9]*|\d+\.\d+|\d+|<=|>=|<>|!=|==|\|\||\s+|.", re.S)
SIGNS = {"<": ["<=", ">="], "<=": ["<", ">"], ">": [">=", "<="], ">=": [">", "<"], "=": ["<>"], "<>": ["="], "+": ["-"],
         "-": ["+"], "*": ["/"], "/": ["*"]}
WORDS = {"AND": ["OR"], "OR": ["AND"], "sum": ["max"], "max": ["min"], "min": ["max"], "avg": ["max"], "count": ["max"],
         "DESC": [""], "DISTINCT": [""], "ALL": [""], "EXISTS": ["NOT EXISTS"], "LEFT": [""], "JOIN": ["LEFT JOIN"],
         "coalesce": ["nullif"], "sqrt": ["abs"], "CROSS": ["LEFT"]}


def mutants_of(path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    tokens = [(m.start(), m[0]) for m in TOKEN.finditer(text) if not m[0].isspace() and not m[0].startswith("--")]
    out, name, statement = [], "", 0
    line = lambda at: text.count("\n", 0, at) + 1
    size = lambda at: len(text[:at].encode())

    def add(at, old, new, operator):
        out.append(Mutant(size(at), size(at) + len(old.encode()), new, operator, name, line(statement), line(at)))

    for i, (at, t) in enumerate(tokens):
        word = lambda k: tokens[i + k][1] if 0 <= i + k < len(tokens) else ""
        if t in ("CREATE", "DROP"):
            statement = at
        if word(-1) in ("VIEW", "TABLE", "INDEX") and word(-2) == "CREATE":
            name = t
        if t == "*" and (word(-1) in ("SELECT", "(", ",", ".")):
            continue
        for new in SIGNS.get(t, []):
            add(at, t, new, "sql sign")
        for new in WORDS.get(t, []):
            if not (t == "JOIN" and word(-1) in ("LEFT", "CROSS")) and not (t == "count" and word(2) == "*"):
                add(at, t, new, "sql word")
        if t == "NULL" and word(-1) in ("IS", "NOT") and (word(-1) == "IS" or word(-2) == "IS"):
            start = tokens[i - 1][0]
            add(start, text[start:at + 4], "NULL" if word(-1) == "NOT" else "NOT NULL", "sql word")
        if t == "NOT" and word(-1) != "IS" and word(1) != "NULL":
            add(at, t, "", "sql word")
        if re.fullmatch(r"\d+", t):
            for n in {0: [1], 1: [0, 2]}.get(int(t), [int(t) + 1, int(t) - 1]):
                add(at, t, str(n), "sql constant")
        elif re.fullmatch(r"\d+\.\d+", t):
            add(at, t, "(%s + 1)" % t, "sql constant")
    return out
