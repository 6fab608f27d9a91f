#!/usr/bin/env python3
"""torch_reference.py - times passes in transformers, as the reference of `./run gpu bench`.

A pass is n rows after a number of cached tokens, with the logits of every row, as verification needs them. Weights and cache
are random bfloat16 numbers, created on the device. Two ways of running it:

    eager      the plain model with DynamicCache, which is enlarged by copying, as in `generate`
    compiled   StaticCache and torch.compile(mode="reduce-overhead"), once for each n and context: CUDA graphs

Times are medians of CUDA events around the forward call; the cache is reset outside of them. The device's bandwidth is
measured too: of a copy (bytes read and written) and of reading (the best of three reductions).

Compilation takes long, so each model has its share of --seconds; n = 1, 16 and 64 come first. Passes skipped for lack of time
or memory are reported on stderr.

On stdout, a line of JSON for each measurement: engine, what ("llama-8b bf16"), rows, context, seconds, bytes (that the pass
must read: weights once, the cache), runs. And {"what": "bandwidth", "copy": bytes per second, "read": ...}.
Written for transformers 5.17 and torch 2.11; also run with 5.23 and 2.15. Exit status 77: no torch, no transformers or no GPU.
"""
import argparse
import json
import statistics
import sys
import time

SHAPES = {  # layers, width, heads, key-value heads, head_dim, hidden, vocabulary, whether the head is the embedding
    "llama-1b": ("llama", 16, 2048, 32, 8, 64, 8192, 128256, True),
    "llama-8b": ("llama", 32, 4096, 32, 8, 128, 14336, 128256, False),
    "qwen3-8b": ("qwen3", 36, 4096, 32, 8, 128, 12288, 151936, False),
    "tiny-llama": ("llama", 2, 64, 4, 2, 16, 128, 320, True),  # to try this script
    "tiny-qwen3": ("qwen3", 2, 64, 4, 2, 16, 128, 320, False),
}
ROWS = [1, 16, 64, 4, 8, 32]  # the most informative ones first
CONTEXTS = [1024, 8192, 32768]


def say(sentence):
    print(f"torch_reference.py: {sentence}", file=sys.stderr, flush=True)


def emit(**record):
    print(json.dumps(record), flush=True)


try:
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig, Qwen3Config, StaticCache
except ImportError as e:
    say(f"expected torch and transformers in {sys.executable}, found: {e}")
    sys.exit(77)


# ---- time


class Clock:
    def __init__(self, device):
        self.cuda = device.type == "cuda"

    def seconds(self, prepare, run, min_runs, max_seconds):
        """Median time of run(), each after an untimed prepare(): at least min_runs, then until max_seconds or 10 * min_runs."""
        for _ in range(3):
            prepare()
            run()
        self.wait()
        times, began = [], time.monotonic()
        while len(times) < min_runs or (time.monotonic() - began < max_seconds and len(times) < 10 * min_runs):
            times.append(self.one(prepare, run))
        return statistics.median(times), len(times)

    def one(self, prepare, run):
        prepare()
        if not self.cuda:
            began = time.perf_counter()
            run()
            return time.perf_counter() - began
        from_, to = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        from_.record()
        run()
        to.record()
        to.synchronize()
        return from_.elapsed_time(to) * 1e-3

    def wait(self):
        if self.cuda:
            torch.cuda.synchronize()


def measure_bandwidth(device, clock):
    n = (1 << 32 if device.type == "cuda" else 1 << 24) // 4
    if device.type == "cuda":
        n = min(n, torch.cuda.mem_get_info()[0] // 12)
    x = torch.ones(n, dtype=torch.float32, device=device)
    y = torch.empty_like(x)
    copy, _ = clock.seconds(lambda: None, lambda: y.copy_(x), 20, 0.2)
    del y
    matrix, vector = x.view(-1, 4096).view(torch.bfloat16), torch.ones(8192, dtype=torch.bfloat16, device=device)
    readers = [lambda: x.sum(), lambda: x.amax(), lambda: matrix @ vector]
    read = min(clock.seconds(lambda: None, r, 20, 0.2)[0] for r in readers)
    emit(engine="torch", what="bandwidth", copy=8 * n / copy, read=4 * n / read, bytes=4 * n)


# ---- a model and its cache


def config_of(name):
    kind, layers, width, heads, kv_heads, head_dim, hidden, vocabulary, tied = SHAPES[name]
    return (LlamaConfig if kind == "llama" else Qwen3Config)(
        num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head_dim,
        intermediate_size=hidden, vocab_size=vocabulary, tie_word_embeddings=tied, max_position_embeddings=1 << 17)


def model_of(name, device):
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config_of(name), dtype=torch.bfloat16, attn_implementation="sdpa")
    return model.eval()


def cache_bytes(config, tokens):
    return 2 * 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * tokens


def bytes_of(model, rows, context):
    """Every weight once, of a separate embedding only the rows used; keys and values of all attended tokens."""
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    embedding = model.get_input_embeddings().weight
    if model.get_output_embeddings().weight is not embedding:
        weights -= (embedding.shape[0] - rows) * embedding.shape[1] * embedding.element_size()
    return weights + cache_bytes(model.config, context + rows)


class Dynamic:
    """A DynamicCache with `context` tokens, cropped before each pass."""

    def __init__(self, config, context, rows, device):
        self.cache, self.context = DynamicCache(config=config), context
        shape = (1, config.num_key_value_heads, context, config.head_dim)
        for layer in range(config.num_hidden_layers):
            self.cache.update(*(torch.randn(shape, dtype=torch.bfloat16, device=device) for _ in range(2)), layer)

    def reset(self):
        beyond = self.cache.get_seq_length() - self.context
        if beyond > 0:
            self.cache.crop(-beyond)


class Fixed:
    """A StaticCache with capacity for exactly these rows; its length is reset before each pass."""

    def __init__(self, config, context, rows, device):
        self.cache, self.context = StaticCache(config=config, max_cache_len=context + rows), context
        self.cache.early_initialization(1, config.num_key_value_heads, config.head_dim, torch.bfloat16, device)
        for layer in self.cache.layers:
            layer.keys.normal_()
            layer.values.normal_()

    def reset(self):
        for layer in self.cache.layers:
            layer.cumulative_length.fill_(self.context)


class Engine:
    """A model and a way of running it."""

    def __init__(self, name, how, model, device, clock, seconds):
        self.name, self.how, self.model, self.device, self.clock = name, how, model, device, clock
        self.until, self.longest = time.monotonic() + seconds, 0

    def measure(self, rows, context):
        config = self.model.config
        tokens = torch.arange(rows, device=self.device)[None] % config.vocab_size
        cache = (Fixed if self.how == "compiled" else Dynamic)(config, context, rows, self.device)
        forward = self.model
        if self.how == "compiled":
            torch._dynamo.reset()  # and its graphs' memory
            forward = torch.compile(self.model, mode="reduce-overhead", fullgraph=True, dynamic=False)

        def prepare():
            cache.reset()
            if self.how == "compiled":
                torch.compiler.cudagraph_mark_step_begin()

        def run():
            logits = forward(tokens, past_key_values=cache.cache, use_cache=True).logits
            assert logits.shape == (1, rows, config.vocab_size)

        seconds, runs = self.clock.seconds(prepare, run, 10, 0.5)
        emit(engine=f"transformers {self.how}", what=f"{self.name} bf16", rows=rows, context=context, seconds=seconds,
             bytes=bytes_of(self.model, rows, context), runs=runs)

    def measure_all(self, jobs):
        for done, (rows, context) in enumerate(jobs):
            began = time.monotonic()
            if began + self.longest > self.until:
                say(f"{self.name} {self.how}: time for {done} of {len(jobs)} passes, the others are skipped")
                return
            try:
                self.measure(rows, context)
            except torch.OutOfMemoryError:
                say(f"{self.name} {self.how}: {rows} rows after {context} tokens: out of memory, skipped")
            except Exception as e:  # of the compiler: the next pass may work
                first = (str(e).strip().splitlines() or [""])[0]
                say(f"{self.name} {self.how}: {rows} rows after {context} tokens: {type(e).__name__}: {first}")
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            self.longest = max(self.longest, time.monotonic() - began)


def numbers(text):
    return [int(word) for word in text.split(",")]


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog="Read the head of the file for the rest.")
    p.add_argument("--device", default="cuda", help="cuda, or cpu, to try it")
    p.add_argument("--models", default="llama-1b,llama-8b,qwen3-8b", help=", ".join(SHAPES))
    p.add_argument("--how", default="eager,compiled")
    p.add_argument("--rows", type=numbers, default=ROWS)
    p.add_argument("--contexts", type=numbers, default=CONTEXTS)
    p.add_argument("--seconds", type=float, default=1e9, help="limit of the total time")
    a = p.parse_args()
    models, hows = a.models.split(","), a.how.split(",")
    for word, known in [(m, SHAPES) for m in models] + [(h, ["eager", "compiled"]) for h in hows]:
        if word not in known:
            p.error(f'expected one of {", ".join(known)}, found "{word}"')
    if a.device.startswith("cuda") and not torch.cuda.is_available():
        say("expected a GPU that torch can use, found none")
        return 77
    device, until = torch.device(a.device), time.monotonic() + a.seconds
    torch.manual_seed(1)
    say(f"torch {torch.__version__}, transformers {transformers.__version__}, "
        f"{torch.cuda.get_device_name(device) if device.type == 'cuda' else 'the CPU'}")
    clock = Clock(device)
    measure_bandwidth(device, clock)
    # Not inference_mode: torch.compile's graphs mutate the cache, which was created outside of them.
    with torch.no_grad():
        for left, name in zip(range(len(models), 0, -1), models):
            of_model = time.monotonic() + (until - time.monotonic()) / left
            model = model_of(name, device)
            for how in hows:
                jobs = [(n, c) for c in a.contexts for n in a.rows]
                Engine(name, how, model, device, clock, of_model - time.monotonic()).measure_all(jobs)
            del model
            if device.type == "cuda":
                torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
