"""Hidden states that a drafter gets by DLPack, where the target has them."""

import ctypes
import struct

import numpy as np
import pytest
from conftest import call

from speclab import dlpack

pytestmark = pytest.mark.library

STATES = """
import numpy as np
import speclab

class Copies(speclab.Drafter):
    "notes the hidden states that it gets"
    layers = (0, 2, speclab.FINAL)
    file: str

    def propose(self, request, draft):
        draft.add(request.tokens[-1])

    def array(self, states):
        return states

    def advance(self, a):
        with open(self.file, "ab") as f:
            f.write(np.ascontiguousarray(self.array(a.states)).tobytes())

class Lent(Copies):
    "notes them by DLPack"
    on_device = True

    def array(self, states):
        assert states.shape[1:] == (3, self.width)
        return np.from_dlpack(states)
"""


def test_states_by_dlpack_are_those_of_arrays(tmp_path, tiny):
    (tmp_path / "states.py").write_text(STATES)
    for kind in ("copies", "lent"):
        how = ("--plugin", "states.py", "--drafter", f"{kind}:file={kind}.bin")
        done = call("generate", tiny, "--tokens", 40, "--threads", 1, *how, "red, green", cwd=tmp_path)
        assert done.status == 0, done.err
    copies = (tmp_path / "copies.bin").read_bytes()
    assert len(copies) > 40 * 3 * 4 * 16 and copies == (tmp_path / "lent.bin").read_bytes()


def test_a_capsule_says_where_the_memory_is():
    numbers = np.arange(24, dtype=np.float32)
    lent = dlpack.Lent(numbers.ctypes.data, (4, 3, 2), 5)
    assert lent.__dlpack_device__() == (2, 5)
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    for version, name in ((None, b"dltensor"), ((1, 0), b"dltensor_versioned")):
        capsule = lent.__dlpack__(max_version=version)
        at = get(capsule, name) + (8 + 16 + 8 if version else 0)  # DLManagedTensorVersioned: version, manager_ctx, deleter, flags come first
        data, kind, device, dims, dtype, shape, strides, offset = struct.unpack("=QiiiIQQQ", ctypes.string_at(at, 48))
        shape, strides = (struct.unpack("3q", ctypes.string_at(x, 24)) for x in (shape, strides))
        assert (data, kind, device, dims, dtype, offset) == (numbers.ctypes.data, 2, 5, 3, 2 | 32 << 8 | 1 << 16, 0)
        assert (shape, strides) == ((4, 3, 2), (6, 2, 1))
        assert len(dlpack._lent) == 1
        del capsule
        assert not dlpack._lent
    host = dlpack.Lent(numbers.ctypes.data, (4, 6), -1)
    array = np.from_dlpack(host)
    assert array.ctypes.data == numbers.ctypes.data and not array.flags.writeable and array.tolist() == numbers.reshape(4, 6).tolist()
    del array
    assert not dlpack._lent
    with pytest.raises(BufferError):
        host.__dlpack__(copy=True)


def test_torch_takes_the_memory_itself():
    pytest.importorskip("torch.nn")  # a folder named torch is a package, too
    import torch

    numbers = np.arange(12, dtype=np.float32)
    tensor = torch.from_dlpack(dlpack.Lent(numbers.ctypes.data, (4, 3), -1))
    assert tensor.data_ptr() == numbers.ctypes.data and tensor.tolist() == numbers.reshape(4, 3).tolist()
    del tensor
    assert not dlpack._lent
