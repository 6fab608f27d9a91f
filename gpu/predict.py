#!/usr/bin/env python3
"""predict.py - predicts passes on an H200 from counted bytes and instructions, before anything is measured.

    gpu/predict.py        prints the tables of docs/performance.md, "On a GPU"

A product takes as long as the slowest of: its weights from memory; what its busiest multiprocessor reads from L2, weights and x; that
one's instructions; its tensor cores; and a time to start and to end. The limits below are published or arithmetic
(none is measured here); instructions of a unit are counted in nvcc's machine code for sm_90 (nvdisasm, the loop over units).
"""
import math

SMS, CLOCK = 132, 1.9e9
MEMORY, L2 = 4.2e12, 25.5  # bytes per second; bytes per clock and multiprocessor
TENSOR, ISSUE = 1340, 3.2  # multiplications; instructions: per clock and multiprocessor (4 schedulers, 80 % used)
EDGE = 1.2e-6              # a product's start and end, with its first weights in flight before it starts; without: 2 us
NORM, ATTENTION = 1.5e-6, 5e-6  # a layer's two norms each, and attention behind 1,000 tokens; before: 12 us in three launches

# bytes of sixteen rows of a unit, its length in k, instructions by columns of eight rows of x: (small kernel: 1; cluster: 2, 4, 8)
FORMS = {"bf16": (1024, 32, {1: 42, 2: 67, 4: 80, 8: 102}),
         "q4_0": (576, 64, {1: 114, 2: 153, 4: 176, 8: 220}),
         "q4_1": (640, 64, {1: 142, 2: 200, 4: 264, 8: 368})}
SHAPES = {"8B bf16": ("bf16", 32, 4096, 14336, 32, 8, 128, 128256), "1B bf16": ("bf16", 16, 2048, 8192, 32, 8, 64, 128256),
          "1B q4_0": ("q4_0", 16, 2048, 8192, 32, 8, 64, 128256), "SmolLM2 q4_1": ("q4_1", 30, 576, 1536, 9, 3, 64, 49152)}
ROWS = (1, 5, 8, 16, 32, 64)


def columns_of(n):
    return 1 if n <= 8 else 2 if n <= 16 else 4 if n <= 32 else 8


def product(form, m, k, n, gated, now):
    """(seconds, bytes of weights, bytes of x from L2)"""
    unit_bytes, unit, instructions = FORMS[form]
    tiles, units, columns = math.ceil(m / 16), math.ceil(k / unit), columns_of(n)
    if now and columns > 1:  # a cluster: eight tiles, an eighth of the units a block
        blocks = 8 * math.ceil(tiles / 8)
        weights, x = 8 * units / 8 * unit_bytes, 8 * columns * k / 8 * 2
        work = 8 * units / 8
        count = instructions[columns]
    else:
        most = 4 if gated else 8
        groups = math.ceil(columns / most)
        blocks = groups * math.ceil(tiles / (2 if gated else 1))
        weights = units * unit_bytes * (2 if gated else 1)
        x = (n if now else 8 * columns) * k * 2 if columns == 1 else 8 * min(columns, most) * k * 2
        work = units * (2 if gated else 1)
        count = instructions[min(columns, most)]
    of_sm = math.ceil(blocks / SMS)
    total = tiles * units * unit_bytes
    seconds = max(total / MEMORY,
                  of_sm * (weights + x) / L2 / CLOCK,
                  of_sm * work * count / ISSUE / CLOCK,
                  of_sm * work * unit * 16 * 8 * columns / TENSOR / CLOCK)
    return seconds + (EDGE if now else 2e-6), total, blocks * x


def model(shape, n, now):
    form, layers, width, hidden, heads, kv_heads, head_dim, vocab = SHAPES[shape]
    layer = [((heads + 2 * kv_heads) * head_dim, width, False), (width, heads * head_dim, False), (2 * hidden, width, True),
             (width, hidden, False)]
    parts = [product(form, m, k, n, g, now) for m, k, g in layer]
    head = product(form, vocab, width, n, False, now)
    other = 2 * NORM + (ATTENTION if now else 12e-6)
    seconds = layers * (sum(p[0] for p in parts) + other) + head[0]
    weights = layers * sum(p[1] for p in parts) + head[1]
    x = layers * sum(p[2] for p in parts) + head[2]
    return seconds, weights, x


def rounded_up(n):  # graphs.cu
    power = 1 << (n - 1).bit_length()
    return power // 4 * 3 if power >= 4 and power // 4 * 3 >= n else power


def attention(shape, n, context):
    """(blocks with work, bytes of partial results) before and now; (queries of a block, units of a part, seconds) now. n rows of one slot."""
    _, _, _, _, heads, kv_heads, head_dim, _ = SHAPES[shape]
    splits, of_graph, group = math.ceil((context + 1) / 256), rounded_up(math.ceil((context + 1) / 256)), heads // kv_heads
    row_blocks = {tiles: math.ceil(n / max(1, 16 * tiles // group)) * kv_heads for tiles in (1, 2)}
    before = row_blocks[2 if row_blocks[2] * of_graph >= 2 * SMS else 1] * splits
    choices = [(tiles, units) for tiles in ((2, 1) if n * group > 16 else (1,)) for units in (32, 4)]
    tiles, units = next((c for c in choices if row_blocks[c[0]] * math.ceil(of_graph * 4 / c[1]) >= SMS), (1, 1))
    parts = math.ceil((context + 1) / 64 / units)
    blocks, number = row_blocks[tiles] * parts, n * heads * (head_dim + 2) * 4
    work = blocks * min(units, context / 64) / SMS           # units of a multiprocessor
    shared = head_dim / 128 * (146e3 if tiles == 1 else 188e3) / 128 / CLOCK  # seconds of a unit: ldmatrix and copies, 128 bytes a clock
    matrix = head_dim / 128 * 384 * tiles * 2048 / TENSOR / CLOCK
    memory = context * kv_heads * head_dim * 4 / MEMORY + (2 * number * parts / MEMORY if parts > 1 and number * parts > 20e6 else 0)
    seconds = EDGE + 2.4e-6 + max(memory, work * max(shared, matrix), min(units, context / 64) * 0.5e-6)
    return before, number * splits * (splits > 1), blocks, number * parts * (parts > 1), 16 * tiles, units, seconds


def attention_table():
    print("\n| shape | n | context | blocks: before, now | partial results, MB: before, now | block: queries, units | us |")
    print("|---|---|---|---|---|---|---|")
    for shape in ("8B bf16", "1B bf16", "SmolLM2 q4_1"):
        for n in (1, 16, 64) if shape == "8B bf16" else (1,):
            for context in (1024, 8192, 32768):
                before, partial, blocks, parts, queries, units, seconds = attention(shape, n, context)
                print(f"| {shape.split()[0]} | {n} | {context:,} | {before}, {blocks} | {partial / 1e6:.1f}, {parts / 1e6:.1f} | "
                      f"{queries}, {units} | {1e6 * seconds:.0f} |")


def main():
    print("| shape | " + " | ".join(f"n = {n}" for n in ROWS) + " |")
    print("|---|" + "---|" * len(ROWS))
    for shape in SHAPES:
        for now in (False, True):
            base = model(shape, 1, now)[0]
            cells = []
            for n in ROWS:
                seconds, weights, x = model(shape, n, now)
                cells.append(f"{1e3 * seconds:.2f} ms, {weights / MEMORY / seconds:.2f}" if n == 1 else f"{seconds / base:.2f}")
            print(f"| {shape}, {'now' if now else 'before'}: ms and share at n = 1, then c(n) | " + " | ".join(cells) + " |")
    print("\n| shape | " + " | ".join(f"n = {n}" for n in ROWS) + " |")
    print("|---|" + "---|" * len(ROWS))
    for shape in SHAPES:
        for now in (False, True):
            cells = [f"{model(shape, n, now)[2] / model(shape, n, now)[1]:.2f}" for n in ROWS]
            print(f"| {shape}, {'now' if now else 'before'}: bytes of x per byte of weights | " + " | ".join(cells) + " |")
    attention_table()


if __name__ == "__main__":
    main()
