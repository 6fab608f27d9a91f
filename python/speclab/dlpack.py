"""dlpack - memory of the engine, on the host or on a GPU, as an object from which torch, cupy, jax and numpy make an array without a
copy: DLPack 1.0 (dmlc.github.io/dlpack, python_spec), the versioned capsule and the older one.
"""

import ctypes as c
import gc
from collections.abc import Sequence
from typing import Any

from speclab.plugins import Wrong

CPU, CUDA, FLOAT, READ_ONLY = 1, 2, 2, 1  # DLDeviceType, DLDataTypeCode, a flag
_new = c.PYFUNCTYPE(c.py_object, c.c_void_p, c.c_char_p, c.c_void_p)(("PyCapsule_New", c.pythonapi))
_is_valid = c.PYFUNCTYPE(c.c_int, c.c_void_p, c.c_char_p)(("PyCapsule_IsValid", c.pythonapi))
_pointer = c.PYFUNCTYPE(c.c_void_p, c.c_void_p, c.c_char_p)(("PyCapsule_GetPointer", c.pythonapi))
_FUNCTION = c.CFUNCTYPE(None, c.c_void_p)


class _Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device_type", c.c_int32), ("device_id", c.c_int32), ("ndim", c.c_int32), ("code", c.c_uint8),
                ("bits", c.c_uint8), ("lanes", c.c_uint16), ("shape", c.c_void_p), ("strides", c.c_void_p), ("byte_offset", c.c_uint64)]  # fmt: skip


class _Managed(c.Structure):
    _fields_ = [("tensor", _Tensor), ("manager", c.c_void_p), ("deleter", _FUNCTION)]


class _Versioned(c.Structure):
    _fields_ = [("major", c.c_uint32), ("minor", c.c_uint32), ("manager", c.c_void_p), ("deleter", _FUNCTION), ("flags", c.c_uint64),
                ("tensor", _Tensor)]  # fmt: skip


_lent: dict[int, Any] = {}  # the structs that a library may still read, by their address


@_FUNCTION
def _delete(managed: int) -> None:
    _lent.pop(managed, None)


@_FUNCTION
def _drop(capsule: int) -> None:
    """Deletes what nobody has taken; a library that takes a capsule renames it."""
    for name in (b"dltensor", b"dltensor_versioned"):
        if _is_valid(capsule, name):
            _delete(_pointer(capsule, name))


class Lent:
    """Floats of the engine, valid during the call that they are passed to. torch.from_dlpack(x) has the memory itself,
    on the device where it is."""

    def __init__(self, address: int, shape: Sequence[int], gpu: int):
        """gpu: CUDA's number of the device; -1: the host."""
        self.address, self.shape, self.gpu, self.given = address, tuple(shape), gpu, []

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("expected torch.from_dlpack(a.states), or that of another library: states with on_device are no array")

    def ended(self) -> None:
        """Raises Wrong if a library still has the memory, which is valid during a call that has ended."""
        if self._kept() and gc.collect() >= 0 and self._kept():
            raise Wrong("a tensor of a.states, or a graph of autograd with it, is kept after the call, and would show later "
                            "states: keep a copy (.clone()), made under torch.no_grad()")  # fmt: skip

    def _kept(self) -> bool:
        return any(managed in _lent for managed in self.given)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (CPU, 0) if self.gpu < 0 else (CUDA, self.gpu)

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None, dl_device: Any = None, copy: bool | None = None) -> Any:
        """Everything queued on the device is done, so any stream of the caller may read at once."""
        if copy or (dl_device is not None and tuple(map(int, dl_device)) != self.__dlpack_device__()):
            raise BufferError("expected a request for the memory where it is, without a copy")
        versioned = max_version is not None and max_version[0] >= 1
        of = _Versioned(1, 0, None, _delete, READ_ONLY) if versioned else _Managed(deleter=_delete)
        shape = (c.c_int64 * (2 * len(self.shape)))(*self.shape, *([1] * len(self.shape)))
        for i in range(len(self.shape) - 2, -1, -1):
            shape[len(self.shape) + i] = shape[len(self.shape) + i + 1] * shape[i + 1]
        of.tensor = _Tensor(self.address, *self.__dlpack_device__(), len(self.shape), FLOAT, 32, 1, c.addressof(shape),
                            c.addressof(shape) + 8 * len(self.shape), 0)  # fmt: skip
        _lent[c.addressof(of)] = of, shape
        self.given.append(c.addressof(of))
        return _new(c.addressof(of), b"dltensor_versioned" if versioned else b"dltensor", c.cast(_drop, c.c_void_p))
