// torch.h - a checkpoint of PyTorch, torch.save of a state_dict, read from its mapping.
//
// A file is a ZIP archive (since PyTorch 1.6) of a pickle, data.pkl, and the storages that it speaks of, raw. The
// pickle is read without doing any of it (formats/pickle.h): what is not a dictionary of tensors is refused. Tensors are
// described in safetensors' words, by its struct.
//
// The tensors are those of the dictionary. Where it has none itself, as in a file of a training run, they are those of
// its only value that is a dictionary with tensors, if that is called state_dict, model or module. All else is ignored.
//
// Checked when read: the archive (formats/zip.h), the CRC-32 of what is read (not that of the storages, which are only
// mapped), little-endian order, that a storage has the bytes it should, that a tensor lies in it in one piece, row by
// row; all arithmetic guarded against overflow. Tensors may share a storage: their data may overlap.
// https://github.com/pytorch/pytorch (torch/serialization.py, torch/_utils.py, caffe2/serialize/inline_container.h).
#pragma once
#include "formats/file.h"
#include "formats/tensor_list.h"

// Adds the tensors of a file, with `number` as their file; their data are borrowed from the mapping. After a failure the
// list may hold some of them.
bool torch_read(const char *path, const struct mapping *file, int number, struct tensor_list *to, struct error *err);
