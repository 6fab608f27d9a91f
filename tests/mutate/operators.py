"""Mutants of a C file, from its syntax tree (libclang): small mistakes as a programmer could make them.

A mutant is an edit of one place: bytes [start, end) become `after`. Arguments of macros (as of assert()) and quoted text are left alone.
"""
import re

from clang.cindex import Cursor, CursorKind as K, Index, TranslationUnit, TypeKind

SWAPS = {
    "<": ["<=", ">="], "<=": ["<", ">"], ">": [">=", "<="], ">=": [">", "<"], "==": ["!="], "!=": ["=="],
    "+": ["-"], "-": ["+"], "*": ["/"], "/": ["*"], "%": ["*"], "&&": ["||"], "||": ["&&"], "&": ["|"], "|": ["&"], "^": ["&"],
    "<<": [">>"], ">>": ["<<"], "+=": ["-="], "-=": ["+="], "*=": ["/="], "/=": ["*="], "%=": ["*="], "|=": ["&="],
    "&=": ["|="], "^=": ["&="], "<<=": [">>="], ">>=": ["<<="], "++": ["--"], "--": ["++"],
}
RELATIONAL = {"<", "<=", ">", ">=", "==", "!="}
LOGICAL = {"&&", "||"}
BITS = {"&", "|", "^", "<<", ">>", "|=", "&=", "^=", "<<=", ">>="}
CALLS = {"fmin": "fmax", "fmax": "fmin", "fminf": "fmaxf", "fmaxf": "fminf", "floor": "ceil", "ceil": "floor", "log": "exp",
         "exp": "log", "sqrt": "fabs", "isnan": "isinf", "isinf": "isnan", "strncmp": "strncasecmp"}
BLOCKS = {K.COMPOUND_STMT, K.CASE_STMT, K.DEFAULT_STMT, K.LABEL_STMT}
BRANCHES = {K.IF_STMT, K.WHILE_STMT, K.DO_STMT, K.FOR_STMT, K.SWITCH_STMT}
NUMBERS = {TypeKind.INT, TypeKind.UINT, TypeKind.LONG, TypeKind.ULONG, TypeKind.SHORT, TypeKind.USHORT, TypeKind.UCHAR,
           TypeKind.SCHAR, TypeKind.CHAR_S, TypeKind.FLOAT, TypeKind.DOUBLE, TypeKind.LONGLONG, TypeKind.ULONGLONG}


class Mutant:
    def __init__(self, start, end, after, operator, function, first, last):
        self.start, self.end, self.after, self.operator, self.function = start, end, after, operator, function
        self.first, self.last = first, last    # lines of the surrounding statement: a test that reaches one of them reaches the mutant


class Reader:
    def __init__(self, path, arguments):
        self.unit = Index.create().parse(path, arguments, options=TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD)
        self.path, self.out, self.seen = path, [], set()
        with open(path, "rb") as f:
            self.text = f.read()
        # Nothing inside a macro with arguments is edited; NULL and true are tokens like any other.
        self.macros = [(c.extent.start.offset, c.extent.end.offset) for c in self.unit.cursor.get_children()
                       if c.kind == K.MACRO_INSTANTIATION and self.in_file(c) and self.source(c).rstrip().endswith(")")]

    def in_file(self, c):
        return c.location.file is not None and c.location.file.name == self.path

    def source(self, c):
        return self.text[c.extent.start.offset:c.extent.end.offset].decode()

    def add(self, start, end, after, operator, where):
        before = self.text[start:end].decode()
        if before == after or (start, end, after) in self.seen or any(a < end and start < b for a, b in self.macros):
            return
        self.seen.add((start, end, after))
        self.out.append(Mutant(start, end, after, operator, *where))

    def replace(self, c, after, operator, where):
        self.add(c.extent.start.offset, c.extent.end.offset, after, operator, where)

    def operator_token(self, c):
        """The operator of a binary expression: the first token after its left side."""
        left = next(c.get_children(), None)
        if left is None:
            return None
        for t in c.get_tokens():
            if t.extent.start.offset >= left.extent.end.offset and t.spelling != ")":
                return t
        return None

    def mutants(self):
        for c in self.unit.cursor.get_children():
            if not self.in_file(c):
                continue
            if c.kind == K.FUNCTION_DECL and c.is_definition():
                self.walk(c, None, (c.spelling, c.extent.start.line, c.extent.end.line))
            elif c.kind == K.VAR_DECL:
                self.walk(c, None, (c.spelling, 0, 0))
        self.out.sort(key=lambda m: (m.start, m.end, m.after))
        return self.out

    def walk(self, c, parent, where):
        children = list(c.get_children())
        self.parent = parent
        getattr(self, "on_" + c.kind.name.lower(), lambda *_: None)(c, children, where)
        for i, child in enumerate(children):
            inner = where
            statement = c.kind in BLOCKS or (c.kind in BRANCHES and not child.kind.is_expression()) or \
                (c.kind in (K.IF_STMT, K.WHILE_STMT) and i > 0) or (c.kind == K.FOR_STMT and i == len(children) - 1)
            if (statement and child.kind not in BRANCHES | BLOCKS) or (c.kind in BRANCHES and child.kind.is_expression()):
                inner = (where[0], child.extent.start.line, child.extent.end.line)
            if statement:
                self.deleted(child, inner)
            if child.extent.start.file is not None and child.extent.start.file.name == self.path:
                self.walk(child, c, inner)

    # ---- statements

    def deleted(self, c, where):
        operator = None
        if c.kind == K.CALL_EXPR:
            operator = "call deleted"
        elif c.kind in (K.COMPOUND_ASSIGNMENT_OPERATOR, K.UNARY_OPERATOR):
            operator = "update deleted"
        elif c.kind == K.BINARY_OPERATOR:
            t = self.operator_token(c)
            operator = "assignment deleted" if t is not None and t.spelling == "=" else None
        if operator:
            self.replace(c, "(void)0", operator, where)

    def on_if_stmt(self, c, children, where):
        where = (where[0], children[0].extent.start.line, children[0].extent.end.line)
        self.condition(children[0], where)
        self.replace(children[0], "0 && (%s)" % self.source(children[0]), "condition never", where)

    def on_conditional_operator(self, c, children, where):
        self.condition(children[0], where)

    def condition(self, c, where):
        t = self.operator_token(c) if c.kind == K.BINARY_OPERATOR else None
        if t is None or t.spelling not in RELATIONAL:    # relational operators are swapped with their opposite
            self.replace(c, "!(%s)" % self.source(c), "condition negated", where)

    def on_break_stmt(self, c, children, where):
        self.replace(c, "continue", "break to continue", where)

    def on_continue_stmt(self, c, children, where):
        self.replace(c, "break", "continue to break", where)

    def on_return_stmt(self, c, children, where):
        if not children:
            return
        value, text = children[0], self.source(children[0])
        if value.type.kind == TypeKind.BOOL or text in ("true", "false"):
            for after in ("true", "false"):
                self.replace(value, after, "return " + after, where)
        elif value.type.get_canonical().kind in NUMBERS and not re.fullmatch(r"-?\d+", text):
            self.replace(value, "0", "return 0", where)

    # ---- expressions

    def on_binary_operator(self, c, children, where):
        t = self.operator_token(c)
        if t is None or len(children) != 2:
            return
        op, a, b = t.spelling, t.extent.start.offset, t.extent.end.offset
        kind = "relational" if op in RELATIONAL else "logical" if op in LOGICAL else "bits" if op in BITS else "arithmetic"
        for after in SWAPS.get(op, []):
            self.add(a, b, after, kind, where)
        if op in LOGICAL:
            for keep in children:
                self.replace(c, self.source(keep), "operand dropped", where)

    def on_compound_assignment_operator(self, c, children, where):
        self.on_binary_operator(c, children, where)

    def on_unary_operator(self, c, children, where):
        tokens = list(c.get_tokens())
        for t in (tokens[0], tokens[-1]) if tokens else ():
            if t.spelling in ("++", "--"):
                if self.parent.kind != K.FOR_STMT:    # an endless loop is no useful mutant
                    self.add(t.extent.start.offset, t.extent.end.offset, SWAPS[t.spelling][0],
                             "arithmetic", where)
                return
        if tokens and tokens[0].spelling in ("!", "-", "~"):
            self.add(tokens[0].extent.start.offset, tokens[0].extent.end.offset, "", "sign dropped", where)

    def on_integer_literal(self, c, children, where):
        m = re.fullmatch(r"(0[xX][0-9a-fA-F]+|\d+)([uUlL]*)", self.source(c))
        if m is None:
            return
        n = int(m[1], 8 if re.fullmatch(r"0\d+", m[1]) else 0)
        for after in {0: [1], 1: [0, 2]}.get(n, [n + 1, n - 1]):
            self.replace(c, "%d%s" % (after, m[2]), "constant", where)

    def on_floating_literal(self, c, children, where):
        text = self.source(c)
        zero = re.fullmatch(r"0*\.?0*f?", text) is not None
        suffix = "f" if text.endswith("f") else ""
        self.replace(c, "1.0" + suffix if zero else "(%s * 2)" % text, "constant", where)

    def on_cxx_bool_literal_expr(self, c, children, where):
        self.replace(c, {"true": "false", "false": "true"}.get(self.source(c), self.source(c)), "constant", where)

    def on_call_expr(self, c, children, where):
        name = c.spelling
        if name in CALLS and self.source(children[0]) == name:
            self.replace(children[0], CALLS[name], "other function", where)
        args = list(c.get_arguments())
        for x, y in zip(args, args[1:]) if not re.search(r"alloc|^fm(in|ax)f?$", name) else ():
            if x.type.get_canonical().spelling == y.type.get_canonical().spelling and self.source(x) != self.source(y):
                between = self.text[x.extent.end.offset:y.extent.start.offset].decode()
                self.add(x.extent.start.offset, y.extent.end.offset, self.source(y) + between + self.source(x),
                         "arguments swapped", where)

    def on_member_ref_expr(self, c, children, where):
        """Replaces a field by the next one of the same type in its struct."""
        field = c.referenced
        if field is None or field.kind != K.FIELD_DECL or not isinstance(field.semantic_parent, Cursor):
            return
        alike = [f.spelling for f in field.semantic_parent.get_children() if f.kind == K.FIELD_DECL
                 and f.type.get_canonical().spelling == field.type.get_canonical().spelling and f.spelling]
        if len(alike) < 2 or field.spelling not in alike:
            return
        end = c.extent.end.offset
        start = end - len(field.spelling.encode())
        if self.text[start:end].decode() == field.spelling:
            self.add(start, end, alike[(alike.index(field.spelling) + 1) % len(alike)], "other field", where)

    def on_init_list_expr(self, c, children, where):
        """Drops designated initialisers, one at a time."""
        spans = [(e.extent.start.offset, e.extent.end.offset) for e in children]
        for i, (a, b) in enumerate(spans):
            if self.text[a:a + 1] not in (b".", b"[") or re.search(rb'= *"[^"]* ', self.text[a:b]):
                continue    # no messages
            if len(spans) == 1:
                self.add(a, b, "0", "initialiser deleted", where)
            else:
                comma = self.text.find(b",", b)
                end = comma + 1 if i + 1 < len(spans) and b <= comma <= spans[i + 1][0] else b
                self.add(a, end, "", "initialiser deleted", where)


def mutants_of(path, arguments):
    return Reader(path, arguments).mutants()
