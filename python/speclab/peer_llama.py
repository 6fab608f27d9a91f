# peer_llama.py - llama.cpp (through llama-cpp-python) as a peer of `speclab bench --compare`: it takes the same
# measurements on the same file in the same rounds.
#
# The protocol, which any program can implement (`speclab bench --peer-command COMMAND`): requests are lines on stdin;
# those marked with -> are answered by one line on stdout. On an error the peer prints "error MESSAGE" and exits.
#
#     model PATH            the GGUF file
#     threads N
#     rows N                maximum rows of a slot in a pass
#     prompt_tokens N       length of the prompt; 0: no prompt is measured
#     contexts C C ...      numbers of cached tokens of a slot before a pass
#     slots S S ...         -> "slots". Numbers of slots of a pass, sent if any is not 1. Each slot has its own sequence
#     option KEY VALUE      --peer-option KEY=VALUE; any number of these. Here: a number of llama_context_params or
#                           llama_model_params. Arguments KEY=VALUE of this program mean the same
#     open                  -> "ready NAME": engine, version and build information
#     pass N C [S]          -> seconds of a pass: N rows in each of S slots (1 if not given) after C cached tokens of
#                              that slot, a chain, with the logits of every row; the rows are removed from the cache
#                              afterwards. An untimed warm-up pass precedes it, as in speclab
#     prompt                -> seconds of the prompt from an empty cache, with the logits of its last row
#     (end of input)        the peer exits
#
# Threads must not spin for long after an answer: speclab's measurement begins 25 ms later. Tokens are arbitrary.
#
# Flash attention makes llama.cpp's long prompts faster (by 16 %) and its short passes slower (after 128 tokens: one row
# by 14 %, 5 by 31 %, 16 by 41 %). So there are contexts with and without it, and each pass runs in the one that was
# faster in a trial, as for a user who tunes it. --peer-option flash_attn_type=-1: llama.cpp decides; 0: never; 1:
# always. Slots are sequences of one llama_batch, each with its own cache (kv_unified=0, the default).
import ctypes
import os
import sys
import time

answers = os.fdopen(os.dup(1), "w", buffering=1)  # llama.cpp's aborts print to stdout
os.dup2(2, 1)
os.environ["GGML_NO_BACKTRACE"] = "1"


def answer(*words):
    try:
        print(*words, file=answers)
    except BrokenPipeError:  # the bench has ended
        os._exit(1)


try:
    import llama_cpp
    from llama_cpp import llama_cpp as L
except ImportError:
    answer(f"error {sys.executable} has no llama-cpp-python (./run bench ... --compare sets it up; otherwise: "
          "pip install llama-cpp-python, and SPECLAB_PYTHON names the python that has it)")
    sys.exit(1)
except (OSError, RuntimeError) as e:
    answer(f"error {sys.executable} does not load its llama-cpp-python: {e}")
    sys.exit(1)


class Refused(Exception):
    pass


errors = []  # llama.cpp's error messages


@L.llama_log_callback
def log(level, text, _):
    message = text.decode("utf-8", "replace").strip()
    if level == 4 and message:  # an error; printed only if a request fails
        errors.append(message)


def refuse(message):
    raise Refused(message + (": " + errors[-1] if errors else ""))


def version():
    try:
        base = ctypes.CDLL("libggml-base.so") if not hasattr(L, "_lib") else L._lib
        base.ggml_version.restype = base.ggml_commit.restype = ctypes.c_char_p
        return f", ggml {base.ggml_version().decode()} {base.ggml_commit().decode()}"
    except (AttributeError, OSError):
        return ""


def forget(context, slots, length):
    for slot in range(slots):
        L.llama_memory_seq_rm(L.llama_get_memory(context), slot, length, -1)


class Engine:
    def __init__(self, settings, options):
        contexts, slots, self.options = settings["contexts"], settings["slots"], options
        (rows,), (self.prompt,), (self.threads,) = (settings[key] for key in ("rows", "prompt_tokens", "threads"))
        p = L.llama_model_default_params()
        for key, _ in options:
            if not hasattr(p, key) and not hasattr(L.llama_context_params, key):
                raise Refused(f"neither llama_context_params nor llama_model_params has {key}")
        self.apply(p)
        self.model = L.llama_model_load_from_file(settings["model"].encode(), p)
        if not self.model:
            refuse(f"llama.cpp cannot read {settings['model']}")
        max_rows = max(rows * slots[-1], self.prompt, 64)
        self.batch = L.llama_batch_init(max_rows, 0, 1)
        vocab, x = L.llama_vocab_n_tokens(L.llama_model_get_vocab(self.model)), 1
        for i in range(max_rows):
            x = (x * 1664525 + 1013904223) % 2**32
            self.batch.token[i] = (x >> 8) % vocab
            self.batch.n_seq_id[i] = 1
        self.faster = {}  # the faster context by (rows, cached, slots) or "prompt"
        given = any(key == "flash_attn_type" for key, _ in options)
        self.kinds = [None] if given else [0, 1]
        self.filled = {(c, s): [self.context(s, c + rows, rows, k) for k in self.kinds] for c in contexts for s in slots}
        for (c, s), both in self.filled.items():
            for context in both:
                self.fill(context, s, c)
        self.empty = [self.context(1, self.prompt, 1, k) for k in self.kinds] if self.prompt else []

    def apply(self, params):
        for key, value in self.options:
            if hasattr(params, key):
                try:
                    setattr(params, key, type(getattr(params, key))(float(value)))
                except (TypeError, ValueError):
                    raise Refused(f"{key}={value}: expected a number, for a numeric field") from None

    # One llama_context for each number of cached tokens: attention visits all sequences of a context.
    def context(self, slots, length, outputs, flash):
        p = L.llama_context_default_params()
        p.n_ctx = slots * length
        p.n_seq_max = slots
        p.n_threads = p.n_threads_batch = self.threads
        p.n_batch = max(p.n_batch, length)
        if getattr(p, "n_outputs_max", 0):
            p.n_outputs_max = max(p.n_outputs_max, slots * outputs)
        if flash is not None:
            p.flash_attn_type = flash
        self.apply(p)
        self.separate = not getattr(p, "kv_unified", True)  # slots do not share their cells
        context = L.llama_init_from_model(self.model, p)
        if not context:
            refuse(f"llama.cpp cannot create a context of {slots} x {length} tokens")
        return context

    def fill(self, context, slots, cached):
        for slot in range(1 if self.separate else slots):
            for at in range(0, cached, 64):
                self.decode(context, slot, 1, at, min(64, cached - at), False)
        for slot in range(1, slots if self.separate else 1):
            L.llama_memory_seq_cp(L.llama_get_memory(context), 0, slot, -1, -1)

    def decode(self, context, first, slots, at, n, all_logits):
        b = self.batch
        b.n_tokens = slots * n
        for i in range(slots * n):
            b.seq_id[i][0] = first + i // n
            b.pos[i] = at + i % n
            b.logits[i] = all_logits or i == n - 1
        from_ = time.perf_counter()
        status = L.llama_decode(context, b)
        L.llama_synchronize(context)
        took = time.perf_counter() - from_
        if status != 0:
            refuse(f"llama_decode returned {status} for {slots} x {n} rows after {at} cached tokens")
        return took

    def choose(self, key, contexts, trials, run):
        if key not in self.faster:
            took = [min(run(c) for _ in range(trials)) for c in contexts] if len(contexts) > 1 else [0]
            self.faster[key] = contexts[took.index(min(took))]
        return self.faster[key]

    def run_pass(self, n, c, s=1):
        def run(context):
            took = self.decode(context, 0, s, c, n, True)
            forget(context, s, c)
            return took

        context = self.choose((n, c, s), self.filled[c, s], 4, run)
        run(context)
        return run(context)

    def run_prompt(self):
        def run(context):
            forget(context, 1, 0)
            return self.decode(context, 0, 1, 0, self.prompt, False)

        return run(self.choose("prompt", self.empty, 1, run))


def serve():
    settings, options, engine = {"slots": [1], "contexts": []}, [word.split("=", 1) for word in sys.argv[1:]], None
    for line in sys.stdin:
        word, _, rest = line.rstrip("\n").partition(" ")
        if word == "option":
            options.append(rest.split(" ", 1))
        elif word == "open":
            engine = Engine(settings, options)
            info = L.llama_print_system_info().decode().strip().rstrip("|").strip()
            chosen = ", flash attention where it is faster" if len(engine.kinds) > 1 else ""
            chosen += "".join(f", {key}={value}" for key, value in options)
            answer(f"ready llama.cpp (llama-cpp-python {llama_cpp.__version__}{version()}{chosen}): {info}")
        elif word == "pass":
            answer(engine.run_pass(*map(int, rest.split())))
        elif word == "prompt":
            answer(engine.run_prompt())
        else:
            settings[word] = rest if word == "model" else [int(n) for n in rest.split()]
            if word == "slots":
                answer("slots")


L.llama_log_set(log, None)
L.llama_backend_init()
try:
    serve()
except Refused as e:
    answer("error", e)
except KeyboardInterrupt:
    pass
except Exception as e:  # a message instead of a traceback: the API of llama-cpp-python changes
    answer(f"error llama-cpp-python {llama_cpp.__version__} is not compatible: {type(e).__name__}: {e}")
