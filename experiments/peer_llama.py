# peer_llama.py - llama.cpp (through llama-cpp-python) as the engine that `speclab bench --compare` runs beside ours.
#
# The protocol, which any program may speak (`speclab bench --peer-command COMMAND`): lines on stdin, and for those
# that end a question one line on stdout. What goes wrong is answered by "error SENTENCE", and is the end.
#
#     model PATH            the GGUF file
#     threads N
#     rows N                of a pass, at most
#     prompt_tokens N       of the prompt; 0: it will not be asked for
#     contexts C C ...      cached tokens that passes will stand behind
#     option KEY VALUE      as --peer-option KEY=VALUE said; there may be several, or none
#     open                  -> "ready NAME": engine, version, and what else is worth writing down
#     pass N C              -> seconds of a pass: N rows behind C cached tokens, a chain, with logits of every row; what
#                              it wrote is forgotten. The same pass is run before it, untimed, as ours is.
#     prompt                -> seconds of the prompt from an empty cache, with the logits of its last row
#     (end of input)        it ends
#
# Threads must not look for work for long after an answer: ours begins 25 ms later. Tokens are arbitrary.
import ctypes
import sys
import time

try:
    import llama_cpp
    from llama_cpp import llama_cpp as L
except ImportError:
    print(f"error {sys.executable} has no llama-cpp-python (./run bench ... --compare sets it up; otherwise: "
          "pip install llama-cpp-python, and SPECLAB_PYTHON names the python that has it)", flush=True)
    sys.exit(1)


class Refused(Exception):
    pass


last_words = []


@L.llama_log_callback
def log(level, text, _):
    words = text.decode("utf-8", "replace").strip()
    if level == 4 and words:  # an error; shown only if something is refused
        last_words.append(words)


def refuse(what):
    raise Refused(what + (": " + last_words[-1] if last_words else ""))


def version():
    try:
        base = ctypes.CDLL("libggml-base.so") if not hasattr(L, "_lib") else L._lib
        base.ggml_version.restype = base.ggml_commit.restype = ctypes.c_char_p
        return f", ggml {base.ggml_version().decode()} {base.ggml_commit().decode()}"
    except (AttributeError, OSError):
        return ""


def forget(context, length):
    if hasattr(L, "llama_memory_seq_rm"):
        L.llama_memory_seq_rm(L.llama_get_memory(context), 0, length, -1)
    else:  # until summer 2025
        L.llama_kv_self_seq_rm(context, 0, length, -1)


class Engine:
    def __init__(self, said, contexts, options):
        self.prompt, self.options = said["prompt_tokens"], options
        self.model = L.llama_model_load_from_file(said["model"].encode(), L.llama_model_default_params())
        if not self.model:
            refuse(f"llama.cpp does not read {said['model']}")
        most = max(said["rows"], said["prompt_tokens"], 64)
        self.batch = L.llama_batch_init(most, 0, 1)
        vocab, x = L.llama_vocab_n_tokens(L.llama_model_get_vocab(self.model)), 1
        for i in range(most):
            x = (x * 1664525 + 1013904223) % 2**32
            self.batch.token[i] = (x >> 8) % vocab
            self.batch.n_seq_id[i] = 1
            self.batch.seq_id[i][0] = 0
        self.behind = {c: self.context(said, c + said["rows"], said["rows"]) for c in contexts}
        for c, context in self.behind.items():
            for at in range(0, c, 64):
                self.decode(context, at, min(64, c - at), False)
        if self.prompt:
            self.fresh = self.context(said, self.prompt, 1)

    # One for each number of cached tokens: sequences of one context would be looked at together.
    def context(self, said, length, outputs):
        p = L.llama_context_default_params()
        p.n_ctx = length
        p.n_threads = p.n_threads_batch = said["threads"]
        p.n_batch = max(p.n_batch, length)
        if getattr(p, "n_outputs_max", 0):
            p.n_outputs_max = max(p.n_outputs_max, outputs)
        for key, value in self.options:
            if not hasattr(p, key):
                raise Refused(f"llama_context_params has no {key}")
            setattr(p, key, type(getattr(p, key))(int(value)))
        context = L.llama_init_from_model(self.model, p)
        if not context:
            refuse(f"llama.cpp made no context of {length} tokens")
        return context

    def decode(self, context, at, n, all_logits):
        b = self.batch
        b.n_tokens = n
        for i in range(n):
            b.pos[i] = at + i
            b.logits[i] = all_logits or i == n - 1
        from_ = time.perf_counter()
        status = L.llama_decode(context, b)
        L.llama_synchronize(context)
        took = time.perf_counter() - from_
        if status != 0:
            refuse(f"llama_decode answered {status} to {n} rows behind {at}")
        return took

    def run_pass(self, n, c):
        context = self.behind[c]
        for _ in range(2):
            took = self.decode(context, c, n, True)
            forget(context, c)
        return took

    def run_prompt(self):
        forget(self.fresh, 0)
        return self.decode(self.fresh, 0, self.prompt, False)


def serve():
    said, contexts, options, engine = {}, [], [], None
    for line in sys.stdin:
        word, _, rest = line.rstrip("\n").partition(" ")
        if word == "model":
            said[word] = rest
        elif word == "contexts":
            contexts = [int(c) for c in rest.split()]
        elif word == "option":
            options.append(rest.split(" ", 1))
        elif word == "open":
            engine = Engine(said, contexts, options)
            info = L.llama_print_system_info().decode().strip().rstrip("|").strip()
            chosen = "".join(f", {key}={value}" for key, value in options)
            print(f"ready llama.cpp (llama-cpp-python {llama_cpp.__version__}{version()}{chosen}): {info}", flush=True)
        elif word == "pass":
            print(engine.run_pass(*map(int, rest.split())), flush=True)
        elif word == "prompt":
            print(engine.run_prompt(), flush=True)
        else:
            said[word] = int(rest)


L.llama_log_set(log, None)
L.llama_backend_init()
try:
    serve()
except Refused as e:
    print("error", e, flush=True)
except KeyboardInterrupt:
    pass
