// write_seeds.h - shared by the files that write the seeds of the fuzz targets.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct text;

void put(const char *target, const char *name, const void *bytes, size_t n); // FOLDER/target/name
void put_text(const char *target, const char *name, const struct text *t);
#define PUT(target, name, literal) put(target, name, literal, sizeof(literal) - 1)
void add_file(struct text *to, const char *directory, const char *name); // appends a file, if it exists
void add_nul(struct text *to);

void write_models(void);      // small models: GGUF files, and as directories configurations and safetensors
void write_configs(void);     // configurations by hand
void write_safetensors(void); // a file with every type
void write_tokenizers(void);
void write_words(void); // experiments, prompts, templates, trees, changes of a database
void write_heads(void);
