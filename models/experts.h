// experts.h - a mixture of experts in place of a layer's feed-forward network. A router scores all experts for a row,
// and the row goes through those with the largest scores (Shazeer et al. 2017, arXiv 1701.06538; Jiang et al. 2024,
// arXiv 2401.04088).
//
// The rows of a pass that use an expert go through it together, so its weights are read once, whatever their number: a
// pass of n rows reads the union of the experts of its rows. All experts of a layer are two operations (backend.h:
// grouped). The result of a row depends on that row alone, as in every operation. The host chooses the experts: on a
// GPU it waits for the router's scores in each layer, and such layers are not captured as a graph.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "core/tensor.h"
#include "kernels/backend.h"

struct model_shape;

struct experts {
    int count, used;          // count 0: the layer has none
    bool normalized;          // the weights of the used experts sum to 1; otherwise those of all experts do
    struct tensor router;     // (count, width)
    struct tensor *gate, *up; // (count) each (hidden, width)
    struct tensor *down;      // (count) each (width, hidden)
};

struct expert_scratch {
    struct tensor logits;           // (n, count) scores by the router
    struct tensor gate, y;          // (n * used, hidden), (n * used, width): the experts' outputs for their rows
    struct tensor out;              // (n, width)
    float *score, *weight;          // (n, count), (n, used) on the host
    int32_t *chosen, *at;           // (n, used) experts of a row, and their rows of y
    int32_t *row;                   // (n * used) the row of x that each row of y belongs to
    struct row_group *group, *down; // (count) one for each expert
    int64_t touched;                // experts that passes have read so far, over all layers; a counter for callers
};

// rows: maximum rows of a pass. Returns false if the device has not enough memory. The scratch can be destroyed in any
// case.
bool expert_scratch_create(struct expert_scratch *t, struct backend *b, const struct model_shape *s, int rows);
void expert_scratch_destroy(struct expert_scratch *t, struct backend *b);
// Returns the sum of weight * down(f(gate x) * up x) over the experts of each row of x (n, width): t->out, valid until
// the next call. Of equal scores the expert with the lower number is used.
struct tensor experts_forward(struct backend *b, const struct experts *e, struct expert_scratch *t, struct tensor x,
                              enum gate_function f);
