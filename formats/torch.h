// torch.h - reads a mapped PyTorch checkpoint: torch.save of a state_dict.
//
// A file is a ZIP archive (since PyTorch 1.6) of a pickle, data.pkl, and the raw storages that it refers to. The pickle
// is parsed but never executed (formats/pickle.h); anything but a dictionary of tensors is an error. Tensors are
// described by struct safetensor.
//
// The tensors are those of the dictionary. If it has none itself, as in a training checkpoint, they are those of its only
// value that is a dictionary with tensors, if its key is state_dict, model or module. Everything else is ignored.
//
// The reader checks the archive (formats/zip.h), the CRC-32 of entries that it reads (not of the storages, which are only
// mapped), little-endian byte order, the sizes of storages, and that each tensor is contiguous in row-major order within
// its storage; all arithmetic is guarded against overflow. Tensors may share a storage: their data may overlap.
// https://github.com/pytorch/pytorch (torch/serialization.py, torch/_utils.py, caffe2/serialize/inline_container.h).
#pragma once
#include "formats/file.h"
#include "formats/tensor_list.h"

// Appends the file's tensors to the list, with `number` as their file index; data is borrowed from the mapping. After a
// failure the list may hold some of them.
bool torch_read(const char *path, const struct mapping *file, int number, struct tensor_list *to, struct error *err);
