// torch_copy.h - a checkpoint of safetensors written once more as torch.save would write it.
#pragma once

// All tensors of a directory or a file, F32, F16, BF16, I64 or BOOL, those of a type in one storage, into one file.
void pickled_checkpoint(const char *from, const char *to);
// A model's directory with pytorch_model.bin, or files like the original's and an index; all else as it is there.
void pickled_model(const char *from, const char *to);
