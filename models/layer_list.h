// layer_list.h - lists of layers in the form of options: "0-11,13,15,17,19-29".
#pragma once

struct error;

// Returns the ascending layers (*n) of a model with `layers` of them; free() it. Returns NULL and sets err on failure.
int *layer_list_parse(const char *list, int layers, int *n, struct error *err);
char *layer_list_write(const int *layer, int n); // the inverse of layer_list_parse; free() it
