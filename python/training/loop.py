"""loop.py - training: AdamW or Muon with warm-up and cosine, clipping, checkpoints, held-out acceptance as JSON Lines.

A checkpoint has everything that the rest of the run depends on: a run that was killed and resumed ends in the same bits
as an uninterrupted one on the same CPU with the same number of threads.
"""
import contextlib
import json
import math
import os
import pathlib
import sys
import time

import torch

from training import accept
from training.data import held_out_batches, training_batches
from training.losses import LOSSES, log_q_at

DEFAULTS = {"steps": 1000, "seed": 0, "batch_tokens": 2048, "max_length": 512, "mix_shards": 4, "held_out": 0.02, "eval_tokens": 20000,
            "optimizer": "adamw", "muon_lr": 4.0, "lr": 1e-3, "warmup": 50, "final_lr": 0.05, "weight_decay": 0.0, "beta1": 0.9, "beta2": 0.95, "clip": 1.0,
            "loss": "kl", "depths": 5, "depth_decay": 0.8, "one_depth": 0.0, "eval_every": 100, "checkpoint_every": 100, "bf16": "auto", "threads": 0,
            "device": "auto"}


INTEGERS = {"steps": 1, "seed": 0, "batch_tokens": 1, "max_length": 3, "mix_shards": 1, "eval_tokens": 1, "warmup": 0, "depths": 1,
            "eval_every": 1, "checkpoint_every": 1, "threads": 0}   # includes their least values
RANGES = {"held_out": (0, 1), "muon_lr": (0, math.inf), "lr": (0, math.inf), "final_lr": (0, math.inf), "weight_decay": (0, math.inf),
          "beta1": (0, 1), "beta2": (0, 1), "clip": (0, math.inf), "depth_decay": (0, math.inf), "one_depth": (0, 1)}
POSITIVE = ("held_out", "muon_lr", "lr", "clip")
CHOICES = {"loss": tuple(LOSSES), "optimizer": ("adamw", "muon"), "bf16": ("auto", True, False), "device": ("auto", "cpu", "cuda")}


def number_of(name, value, least, most=math.inf):
    """Returns a number, also for 1e-3, which is a text for PyYAML."""
    with contextlib.suppress(TypeError, ValueError):
        x = None if isinstance(value, bool) else float(value)
        if x is not None and least <= x <= most and math.isfinite(x):
            return x
    raise SystemExit(f"{name}: expected a number from {least:g}{'' if most == math.inf else f' to {most:g}'}, found {value!r}")


def read_options(given):
    unknown = set(given) - set(DEFAULTS)
    if unknown:
        raise SystemExit(f"train: unknown key {min(unknown, key=str)}; expected one of: {', '.join(DEFAULTS)}")
    o = {**DEFAULTS, **given}
    for name, least in INTEGERS.items():
        if type(o[name]) is not int or o[name] < least:
            raise SystemExit(f"train: {name}: expected an integer, at least {least}, found {o[name]!r}")
    for name, (least, most) in RANGES.items():
        o[name] = number_of(f"train: {name}", o[name], least, most)
        if o[name] == 0 and name in POSITIVE or o[name] == 1 and name in ("held_out", "beta1", "beta2"):
            raise SystemExit(f"train: {name}: expected more than 0{' and less than 1' if most == 1 else ''}, found {o[name]:g}")
    for name, known in CHOICES.items():
        if not any(o[name] is k or isinstance(k, str) and o[name] == k for k in known):
            raise SystemExit(f"train: {name}: expected one of {', '.join(map(str, known))}, found {o[name]!r}")
    return o


def choose_device(o):
    if o["device"] == "cuda" and not torch.cuda.is_available():
        raise SystemExit("train: device cuda: torch finds none here")
    return ("cuda" if torch.cuda.is_available() else "cpu") if o["device"] == "auto" else o["device"]


def uses_bf16(o, device):
    if o["bf16"] != "auto":
        return o["bf16"]
    return device == "cuda" or torch.backends.mkldnn.is_available() and "avx512_bf16" in cpu_flags()


def cpu_flags():
    with contextlib.suppress(OSError):
        return pathlib.Path("/proc/cpuinfo").read_text(encoding="ascii", errors="ignore")
    return ""


def learning_rate(o, step):
    if step < o["warmup"]:
        return o["lr"] * (step + 1) / o["warmup"]
    done = (step - o["warmup"]) / max(1, o["steps"] - o["warmup"])
    return o["lr"] * (o["final_lr"] + (1 - o["final_lr"]) * 0.5 * (1 + math.cos(math.pi * min(1.0, done))))


class Optimizer:
    """AdamW; or Muon (Jordan et al. 2024) for the matrices within the head, with updates of AdamW's size times muon_lr
    (Liu et al. 2025, arXiv 2502.16982), and AdamW for vectors, embedding and LM head."""

    def __init__(self, head, o):
        ends = ("lm_head", "embedding", "output")
        named = [(n, p) for n, p in head.named_parameters() if p.requires_grad]
        self.parameters = [p for _, p in named]
        inner = [o["optimizer"] == "muon" and p.dim() == 2 and not n.startswith(ends) for n, p in named]
        self.parts = [(1.0, torch.optim.AdamW([p for p, i in zip(self.parameters, inner) if not i], betas=(o["beta1"], o["beta2"]),
                                              weight_decay=o["weight_decay"], fused=True))]
        if any(inner):
            self.parts.append((o["muon_lr"], torch.optim.Muon([p for p, i in zip(self.parameters, inner) if i],
                                                              weight_decay=o["weight_decay"], adjust_lr_fn="match_rms_adamw")))

    def step(self, lr, clip):
        torch.nn.utils.clip_grad_norm_(self.parameters, clip)
        for share, part in self.parts:
            for group in part.param_groups:
                group["lr"] = share * lr
            part.step()
            part.zero_grad(set_to_none=True)

    def state_dict(self):
        return [part.state_dict() for _, part in self.parts]

    def load_state_dict(self, states):
        for (_, part), state in zip(self.parts, states, strict=True):
            part.load_state_dict(state)


def loss_of(head, batch, o, table, depths):
    """Returns the mean over the depths, weighted by depth_decay^depth, of the mean over the rows."""
    total, weights, loss = 0.0, 0.0, LOSSES[o["loss"]]
    for j, x in enumerate(head.depths(batch, depths)):
        rows = accept.rows_at(batch, j)
        if not rows.any():
            continue
        weight = o["depth_decay"] ** j
        ids, p = accept.target_at(batch, rows, j, table)
        per_row = loss(log_q_at(head.logits(x[rows], j), ids), p)
        extra = head.regression(x, batch, j)
        total = total + weight * (per_row.mean() + (extra[rows].mean() if torch.is_tensor(extra) else extra))
        weights += weight
    return total / weights if weights else None


# ---- checkpoints

CHECKPOINT = {"recipe", "step", "tokens", "position", "seconds", "last", "head", "optimizer", "rng"}


def write_checkpoint(path, state):
    """Writes the file under its name only when complete: a kill leaves the old one."""
    torch.save(state, f"{path}.part")
    with open(f"{path}.part", "rb+") as f:
        os.fsync(f.fileno())
    os.replace(f"{path}.part", path)


def read_checkpoint(path, recipe):
    try:
        state = torch.load(path, weights_only=True)
    except Exception as e:
        raise SystemExit(f"{path}: not a checkpoint: {' '.join(str(e).split())[:200]}") from None
    if not isinstance(state, dict) or not CHECKPOINT <= state.keys():
        raise SystemExit(f"{path}: not a checkpoint of ./run train: expected {', '.join(sorted(CHECKPOINT))}")
    differ = [k for k in recipe if state["recipe"].get(k) != recipe[k]]
    if differ:
        k = differ[0]
        raise SystemExit(f"{path}: written with {k} {state['recipe'].get(k)!r}, but now {k} is {recipe[k]!r}: remove it to start again")
    return state


# ---- the loop

def report(entry, log):
    line = json.dumps(entry)
    log.write(line + "\n")
    log.flush()
    rates = " ".join(f"{r:.3f}" for r in entry["greedy"])
    chains = "".join(f"  tokens a step, chain of {n}: {entry[f'tokens{n}']:.2f}, T = 1: {entry[f'sampled{n}']:.2f}" for n in (3, 5)
                     if f"tokens{n}" in entry)
    print(f"step {entry['step']:6d}  {entry['tokens'] / 1e6:6.2f} M tokens  loss {entry['loss']:.4f}  held-out acceptance {rates}{chains}  "
          f"{entry['tokens_per_second']:.0f} tokens/s", flush=True)


def cut_log(path, step):
    """Cuts the lines after the checkpoint, which are written again."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    kept = []
    for line in lines:
        with contextlib.suppress(json.JSONDecodeError, KeyError, TypeError):
            if json.loads(line)["step"] <= step:
                kept.append(line)
    path.write_text("".join(line + "\n" for line in kept), encoding="utf-8")


def train(head, source, given, out, recipe):
    """Trains the head to `steps`, or continues from out/checkpoint.pt. Returns the last held-out entry."""
    o, out = read_options(given), pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    device = choose_device(o)
    if o["threads"]:
        torch.set_num_threads(o["threads"])
    torch.use_deterministic_algorithms(device == "cpu")
    head = head.to(device).train()
    optimizer = Optimizer(head, o)
    recipe = {**recipe, **{k: o[k] for k in DEFAULTS if k not in ("threads", "device", "eval_every", "checkpoint_every")}}
    step, tokens, position, seconds, last = 0, 0, (0, 0, 0), 0.0, None
    checkpoint, log_path = out / "checkpoint.pt", out / "curve.jsonl"
    if checkpoint.exists():
        s = read_checkpoint(checkpoint, recipe)
        try:
            head.load_state_dict(s["head"])
            optimizer.load_state_dict(s["optimizer"])
            torch.set_rng_state(s["rng"])
        except (RuntimeError, ValueError, KeyError, TypeError) as e:
            raise SystemExit(f"{checkpoint}: not of this head: {' '.join(str(e).split())[:200]}; remove it to start again") from None
        step, tokens, position, seconds, last = s["step"], s["tokens"], tuple(s["position"]), s["seconds"], s["last"]
        print(f"train: goes on from step {step}", file=sys.stderr)
    table = accept.to_draft(head.ids, head.c["vocab_size"])               # the checkpoint's vocabulary, if there is one
    cut_log(log_path, step)
    held = held_out_batches(source, o)
    batches = training_batches(source, o, position)
    low = torch.autocast(device, dtype=torch.bfloat16, enabled=uses_bf16(o, device))
    with open(log_path, "a", encoding="utf-8") as log:
        began, at, since, since_tokens, running = time.monotonic(), seconds, time.monotonic(), 0, []

        def evaluate():
            nonlocal last, since, since_tokens, running
            passed = time.monotonic() - since
            entry = {"step": step, "tokens": tokens, "loss": sum(running) / max(1, len(running)),
                     "tokens_per_second": since_tokens / max(passed, 1e-9), "seconds": seconds,
                     **accept.held_out(head, held, max(5, o["depths"]) if not hasattr(head, "n") else head.n, table, device)}
            report(entry, log)
            last, since, since_tokens, running = entry, time.monotonic(), 0, []
        if step == 0:
            evaluate()
        while step < o["steps"]:
            position, batch = next(batches)
            batch = accept.to_device(batch, device)
            with low:
                loss = loss_of(head, batch, o, table, 1 if step < o["one_depth"] * o["steps"] else o["depths"])
            if loss is not None:
                loss.backward()
                optimizer.step(learning_rate(o, step), o["clip"])
                running.append(float(loss.detach()))
                if not math.isfinite(running[-1]):
                    raise SystemExit(f"train: step {step}: the loss is {running[-1]}")
            step += 1
            tokens += int(batch["length"].sum())
            since_tokens += int(batch["length"].sum())
            seconds = at + time.monotonic() - began
            end = step == o["steps"]
            if step % o["eval_every"] == 0 or end:
                evaluate()
            if step % o["checkpoint_every"] == 0 or end:
                write_checkpoint(checkpoint, {"recipe": recipe, "step": step, "tokens": tokens, "position": list(position),
                                              "seconds": seconds, "last": last, "head": head.state_dict(),
                                              "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()})
    return last
