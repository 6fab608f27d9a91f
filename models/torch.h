// torch.h - checkpoints of PyTorch, torch.save of a state_dict: one file, or those that pytorch_model.bin.index.json
// lists, mapped.
//
// A file is a ZIP archive (since PyTorch 1.6) of a pickle, data.pkl, and the storages that it speaks of, raw. The
// pickle is read without doing any of it (models/pickle.h): what is not a dictionary of tensors is refused. Tensors are
// described in safetensors' words, by its struct, so that whoever takes the one takes the other.
//
// The tensors are those of the dictionary. Where it has none itself, as in a file of a training run, they are those of
// its only value that is a dictionary with tensors, if that is called state_dict, model or module. All else is ignored.
//
// Checked when opened: the archive (models/zip.h), the CRC-32 of what is read (not that of the storages, which are only
// mapped), little-endian order, that a storage has the bytes it should, that a tensor lies in it in one piece, row by
// row; all arithmetic guarded against overflow. Tensors may share a storage: their data may overlap.
// https://github.com/pytorch/pytorch (torch/serialization.py, torch/_utils.py, caffe2/serialize/inline_container.h).
#pragma once
#include "models/safetensors.h"

struct torch;

struct torch *torch_open(const char *path, struct error *err); // a file of any name, or a model directory
void torch_close(struct torch *t);
size_t torch_count(const struct torch *t);
const struct safetensor *torch_at(const struct torch *t, size_t i); // sorted by name
const struct safetensor *torch_find(const struct torch *t, const char *name);
int torch_files(const struct torch *t);
const char *torch_file(const struct torch *t, int file); // its path
