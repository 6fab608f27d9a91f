// device_draft.h - drafts in the memory of the target's device (core/draft.h: device_draft), as the verifier reads them.
#pragma once
#include "core/draft.h"

struct backend;

int draft_max_nodes(const struct draft *d); // its number of nodes, or the maximum if only the device knows it
// Copies the draft to the host, if it is on the device alone. It stays on the device too.
void draft_fetch(struct backend *b, struct draft *d);
