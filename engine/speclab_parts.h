// speclab_parts.h - what is behind the handles of speclab.h, for the program's own commands; not installed.
//
// A command opens, decodes and closes by speclab.h. From here it has what only a report needs (hash and type of a model, options of
// a pairing, the draft of a step), and pairings of which it has read the settings itself, with its own names for them.
#pragma once
#include "engine/engine.h"
#include "engine/speclab.h"

struct speclab_target {
    struct target target;
    struct chat_format chat; // kind CHAT_NONE if there is no_chat
    struct error no_chat;    // why conversations have no template; "": they have one, or need none
};

struct speclab_decoder {
    struct speclab_target *target;
    struct pairing pairing;
    struct decoder *decoder;
    struct speclab_listener listener;
    const struct step *step;     // during the listener's step(): all of it
    const struct ending *ending; // during its end()
    struct request_ends **ends;  // (slots) what ends each active sequence; owned
    int slots;
};

// speclab_decoder_create with a pairing from pairing_read in place of the options' texts. Takes over what p owns, also on failure.
struct speclab_decoder *decoder_from_pairing(struct speclab_target *t, struct pairing *p,
                                             const struct speclab_decoder_options *o, struct error *err);
