"""PyTorch's files give the tensors that torch.load gives, and nothing in them is executed. tests/cases/torch/make.py wrote the files."""

import json
import random
import struct
import subprocess
import zipfile

import pytest
from conftest import BUILD, ROOT, engine
from safetensors import safe_open

from speclab import safetensors_files, torch_files
from speclab.command import Fault

CASES = ROOT / "tests/cases/torch"
GOLDEN = json.loads((CASES / "golden.json").read_text())


def stored(folder):
    """{name: (dtype, shape, bytes)} of all safetensors files of a folder."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        found |= {t.name: (t.kind, list(t.shape), b"".join(t.pieces())) for t in safetensors_files.read(str(path))}
        with safe_open(path, "np") as library:
            assert set(library.keys()) <= set(found)
    return found


@pytest.mark.parametrize("file", GOLDEN["read"])
def test_every_tensor_is_the_one_that_torch_loads(in_process, tmp_path, file):
    status, out, _ = in_process("convert", CASES / file, "--out", tmp_path / "out")
    assert status == 0 and f"out: {len(GOLDEN['read'][file])} tensors" in out
    assert stored(tmp_path / "out") == {n: (t["dtype"], t["shape"], bytes.fromhex(t["hex"])) for n, t in GOLDEN["read"][file].items()}


@pytest.mark.parametrize("file", GOLDEN["refused"])
def test_anything_but_a_dictionary_of_plain_tensors_is_refused(in_process, tmp_path, file):
    status, _, err = in_process("convert", CASES / file, "--out", tmp_path / "out")
    assert status == 1 and GOLDEN["refused"][file] in err and str(CASES / file) in err
    assert list(tmp_path.iterdir()) == []


def archive(path, program, storage=bytes(24), more=None, **how):
    """A file of torch.save with this pickle."""
    entries = {"a/data.pkl": program, "a/byteorder": b"little", "a/data/0": storage, "a/version": b"3\n", **(more or {})}
    with zipfile.ZipFile(path, "w", **how) as z:
        for name, content in entries.items():
            if content is not None:
                z.writestr(name, content)
    return str(path)


def view(elements=6, offset=0, shape=b"K\x02K\x03\x86", stride=b"K\x03K\x01\x86", key=b"0", kind=b"Float"):
    """The opcodes of a tensor."""
    pid = (b"(X\x07\0\0\0storagectorch\n" + kind + b"Storage\nX" + struct.pack("<I", len(key)) + key + b"X\3\0\0\0cpuJ"
           + struct.pack("<i", elements) + b"tQ")  # fmt: skip
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + pid + b"J" + struct.pack("<i", offset) + shape + stride + b"\x89}tR"


def numbers(*n):
    """The opcodes of a tuple."""
    return b"(" + b"".join(b"J" + struct.pack("<i", i) for i in n) + b"t"


def of(*pairs):
    return b"\x80\x02}(" + b"".join(pairs) + b"u."


T = b"X\1\0\0\0t"
NESTED = b"K\1" + b"\x85" * 300_000
DOUBLED = b"K\1" + b"".join(b"q\0h\0\x86" for _ in range(80))


@pytest.mark.parametrize("program, says", [
    (b"\x80\x02cos\nsystem\nX\4\0\0\0true\x85R.", "byte 13: expected the names of a state_dict, found os system; the pickle was not executed"),
    (b"\x80\x04\x8c\2os\x8c\6system\x93.", "found os system"),
    (b"\x80\x02ccollections\nOrderedDict\n)\x81.", "found NEWOBJ (0x81)"),
    (b"\x80\x02\x82\1.", "found EXT1 (0x82)"),
    (b"\x80\x02ccollections\nOrderedDict\n]\x85R.", "takes 0 positional arguments"),
    (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}(X\1\0\0\0xK\1ub.", "expected attributes of an OrderedDict"),
    (b"\x80\x02ctorch\nFloatStorage\n)R.", "the pickle is damaged"),
    (b"\x80\x02}r\xff\xff\xff\xff" + T + b"s.", "the pickle is damaged"),
    (b"\x80\x02X\xff\xff\xff\x7fabc.", "the pickle is damaged"),
    (of(T, view())[:-1], "the pickle is damaged: EOFError"),
    (of(T, view()) + b"x", "something after its end"),
    (b"\x80\x02" + b"N" * (1 << 24), "expected at most 16777216 bytes"),
    (of(NESTED, b"N"), "found one without tensors"),
    (of(DOUBLED, b"N"), "found one without tensors"),
    (of(T, view(), T, view()), "two values are named t"),
    (of(b"K\1", view()), "tensor 1: expected a name"),
    (of(b"X\3\0\0\0\xed\xa0\x80", view()), "expected a name"),
    (of(T, b"ctorch._utils\n_rebuild_parameter\nN\x85R"), "the pickle is damaged: TypeError: expected a tensor"),
    (of(T, view(elements=7)), "tensor t: expected storage 0 of 7 elements of F32 in the archive, found 24 bytes"),
    (of(T, view(elements=-1)), "tensor t: expected it to lie in its storage of -1 elements"),
    (of(T, view(key=b"../0")), "tensor t: expected storage ../0 of 6 elements"),
    (of(T, view(offset=1)), "found 6 from element 1 on"),
    (of(T, view(shape=b"K\3K\2\x86", stride=b"K\1K\3\x86")), "expected a contiguous tensor, found shape [3, 2] with strides [1, 3]"),
    (of(T, view(shape=b"J\xff\xff\xff\xffK\3\x86")), "expected a storage, an offset, a size"),
    (of(T, view(shape=b"\x8a\x08" + b"\xff" * 7 + b"\x0fK\3\x86")), "found 3458764513820540925 from element 0 on"),
    (of(T, view(stride=b"K\1\x85")), "as many strides"),
])  # fmt: skip
def test_hostile_pickles_are_refused_by_name(tmp_path, program, says):
    path = archive(tmp_path / "x.pt", program)
    with pytest.raises(Fault) as raised:
        torch_files.read(path)
    assert says in str(raised.value) and str(raised.value).startswith(path)


def test_a_program_has_a_limit_of_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(torch_files, "STEPS", 1000)
    with pytest.raises(Fault, match="found more than 1000 opcodes"):
        torch_files.read(archive(tmp_path / "x.pt", b"\x80\x02" + b"}" * 1001 + b"."))


def test_views_that_share_a_storage_do_not_fill_the_disk(tmp_path):
    """Small ones are within the limit while their names take more room."""
    assert len(torch_files.read(archive(tmp_path / "y.pt", of(*(b"X\4\0\0\0%04d" % i + view() for i in range(4000)))))) == 4000
    whole = view(1 << 20, 0, numbers(1 << 20), numbers(1))
    with pytest.raises(Fault, match="at most 16 times the file's size"):
        torch_files.read(archive(tmp_path / "x.pt", of(*(b"X\2\0\0\0%02d" % i + whole for i in range(40))), bytes(4 << 20)))


def edited(path, find, put, at=0):
    content = bytearray(path.read_bytes())
    where = content.index(find) + at
    content[where : where + len(put)] = put
    path.write_bytes(content)


@pytest.mark.parametrize("change, says", [
    (lambda p: archive(p, of(T, view()), compression=zipfile.ZIP_DEFLATED), "it is compressed or encrypted"),
    (lambda p: archive(p, of(T, view()), more={"a/version": b"11"}), "expected version 1 to 10 of torch.save's format, found b'11'"),
    (lambda p: archive(p, of(T, view()), more={"a/byteorder": b"big"}), "expected numbers in little-endian order"),
    (lambda p: archive(p, of(T, view()), more={"a/data.pkl": None}), "found no data.pkl"),
    (lambda p: p.write_bytes(b"{}"), "found a file that begins with b'{}'"),
    (lambda p: p.write_bytes(b"version https://git-lfs.github.com/spec/v1\n"), "found a pointer of Git LFS"),
    (lambda p: p.write_bytes(b""), "found a file that begins with b''"),
    (lambda p: p.write_bytes(p.read_bytes() + b"\n"), "something was added to it"),
    (lambda p: edited(p, b"PK\5\6", struct.pack("<I", 1 << 30), 12), "expected a ZIP archive's directory at its end"),
    (lambda p: edited(p, bytes(24), b"\1"), "Bad CRC-32 for file 'a/data/0'"),
    (lambda p: edited(p, b"FloatStorage", b"HalfStorage\n"), "Bad CRC-32 for file 'a/data.pkl'"),
    (lambda p: edited(p, b"PK\1\2", struct.pack("<II", 900, 900), 20), "bytes of another in it"),
])  # fmt: skip
def test_damaged_archives_are_refused(tmp_path, change, says):
    path = tmp_path / "x.pt"
    archive(path, of(T, view()))
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
    choose = random.Random(1)
    path = tmp_path / "x.pt"
    for file in ("module.pt", "protocol5.pt", "plain.pt"):
        good = (CASES / file).read_bytes()
        for n in range(0, len(good), 97):
            path.write_bytes(good[:n])
            assert used(path) is None
        for _ in range(60):
            changed = bytearray(good)
            changed[choose.randrange(len(good))] ^= 1 << choose.randrange(8)
            path.write_bytes(changed)
            used(path)
        with zipfile.ZipFile(CASES / file) as z:
            program = bytearray(z.read(next(n for n in z.namelist() if n.endswith("data.pkl"))))
        for _ in range(150):  # with the right checksum
            changed = bytearray(program)
            for _ in range(choose.choice((1, 1, 3))):
                changed[choose.randrange(2, len(changed))] = choose.choice((0, 255, *b"qhrjsubQRt(}]).\x85\x86\x8a\x94\x93", choose.randrange(256)))
            archive(path, bytes(changed))
            used(path)


def pickled(tensors, path):
    """Writes tensors as torch.save does."""
    names = {"F32": b"Float", "BF16": b"BFloat16", "F16": b"Half", "I64": b"Long", "BOOL": b"Bool"}
    program = of(*(b"X" + struct.pack("<I", len(n)) + n.encode()
                   + view(shape[0] * (shape + [1])[1], 0, numbers(*shape), numbers(*shape[1:], 1), b"%d" % i, names[kind])
                   for i, (n, (kind, shape, _)) in enumerate(tensors.items())))  # fmt: skip
    archive(path, program, more={f"a/data/{i}": raw for i, (_, _, raw) in enumerate(tensors.values())})


@pytest.mark.parametrize("kind, file", [("medusa", "medusa_lm_head.pt"), ("eagle", "pytorch_model.bin"), ("eagle3", "pytorch_model.bin")])
def test_a_published_head_is_refused_by_a_command_and_works_after_it(speclab, tiny, tmp_path, kind, file):
    heads = {k: tmp_path / f"plain-{k}" for k in ("medusa", "eagle", "eagle3")}
    subprocess.run([BUILD / "write_small_heads", tiny, *heads.values()], check=True)
    own = tmp_path / "published"
    own.mkdir()
    (own / "config.json").write_bytes((heads[kind] / "config.json").read_bytes())
    pickled(stored(heads[kind]), own / file)
    words = ("generate", tiny, "The cat", "--tokens", "20", "--chat", "none", "--drafter")
    refused = speclab(*words, f"{kind}:weights={own}")
    command = f"./run convert {own / file if kind == 'medusa' else own} --out FOLDER"
    assert refused.status == 1 and command in refused.err
    assert speclab(*command.split()[1:-1], "converted").status == 0
    assert stored(tmp_path / "converted") == stored(heads[kind])
    texts = [engine(*words, f"{kind}:weights={head}", cwd=tmp_path) for head in (heads[kind], "converted")]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("change, says", [
    (lambda f: (f / "pytorch_model.bin.index.json").write_text("{"), "not valid JSON"),
    (lambda f: (f / "pytorch_model.bin.index.json").write_text('{"weight_map": {}}'), 'expected an object "weight_map" of tensors'),
    (lambda f: (f / "pytorch_model.bin.index.json").write_text('{"weight_map": {"a": "../x.bin"}}'), "the name of a file beside the index"),
    (lambda f: (f / "pytorch_model.bin.index.json").write_text('{"weight_map": {"z": "one.bin"}}'), "one.bin: No such file"),
    (lambda f: (f / "pytorch_model.bin.index.json").unlink(), "expected medusa_lm_head.pt, pytorch_model.bin.index.json or pytorch_model.bin in it"),
])  # fmt: skip
def test_an_index_that_is_wrong_is_refused(in_process, tmp_path, change, says):
    (tmp_path / "m").mkdir()
    for file in (CASES / "sharded").iterdir():
        (tmp_path / "m" / file.name).write_bytes(file.read_bytes())
    change(tmp_path / "m")
    status, _, err = in_process("convert", tmp_path / "m", "--out", tmp_path / "out")
    assert status == 1 and says in err and err.startswith(str(tmp_path / "m"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m"]


def test_what_exists_is_not_overwritten(in_process, tmp_path):
    status, _, err = in_process("convert", CASES / "model.pt", "--out", tmp_path)
    assert status == 1 and "exists already" in err and in_process("convert", CASES / "model.pt")[0] == 2
