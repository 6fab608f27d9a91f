// paths.h - where a model that was named lies on this machine.
//
// In order: an existing file or directory (relative names first against `beside`, the folder of the experiment's file;
// ~/ is the home directory); a bare name under ${XDG_CACHE_HOME:-~/.cache}/speclab/models/ (NAME, NAME.gguf);
// org/name[@revision] in the Hugging Face cache, which is the first that is set of $HF_HUB_CACHE,
// $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub and ${XDG_CACHE_HOME:-~/.cache}/huggingface/hub; of a repository without
// config.json, its one GGUF file. Nothing is ever downloaded: the error names every place that was looked at, and the
// command that would fetch it (`./run model NAME`, `hf download org/name`).
#pragma once
struct error;
// free() it; NULL: not found. beside may be NULL
char *model_path(const char *name, const char *beside, struct error *err);
char *model_cache(void);   // the folder for bare names; free() it
char *weights_cache(void); // the folder in which hashes of weights are remembered (weights_hash.c); likewise
