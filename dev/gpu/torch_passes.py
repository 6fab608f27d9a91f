#!/usr/bin/env python3
"""torch_passes.py - times passes in transformers, as the reference of `./run gpu bench torch`: torch_passes.py eager|compiled SECONDS [SHAPE...]

A pass is n rows after a number of cached tokens, with the logits of every row, as verification needs them. Weights and cache are random
bfloat16 numbers, created on the device.

    eager      the plain model with DynamicCache, which is enlarged by copying, as in `generate`
    compiled   StaticCache and torch.compile(mode="reduce-overhead"), once for each n and context: CUDA graphs

Times are medians of CUDA events around the forward call; the cache is reset outside of them. Compilation takes long, so each model has its
share of SECONDS; n = 1, 16 and 64 come first. Passes skipped for lack of time or memory are reported on stderr. On stdout, a line of JSON for
each measurement, with the context, and bytes that the pass must read: weights once, the cache.
Written for transformers 5.17 and torch 2.11; also run with 5.23 and 2.15. Exit status 77: no torch, no transformers or no GPU.
"""
import json
import statistics
import sys
import time

# layers, width, heads, key-value heads, head_dim, hidden, vocabulary, whether the head is the embedding
SHAPES = {"llama-1b": (16, 2048, 32, 8, 64, 8192, 128256, True), "llama-8b": (32, 4096, 32, 8, 128, 14336, 128256, False)}
JOBS = [(n, 1024) for n in (1, 16, 64, 4, 8, 32)]  # the most informative ones first


def say(sentence):
    print(f"torch_passes.py: {sentence}", file=sys.stderr, flush=True)


try:
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig, StaticCache
except ImportError as e:
    say(f"expected torch and transformers in {sys.executable}, found: {e}")
    sys.exit(77)


def seconds_of(prepare, run, min_runs=10, max_seconds=0.5):
    """Median time of run(), each after an untimed prepare(): at least min_runs, then until max_seconds or 10 * min_runs; and their number."""
    times, began = [], time.monotonic()
    while len(times) < min_runs + 3 or (time.monotonic() - began < max_seconds and len(times) < 10 * min_runs):
        before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        prepare()
        before.record()
        run()
        after.record()
        after.synchronize()
        times.append(before.elapsed_time(after) * 1e-3)
    return statistics.median(times[3:]), len(times) - 3


def model_of(name):
    layers, width, heads, kv_heads, head_dim, hidden, vocabulary, tied = SHAPES[name]
    config = LlamaConfig(num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head_dim,
                         intermediate_size=hidden, vocab_size=vocabulary, tie_word_embeddings=tied, max_position_embeddings=1 << 17)
    with torch.device("cuda"):
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa").eval()


def bytes_of(model, rows, context):
    """Every weight once, of a separate embedding only the rows used; keys and values of all attended tokens."""
    c, weights, embedding = model.config, sum(p.numel() * p.element_size() for p in model.parameters()), model.get_input_embeddings().weight
    if model.get_output_embeddings().weight is not embedding:
        weights -= (embedding.shape[0] - rows) * embedding.shape[1] * embedding.element_size()
    return weights + 2 * 2 * c.num_hidden_layers * c.num_key_value_heads * c.head_dim * (context + rows)


def cache_of(config, how, rows, context):
    """A cache with `context` tokens, and what resets it: before each pass it has no more."""
    if how == "compiled":
        cache = StaticCache(config=config, max_cache_len=context + rows)
        cache.early_initialization(1, config.num_key_value_heads, config.head_dim, torch.bfloat16, torch.device("cuda"))
        for layer in cache.layers:
            layer.keys.normal_()
            layer.values.normal_()
        return cache, lambda: [layer.cumulative_length.fill_(context) for layer in cache.layers]
    cache, shape = DynamicCache(config=config), (1, config.num_key_value_heads, context, config.head_dim)
    for layer in range(config.num_hidden_layers):
        cache.update(*(torch.randn(shape, dtype=torch.bfloat16, device="cuda") for _ in range(2)), layer)
    return cache, lambda: cache.crop(context - cache.get_seq_length()) if cache.get_seq_length() > context else None


def measure(name, how, model, rows, context):
    tokens = torch.arange(rows, device="cuda")[None] % model.config.vocab_size
    (cache, reset), forward = cache_of(model.config, how, rows, context), model
    if how == "compiled":
        torch._dynamo.reset()  # and its graphs' memory
        forward = torch.compile(model, mode="reduce-overhead", fullgraph=True, dynamic=False)

    def prepare():
        reset()
        if how == "compiled":
            torch.compiler.cudagraph_mark_step_begin()

    def run():
        logits = forward(tokens, past_key_values=cache, use_cache=True).logits
        assert logits.shape == (1, rows, model.config.vocab_size)

    seconds, runs = seconds_of(prepare, run)
    print(json.dumps({"engine": f"transformers {how}", "what": f"{name} bf16", "rows": rows, "context": context, "seconds": seconds,
                      "bytes": bytes_of(model, rows, context), "runs": runs}), flush=True)


def measure_all(name, how, until):
    model, longest = model_of(name), 0
    for done, (rows, context) in enumerate(JOBS):
        began = time.monotonic()
        if began + longest > until:
            say(f"{name} {how}: time for {done} of {len(JOBS)} passes, the others are skipped")
            break
        try:
            measure(name, how, model, rows, context)
        except torch.OutOfMemoryError:
            say(f"{name} {how}: {rows} rows after {context} tokens: out of memory, skipped")
        except Exception as e:  # of the compiler: the next pass may work
            say(f"{name} {how}: {rows} rows after {context} tokens: {type(e).__name__}: {(str(e).strip().splitlines() or [''])[0]}")
        torch.cuda.empty_cache()
        longest = max(longest, time.monotonic() - began)


def main(how, seconds, *shapes):
    until = time.monotonic() + float(seconds)
    if not torch.cuda.is_available():
        say("expected a GPU that torch can use, found none")
        return 77
    torch.manual_seed(1)
    say(f"torch {torch.__version__}, transformers {transformers.__version__}, {torch.cuda.get_device_name()}")
    with torch.no_grad():  # not inference_mode: torch.compile's graphs mutate the cache, which was created outside of them
        shapes = shapes or tuple(reversed(SHAPES))
        for left, name in zip(range(len(shapes), 0, -1), shapes):
            measure_all(name, how, time.monotonic() + (until - time.monotonic()) / left)
            torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("eager", "compiled") or not SHAPES.keys() >= set(sys.argv[3:]):
        sys.exit(f"torch_passes.py: expected eager or compiled, seconds, and shapes of {', '.join(SHAPES)}")
    sys.exit(main(*sys.argv[1:]))
