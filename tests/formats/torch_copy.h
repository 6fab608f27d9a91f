// torch_copy.h - converts a safetensors checkpoint to the files that torch.save would write.
#pragma once

// Writes all tensors of a directory or a file (F32, F16, BF16, I64 or BOOL) to one file, with one storage per type.
void pickled_checkpoint(const char *from, const char *to);
// Writes a model's directory with pytorch_model.bin, or with several files and an index as in the original; everything else
// is copied.
void pickled_model(const char *from, const char *to);
