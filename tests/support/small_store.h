// small_store.h - a datastore of a few hundred random tokens that repeat themselves.
#pragma once

// target: the model whose tokenizer it is for.
void small_store_write(const char *target, const char *path);
