"""PyTorch's files give the tensors that torch.load gives, and nothing in them is executed. tests/cases/torch/make.py wrote the files."""

import json
import math
import random
import shutil
import struct
import zipfile

import pytest
from checkpoints import tensors
from conftest import ROOT, call, engine, refused
from safetensors import safe_open

from speclab import torch_files
from speclab.command import Fault

CASES = ROOT / "tests/cases/torch"
GOLDEN = json.loads((CASES / "golden.json").read_text())


@pytest.mark.parametrize("file", GOLDEN["read"])
def test_every_tensor_is_the_one_that_torch_loads(in_process, tmp_path, file):
    status, out, _ = in_process("convert", CASES / file, "--out", tmp_path / "out")
    assert status == 0 and f"out: {len(GOLDEN['read'][file])} tensors" in out
    found = tensors(tmp_path / "out")
    assert found == {n: (t["dtype"], tuple(t["shape"]), bytes.fromhex(t["hex"])) for n, t in GOLDEN["read"][file].items()}
    assert {n for path in (tmp_path / "out").glob("*.safetensors") for n in safe_open(path, "np").keys()} == set(found)  # noqa: SIM118


@pytest.mark.parametrize("file", GOLDEN["refused"])
def test_anything_but_a_dictionary_of_plain_tensors_is_refused(in_process, tmp_path, file):
    got = in_process("convert", CASES / file, "--out", tmp_path / "out")
    refused(got, GOLDEN["refused"][file])
    assert str(CASES / file) in got.err and list(tmp_path.iterdir()) == []


def archive(path, program, storage=bytes(24), more=None, **how):
    """A file of torch.save with this pickle."""
    entries = {"a/data.pkl": program, "a/byteorder": b"little", "a/data/0": storage, "a/version": b"3\n", **(more or {})}
    with zipfile.ZipFile(path, "w", **how) as z:
        for name, content in entries.items():
            if content is not None:
                z.writestr(name, content)


def numbers(*n):
    """The opcodes of a tuple."""
    return b"(" + b"".join(b"J" + struct.pack("<i", i) for i in n) + b"t"


def text(of):
    """The opcode of a text."""
    return b"X" + struct.pack("<I", len(of)) + of


SHAPE, STRIDE = numbers(2, 3), numbers(3, 1)


def view(elements=6, offset=0, shape=SHAPE, stride=STRIDE, key=b"0", kind=b"Float"):
    """The opcodes of a tensor."""
    pid = b"(" + text(b"storage") + b"ctorch\n" + kind + b"Storage\n" + text(key) + text(b"cpu") + b"J" + struct.pack("<i", elements) + b"tQ"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + pid + b"J" + struct.pack("<i", offset) + shape + stride + b"\x89}tR"


def of(*pairs):
    return b"\x80\x02}(" + b"".join(pairs) + b"u."


def edited(path, find, put, at=0):
    content = bytearray(path.read_bytes())
    where = content.index(find) + at
    content[where : where + len(put)] = put
    path.write_bytes(content)


STEPS, T = 100_000, text(b"t")
GOOD, LONG = of(T, view()), view(1 << 12, 0, numbers(1 << 12), numbers(1))


@pytest.mark.parametrize("change, says", [
    (b"\x80\x02cos\nsystem\nX\4\0\0\0true\x85R.", "byte 13: expected the names of a state_dict, found os system; the pickle was not executed"),
    (b"\x80\x04\x8c\2os\x8c\6system\x93.", "found os system"),
    (b"\x80\x02ccollections\nOrderedDict\n)\x81.", "found NEWOBJ (0x81)"),
    (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}(X\1\0\0\0xK\1ub.", "expected attributes of an OrderedDict"),
    (b"\x80\x02}r\xff\xff\xff\xff" + T + b"s.", "the pickle is damaged"),
    (b"\x80\x02X\xff\xff\xff\x7fabc.", "the pickle is damaged"),
    (GOOD + b"x", "something after its end"),
    (b"\x80\x02" + b"N" * (1 << 24), "expected at most 16777216 bytes"),
    (b"\x80\x02" + b"}" * STEPS + b".", f"found more than {STEPS} opcodes"),
    (of(b"K\1" + b"\x85" * (STEPS - 20), b"N"), "found one without tensors"),
    (of(b"K\1" + b"q\0h\0\x86" * 80, b"N"), "found one without tensors"),
    (of(T, view(), T, view()), "two values are named t"),
    (of(text(b"\xed\xa0\x80"), view()), "expected a name"),
    (of(T, b"ctorch._utils\n_rebuild_parameter\nN\x85R"), "the pickle is damaged: TypeError: expected a tensor"),
    (of(T, view(elements=7)), "tensor t: expected storage 0 of 7 elements of F32 in the archive, found 24 bytes"),
    (of(T, view(key=b"../0")), "tensor t: expected storage ../0 of 6 elements"),
    (of(T, view(offset=1)), "found 6 from element 1 on"),
    (of(T, view(shape=b"\x8a\x08" + b"\xff" * 7 + b"\x0fK\3\x86")), "found 3458764513820540925 from element 0 on"),
    (lambda p: archive(p, of(*(text(b"%02d" % i) + LONG for i in range(40))), bytes(4 << 12)), "at most 16 times the file's size"),
    (lambda p: archive(p, GOOD, compression=zipfile.ZIP_DEFLATED), "it is compressed or encrypted"),
    (lambda p: archive(p, GOOD, more={"a/version": b"11"}), "expected version 1 to 10 of torch.save's format, found b'11'"),
    (lambda p: archive(p, GOOD, more={"a/byteorder": b"big"}), "expected numbers in little-endian order"),
    (lambda p: archive(p, GOOD, more={"a/data.pkl": None}), "found no data.pkl"),
    (lambda p: p.write_bytes(b"version https://git-lfs.github.com/spec/v1\n"), "found a pointer of Git LFS"),
    (lambda p: p.write_bytes(p.read_bytes() + b"\n"), "something was added to it"),
    (lambda p: edited(p, b"PK\5\6", struct.pack("<I", 1 << 30), 12), "expected a ZIP archive's directory at its end"),
    (lambda p: edited(p, bytes(24), b"\1"), "Bad CRC-32 for file 'a/data/0'"),
    (lambda p: edited(p, b"PK\1\2", struct.pack("<II", 900, 900), 20), "bytes of another in it"),
])  # fmt: skip
def test_hostile_pickles_and_damaged_archives_are_refused_by_name(tmp_path, monkeypatch, change, says):
    monkeypatch.setattr(torch_files, "STEPS", STEPS)
    path = tmp_path / "x.pt"
    archive(path, change if isinstance(change, bytes) else GOOD)
    if callable(change):
        change(path)
    with pytest.raises(Fault) as raised:
        torch_files.read(str(path))
    assert says in str(raised.value) and str(raised.value).startswith(str(path))


def used(path):
    """Whether a file is read; every byte of its tensors is."""
    try:
        return [(t.name, b"".join(t.pieces())) for t in torch_files.read(str(path))]
    except Fault as why:
        assert str(why).startswith(str(path))
        return None


def test_a_file_cut_or_changed_anywhere_is_refused_or_harmless(tmp_path):
    choose, path = random.Random(1), tmp_path / "x.pt"
    archive(path, of(*(text(b"%04d" % i) + view() for i in range(4000))))
    assert len(used(path)) == 4000  # of one storage of 24 bytes: within the limit while their names take more room
    for file in ("module.pt", "protocol5.pt", "plain.pt"):
        good = (CASES / file).read_bytes()
        with zipfile.ZipFile(CASES / file) as z:
            program = z.read(next(n for n in z.namelist() if n.endswith("data.pkl")))
        for n in range(0, len(good), 97):
            path.write_bytes(good[:n])
            assert used(path) is None
        for i in range(120):
            changed = bytearray(program if i < 90 else good)
            for _ in range(choose.choice((1, 1, 3)) if i < 90 else 1):
                changed[choose.randrange(2, len(changed))] = choose.choice((0, 255, *b"qhrjsubQRt(}]).\x85\x86\x8a\x94\x93", choose.randrange(256)))
            if i < 90:  # with the right checksum
                archive(path, bytes(changed))
            else:
                path.write_bytes(changed)
            used(path)


def pickled(found, path):
    """Writes tensors as torch.save does."""
    names = {"F32": b"Float", "BF16": b"BFloat16", "F16": b"Half", "I64": b"Long", "BOOL": b"Bool"}
    program = of(*(text(n.encode()) + view(math.prod(shape), 0, numbers(*shape), numbers(*shape[1:], 1), b"%d" % i, names[kind])
                   for i, (n, (kind, shape, _)) in enumerate(found.items())))  # fmt: skip
    archive(path, program, more={f"a/data/{i}": raw for i, (_, _, raw) in enumerate(found.values())})


@pytest.mark.parametrize("kind, file", [("medusa", "medusa_lm_head.pt"), ("eagle", "pytorch_model.bin"), ("eagle3", "pytorch_model.bin")])
def test_a_published_head_is_refused_by_a_command_and_works_after_it(in_process, heads, tiny, tmp_path, kind, file):
    own = tmp_path / "published"
    own.mkdir()
    shutil.copy(heads / kind / "config.json", own)
    pickled(tensors(heads / kind), own / file)
    words = ("generate", tiny, "The cat", "--tokens", "20", "--chat", "none", "--drafter")
    command = f"./run convert {own / file if kind == 'medusa' else own} --out FOLDER"
    assert command in call(*words, f"{kind}:weights={own}").err
    assert in_process(*command.split()[1:-1], tmp_path / "converted")[0] == 0
    (made,) = (tmp_path / "converted").glob("*.safetensors")
    assert tensors(made) == tensors(heads / kind)
    assert engine(*words, f"{kind}:weights={heads / kind}") == engine(*words, f"{kind}:weights={tmp_path / 'converted'}")


@pytest.mark.parametrize("index, says", [
    ("{", "not valid JSON"),
    ('{"weight_map": {}}', 'expected an object "weight_map" of tensors'),
    ('{"weight_map": {"a": "../x.bin"}}', "the name of a file beside the index"),
    ('{"weight_map": {"z": "one.bin"}}', "one.bin: No such file"),
    (None, "expected medusa_lm_head.pt, pytorch_model.bin.index.json or pytorch_model.bin in it"),
])  # fmt: skip
def test_an_index_that_is_wrong_is_refused_and_nothing_overwritten(in_process, tmp_path, index, says):
    shutil.copytree(CASES / "sharded", tmp_path / "m")
    path = tmp_path / "m/pytorch_model.bin.index.json"
    path.write_text(index) if index else path.unlink()
    got = in_process("convert", tmp_path / "m", "--out", tmp_path / "out")
    refused(got, says)
    assert str(tmp_path / "m") in got.err and list(tmp_path.iterdir()) == [tmp_path / "m"]
    refused(in_process("convert", CASES / "model.pt", "--out", tmp_path), "exists already")
