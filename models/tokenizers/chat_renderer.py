"""chat_renderer.py - renders a model's chat template with Jinja2, as transformers' apply_chat_template does.
chat_process.c runs it.

The first line of input is {"template": "..", "variables": {..}, "tokens": {"bos_token": "<s>", ..}, "now": "2025-01-31"
or null}. Each rendering has a line {"messages": [..], "add_generation_prompt": true}. Each line is answered by {"text":
".."} or {"error": "..", "line": 3}. Templates come from strangers: they run in Jinja2's sandbox, without files,
processes or much memory, and the parent limits the time. The program ends with its parent, even in the middle of a
rendering.
"""
import json
import sys

MEMORY = 1 << 30
OUTPUT = 1 << 24  # characters
SECONDS = 30      # limit of a rendering; the parent has a shorter one, unless it has been killed


def answer(value):
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


try:
    import datetime
    import fcntl
    import os
    import resource
    import signal
    import traceback

    import jinja2
    import jinja2.debug
    import jinja2.ext
    import jinja2.nodes
    import jinja2.sandbox
except ImportError as e:
    answer({"error": f"Python lacks {e.name}; on Debian: apt install python3-jinja2"})
    sys.exit(1)


class Generation(jinja2.ext.Extension):
    """{% generation %} .. {% endgeneration %} marks the assistant's text for training; here it renders the text itself.
    """
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        return jinja2.nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def line_of(error):
    """Returns the template's line where the error happened."""
    if isinstance(error, jinja2.exceptions.TemplateSyntaxError):
        return error.lineno
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == "<template>"]
    return lines[-1] if lines else None


def failed(error):
    text = str(error) or type(error).__name__
    if isinstance(error, MemoryError):
        text = f"it needs more than {MEMORY >> 20} MiB"
    elif isinstance(error, RecursionError):
        text = "it calls itself without end"
    elif not isinstance(error, jinja2.exceptions.TemplateError):
        text = f"{type(error).__name__}: {text}"
    if "strftime_now" in text:
        text += '; a template that writes the date gets it as a variable: {"now": "2025-01-31"}'
    answer({"error": " ".join(text.split())[:500], "line": line_of(error)})


def render(template, given):
    parts, size = [], 0
    for part in template.generate(**given):
        size += len(part)
        if size > OUTPUT:
            raise jinja2.exceptions.TemplateError(f"its text is longer than {OUTPUT} characters")
        parts.append(part)
    return "".join(parts)


def environment(now):
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    if now is not None:
        date = datetime.datetime.fromisoformat(now)
        env.globals["strftime_now"] = date.strftime
    return env


def main():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.alarm(SECONDS)
    # Nothing is ever written to descriptor 2. It closes when the parent ends, and the signal of that ends this process,
    # even in a loop of C code.
    fcntl.fcntl(2, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(2, fcntl.F_SETFL, fcntl.fcntl(2, fcntl.F_GETFL) | os.O_ASYNC)
    start = json.loads(sys.stdin.readline())
    try:
        template = environment(start["now"]).from_string(start["template"])
    except Exception as e:  # noqa: BLE001 - whatever a template does is an answer
        failed(e)
        return
    for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC, resource.RLIMIT_CORE):
        resource.setrlimit(limit, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))   # nothing more is opened
    answer({"text": ""})
    while True:
        signal.alarm(0)
        line = sys.stdin.readline()
        if not line:
            return
        signal.alarm(SECONDS)
        try:
            given = json.loads(line)
            text = render(template, {**start["tokens"], "tools": None, "documents": None, **start["variables"], **given})
            answer({"text": text})
        except Exception as e:  # noqa: BLE001
            failed(e)


main()
