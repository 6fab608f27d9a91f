// layer_list.h - lists of layers as options have them: "0-11,13,15,17,19-29".
#pragma once

struct error;

// Returns the ascending layers (*n) of a model with `layers` of them; free() it. NULL: sets err.
int *layer_list_parse(const char *list, int layers, int *n, struct error *err);
char *layer_list_write(const int *layer, int n); // its inverse; free() it
