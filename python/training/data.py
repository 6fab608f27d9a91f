"""data.py - features of the target (docs/training.md, "Features") as batches of whole conversations.

A source is a folder of shards, or shards that are computed when they are read. They come in groups. Within a group the conversations are shuffled, sorted by length into batches, and the batches shuffled. The order depends only on
the seed, the epoch and the group, so the position (epoch, group, batch) is all that a checkpoint needs.
"""
import pathlib
import zlib

import safetensors
import safetensors.torch
import torch

FORMAT = "speclab-features-1"
ROWS = ("input_ids", "loss_mask", "top_ids", "top_p", "states")  # tensors with one row a token; a draft model reads no
                                                                # states


class Shard:
    """The tensors of one shard; rows are read when a conversation is requested."""

    def __init__(self, name, read, metadata, sizes):
        """sizes: the number of rows of each tensor."""
        if (metadata or {}).get("format") != FORMAT:
            raise SystemExit(f"{name}: expected format {FORMAT} in the metadata, found {(metadata or {}).get('format')}")
        kind, first = metadata.get("kind"), metadata.get("first", "")
        if not first.isdigit() or kind == "eagle3" and "layers" not in metadata:
            raise SystemExit(f"{name}: expected first, and layers of kind eagle3, in the metadata")
        self.name, self.read, self.metadata, self.first = name, read, metadata, int(first)
        self.rows = ROWS[:-1] if kind == "small" else ROWS
        missing = {"offsets", *self.rows} - set(sizes)
        if missing:
            raise SystemExit(f"{name}: there is no tensor {min(missing)}")
        self.offsets = read("offsets", 0, None).tolist()
        n = self.offsets[-1] if self.offsets else -1
        if self.offsets[:1] != [0] or self.offsets != sorted(self.offsets) or any(sizes[t] != n for t in self.rows):
            raise SystemExit(f"{name}: damaged: its offsets do not fit its tensors")

    def __len__(self):
        return len(self.offsets) - 1

    def held_out(self, share):
        """Returns for each conversation whether it is held out."""
        ids, mask = self.read("input_ids", 0, None).tolist(), self.read("loss_mask", 0, None).tolist()
        return [is_held_out(ids[a:b], mask[a:b], share) for a, b in zip(self.offsets, self.offsets[1:])]

    def conversation(self, s, length):
        a = self.offsets[s]
        b = min(self.offsets[s + 1], a + length)
        return {name: self.read(name, a, b) for name in self.rows}


def file_shard(path):
    try:
        f = safetensors.safe_open(str(path), "pt")
    except Exception as e:
        raise SystemExit(f"{path}: not a safetensors file: {e}") from None
    return Shard(str(path), lambda name, a, b: f.get_slice(name)[a:b], f.metadata(), {t: (f.get_slice(t).get_shape() or [0])[0] for t in f.keys()})


def read_target(path):
    """Returns {embed_tokens.weight, lm_head.weight, norm.weight}, and the configuration (numbers as numbers)."""
    name = str(path)
    try:
        tensors = safetensors.torch.load_file(name)
        with safetensors.safe_open(name, "pt") as f:
            metadata = f.metadata() or {}
    except Exception as e:
        raise SystemExit(f"{name}: {e}; `speclab features` writes it beside the shards") from None
    missing = {"embed_tokens.weight", "lm_head.weight", "norm.weight"} - set(tensors)
    if missing:
        raise SystemExit(f"{name}: there is no tensor {min(missing)}")
    return tensors, {k: number(v) for k, v in metadata.items()}


def number(text):
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            pass
    return {"true": True, "false": False}.get(text, text)


def check_sequence(shards):
    """Checks that the shards of a folder belong to one run: they have the same settings, and no conversation is missing
    or in two of them."""
    expected = shards[0].metadata
    for shard in shards:
        differ = [k for k in expected if k != "first" and shard.metadata.get(k) != expected[k]]
        if differ:
            raise SystemExit(f"{shard.name}: expected {differ[0]} {expected[differ[0]]}, as in {shards[0].name}, found {shard.metadata.get(differ[0])}")
    at = 0
    for shard in shards:
        if shard.first != at:
            raise SystemExit(f"{shard.name}: expected a shard that begins with conversation {at}, found {shard.first}: one is missing, or of another run")
        at += len(shard)


class Folder:
    """One folder of shards, or a list of them: parts of the data whose features were computed at different times."""

    def __init__(self, paths):
        self.paths = [pathlib.Path(p) for p in (paths if isinstance(paths, list) else [paths])]
        self.files = []
        for path in self.paths:
            files = sorted(path.glob("features-*.safetensors"))
            if not files:
                raise SystemExit(f"{path}: expected features-00000.safetensors, .., found none")
            shards = [file_shard(f) for f in files]
            self.add(path, shards[0].metadata)
            check_sequence(shards)
            self.files += files

    def add(self, path, metadata):
        if not self.files:
            self.metadata = metadata
            return
        differ = [k for k in metadata if k not in ("data", "model", "first") and metadata[k] != self.metadata.get(k)]
        if differ:
            raise SystemExit(f"{path}: expected {differ[0]} {self.metadata.get(differ[0])}, as in {self.paths[0]}, found {metadata[differ[0]]}")
        self.metadata = {**self.metadata, "data": f"{self.metadata['data']} {metadata['data']}"}

    def target(self):
        return read_target(self.paths[0] / "target.safetensors")

    def shards(self, order):
        for i in order(len(self.files)):
            yield file_shard(self.files[i])


class Stream:
    """Features that are computed anew in each epoch, in this process, and not stored. Shards keep the texts' order."""

    def __init__(self, of):
        """of: speclab.texts.features.Features."""
        self.of, self.metadata = of, of.metadata

    def target(self):
        names, configuration = self.of.target()
        tensors = {name: torch.from_numpy(self.of.engine.weight(of)) for name, of in names.items()}
        return tensors, {k: number(v) for k, v in configuration.items()}

    def shards(self, order):
        del order
        for n, shard in enumerate(self.of.shards()):
            tensors = {name: torch.from_numpy(x.view("i2") if x.dtype == "u2" else x) for name, x in shard.tensors.items()}
            if self.metadata["type"] == "bf16" and "states" in tensors:
                tensors["states"] = tensors["states"].view(torch.bfloat16)
            yield Shard(f"shard {n}", lambda t, a, b, tensors=tensors: tensors[t][a:b], shard.metadata, {t: len(x) for t, x in tensors.items()})


def is_held_out(ids, mask, share):
    """Selects by a hash of the prompt, the tokens before the first answer: all answers to a prompt are on one side, and
    the split does not depend on order, seed or the amount of data."""
    prompt = ids[:mask.index(1)] if 1 in mask else ids
    return zlib.crc32(",".join(map(str, prompt)).encode()) < share * 2**32


def permutation(n, *key):
    seed = zlib.crc32(",".join(map(str, key)).encode())
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed)).tolist()


def collate(items):
    """Returns conversations as a batch, padded on the right: length [B], ids [B, L], mask [B, L], top_* [B, L, K];
    states [B, L, W]."""
    def pad(name):
        return torch.nn.utils.rnn.pad_sequence([i[name] for i in items], batch_first=True)
    batch = {"length": torch.tensor([len(i["input_ids"]) for i in items]), "ids": pad("input_ids").long(),
             "mask": pad("loss_mask").bool(), "top_ids": pad("top_ids").long(), "top_p": pad("top_p")}
    return {**batch, "states": pad("states")} if "states" in items[0] else batch


def cut(chosen, tokens, length):
    """Returns batches of (shard, s) of similar lengths, padded to at most `tokens` positions."""
    size = [min(shard.offsets[s + 1] - shard.offsets[s], length) for shard, s in chosen]
    batch, out = [], []
    for i in sorted(range(len(chosen)), key=lambda i: -size[i]):
        if batch and (len(batch) + 1) * size[batch[0]] > tokens:
            out.append([chosen[b] for b in batch])
            batch = []
        batch.append(i)
    return out + ([[chosen[b] for b in batch]] if batch else [])


def groups(shards, n):
    group = []
    for s in shards:
        group.append(s)
        if len(group) == n:
            yield group
            group = []
    if group:
        yield group


def training_batches(source, o, position):
    """Yields ((epoch, group, batch) of the next one, batch) without end. o: seed, batch_tokens, max_length, held_out,
    mix_shards."""
    epoch, from_group, from_batch = position
    while True:
        some = False
        for g, group in enumerate(groups(source.shards(lambda n: permutation(n, o["seed"], epoch)), o["mix_shards"])):
            chosen = [(shard, s) for shard in group for s, held in enumerate(shard.held_out(o["held_out"])) if not held]
            chosen = [chosen[i] for i in permutation(len(chosen), o["seed"], epoch, g)]
            batches = cut(chosen, o["batch_tokens"], o["max_length"])
            some = some or len(batches) > 0
            if g < from_group:
                continue
            order = permutation(len(batches), o["seed"], epoch, g, "batches")
            for b in range(from_batch if g == from_group else 0, len(order)):
                items = [shard.conversation(s, o["max_length"]) for shard, s in batches[order[b]]]
                yield (epoch, g, b + 1), collate(items)
        if not some:
            raise SystemExit("there is nothing to train on: every conversation is held out")
        epoch, from_group, from_batch = epoch + 1, 0, 0


def held_out_of(source, share):
    """Returns (shard, s) of held-out conversations; for folders in an order that mixes them all, for a stream as they
    come."""
    if isinstance(source, Stream):
        for shard in source.shards(range):
            yield from ((shard, s) for s, held in enumerate(shard.held_out(share)) if held)
        return
    every = [(zlib.crc32(f"{i},{s}".encode()), shard, s) for i, shard in enumerate(source.shards(range))
             for s, held in enumerate(shard.held_out(share)) if held]
    yield from ((shard, s) for _, shard, s in sorted(every, key=lambda e: e[0]))


def held_out_batches(source, o):
    """Returns the held-out conversations up to eval_tokens tokens, always the same ones."""
    chosen, tokens = [], 0
    for shard, s in held_out_of(source, o["held_out"]):
        if tokens >= o["eval_tokens"]:
            break
        chosen.append((shard, s))
        tokens += min(shard.offsets[s + 1] - shard.offsets[s], o["max_length"])
    if not chosen:
        raise SystemExit(f"no conversation is held out: held_out {o['held_out']} of so few selects none")
    return [collate([shard.conversation(s, o["max_length"]) for shard, s in b])
            for b in cut(chosen, o["batch_tokens"], o["max_length"])]


def sample_states(source, share, n):
    """Returns states [n, W] and their tokens [n], or as many as there are, of training conversations."""
    states, tokens, found = [], [], 0
    for shard in source.shards(range):
        for s, held in enumerate(shard.held_out(share)):
            if held or found >= n:
                continue
            c = shard.conversation(s, 10**9)
            states.append(c["states"].float())
            tokens.append(c["input_ids"].long())
            found += len(c["input_ids"])
        if found >= n:
            break
    return torch.cat(states)[:n], torch.cat(tokens)[:n]


def count_answers(texts, vocab):
    """Counts how often each token is written as an answer. texts: (input_ids, loss_mask) of conversations or shards."""
    count = torch.zeros(vocab, dtype=torch.long)
    for ids, mask in texts:
        ids, mask = torch.as_tensor(ids).long(), torch.as_tensor(mask).bool()
        count += torch.bincount(ids[mask], minlength=vocab)
    return count


def answers_of(source, share):
    """Yields answers of conversations that are not held out."""
    for shard in source.shards(range):
        ids, mask = shard.read("input_ids", 0, None), shard.read("loss_mask", 0, None)
        for s, held in enumerate(shard.held_out(share)):
            if not held:
                yield ids[shard.offsets[s]:shard.offsets[s + 1]], mask[shard.offsets[s]:shard.offsets[s + 1]]


def draft_vocabulary(count, n):
    """Returns the n most frequent tokens, ascending; equally frequent ones by id. Returns ids [n]."""
    return torch.sort(torch.sort(count, descending=True, stable=True).indices[:n]).values


def coverage(count, ids):
    """Returns the share of answer tokens that are among ids."""
    return float(count[ids].sum() / count.sum().clamp(min=1))
