// speclab.h - speculative decoding as a library: a target, a drafter, a rule, and the loop that joins them. The one
// public header; examples/decode.c is a whole program of 40 lines. Link with `pkg-config --libs speclab`.
//
// A drafter proposes draft tokens (distribution q), the target scores them in one pass (distribution p), a rule accepts
// a prefix of them. Under a lossless rule the output has the target's distribution, whatever the drafter does
// (Leviathan et al. 2023, arXiv 2211.17192; proofs for every rule: docs/exactness.md).
//
// Functions that can fail return false or NULL and leave one sentence in *error, which names file or option, what was
// expected and what was found; error may be NULL. A target and the decoders on it belong to one thread at a time; the
// library starts worker threads of its own. It prints nothing. Texts are UTF-8; texts and arrays that are passed in are
// borrowed for the call. docs/library.md has more.
#ifndef SPECLAB_H
#define SPECLAB_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The number of this interface: it changes whenever a struct or a function does, so a program that is linked with
// another library than it was compiled for can find out: speclab_interface() == SPECLAB_VERSION.
#define SPECLAB_VERSION 5
int speclab_interface(void);

#ifndef speclab_error // a macro in the library's own sources: core/error.h's struct error
struct speclab_error {
    char text[1024]; // NUL-terminated
};
#endif

// ---- target (target.c; texts of tokens: stop_strings.c; facts and weights: facts.c)

struct speclab_target; // a model on a device, with its tokenizer

struct speclab_target_options { // NULL and 0: the default
    const char *device;         // "cpu", "cuda", "cuda:1"; default: "cpu"
    const char *activations;    // what products round their input to: "default", "f32", "bf16", "int8"
    const char *cache;          // element type of the KV cache: "default", "f32", "bf16", "q8_0"
    // Chat template: "auto" (the model's own), "none", "chatml", "vicuna", "zephyr", or a file; default: "auto".
    const char *chat;
    const char
        *chat_variables; // the template's variables, a JSON object: "{\"enable_thinking\": false}"; default: none
    const char *folder;  // base of a relative path of the model; default: the working directory
    int threads;         // threads of the CPU; default: one per processor
    int rows;            // maximum rows of a pass, until a decoder needs slots * nodes of a draft; default: 512
    bool ids_only;       // no tokenizer is opened: prompts are token ids
    // Packed weights are read from MODEL.packed, which is written if none fits: the next opening is faster. log, unless
    // NULL, is called with a sentence on what happened to that file, and on what the device gave up: "CUDA graphs: off
    // (..)".
    bool packed_cache;
    void (*log)(void *self, const char *sentence);
    void *log_self;
};

// model: a GGUF file, a Hugging Face directory, or a name in the model caches. options may be NULL. A model without a
// supported tokenizer or chat template opens, too: then prompts are token ids.
struct speclab_target *speclab_target_open(const char *model, const struct speclab_target_options *options,
                                           struct speclab_error *error);
void speclab_target_close(struct speclab_target *t); // all decoders on it are closed before; NULL is fine
// Number of token ids. Rows of the model beyond the tokenizer's ids are padding and do not count.
int speclab_target_vocab(const struct speclab_target *t);
int speclab_target_context(const struct speclab_target *t); // maximum sequence length of the model

struct speclab_target_facts { // what was opened; texts are borrowed until the target is closed
    const char *path;         // file or directory
    const char *device;       // "cpu", "cuda", "cublas"
    const char *processor;    // what the device is: "avx512, 2 threads"
    const char *activations;  // what "default" became: "f32", "bf16", "int8"
    const char *cache;        // what "default" became here: "f32", "bf16", "q8_0"
    int layers, width, vocab; // the model's sizes; vocab counts padding as well
    bool varies;              // the bits of a row depend on the other rows of its pass (cublas)
};
void speclab_target_facts(const struct speclab_target *t, struct speclab_target_facts *to);
// Writes the hash of weights and configuration in 32 hexadecimal digits. The first call reads all weights.
void speclab_target_identity(const struct speclab_target *t, char to[33]);

// Weights by their names in Hugging Face's checkpoints ("model.layers.0.mlp.up_proj.weight"), whatever the format of
// the target's file. Returns the name of weight i in alphabetical order, borrowed until the target is closed; NULL with
// an empty error: there are no more.
const char *speclab_weight_name(struct speclab_target *t, int i, struct speclab_error *error);
// Writes the shape of a weight, {rows, width}; a vector has one row. Unless `to` is NULL, also writes the weight
// (rows, width), dequantized as the target does it; a norm as the target multiplies by it. lm_head.weight is the
// embedding where the two are tied.
bool speclab_weight(struct speclab_target *t, const char *name, int64_t shape[2], float *to,
                    struct speclab_error *error);

struct speclab_tokens { // start with { NULL, 0 }
    int32_t *id;        // (n) owned: free() it
    size_t n;
};

struct speclab_message {
    const char *role, *content; // role: "system", "user" or "assistant"
};

// Whether speclab_encode_chat can work; the error says which of tokenizer and chat template is missing or not
// supported.
bool speclab_target_has_chat(const struct speclab_target *t, struct speclab_error *error);
// Appends the token ids of a text (after BOS where the model's tokenizer adds it), or of n messages under the target's
// chat template, ready for the assistant's answer (template "none": their contents, end to end). Text that is not UTF-8
// is an error. On failure nothing is appended.
bool speclab_encode(const struct speclab_target *t, const char *text, struct speclab_tokens *to,
                    struct speclab_error *error);
bool speclab_encode_chat(const struct speclab_target *t, const struct speclab_message *message, int n,
                         struct speclab_tokens *to, struct speclab_error *error);
// The text of n token ids, special tokens left out: NUL-terminated, free() it; bytes: its length, may be NULL. NULL:
// the model has no tokenizer that is supported.
char *speclab_text(const struct speclab_target *t, const int32_t *token, size_t n, size_t *bytes);

// ---- tokenizer alone (tokens.c): for texts that no model runs over

struct speclab_tokenizer;
// The tokenizer of a model (as speclab_target_open finds it), or a tokenizer.json; its weights are not read.
struct speclab_tokenizer *speclab_tokenizer_open(const char *model, struct speclab_error *error);
void speclab_tokenizer_close(struct speclab_tokenizer *t); // NULL is fine
int speclab_tokenizer_size(const struct speclab_tokenizer *t);
// Writes the hash of the texts of all ids in 32 hexadecimal digits: two tokenizers with the same ids have the same.
void speclab_tokenizer_identity(const struct speclab_tokenizer *t, char to[33]);
// Appends the ids of n bytes of UTF-8, without BOS; names of special tokens are ordinary text. On failure nothing is
// appended.
bool speclab_tokenizer_encode(const struct speclab_tokenizer *t, const char *text, size_t n, struct speclab_tokens *to,
                              struct speclab_error *error);

// ---- given texts (states.c): passes of the target alone
//
// Decoders on the target are paused or have no active sequences. The target keeps the memory for the next call.

enum { SPECLAB_FINAL = -1 }; // the hidden state after the last norm, which the LM head multiplies

// What speclab_states writes: a row for each token, with those of text k behind those of text k - 1. Row i belongs to
// the token i, which the model has read, and predicts the token i + 1 of its text. The bits of a row are those of
// decoding the text, unless the target's device varies. Start with { 0 }: nothing is written.
struct speclab_states {
    // Hidden states: j is the one that enters layer j (the number of layers: the one that leaves the last); at most 8
    const int *layer; // (layers)
    int layers;
    float *state;    // (tokens, layers, width)
    int top_k;       // so many most probable next tokens among ids below speclab_target_vocab
    int32_t *top_id; // (tokens, top_k) in descending order of their probabilities
    float *top_p;    // (tokens, top_k) their probabilities at temperature 1
    float *logits;   // (tokens, vocab of the model); NULL: they are not wanted
};
// Runs the target over n texts; text k has the ids token[offset[k]] .. token[offset[k + 1] - 1], at least one and at
// most the context, and offset[0] is 0. Short texts share passes. A failure names the text.
bool speclab_states(struct speclab_target *t, const int32_t *token, const int64_t *offset, int n,
                    const struct speclab_states *to, struct speclab_error *error);

// Writes the natural logarithms of the probabilities of the tokens `from` .. n - 1 of a text (from at least 1), each
// given all tokens before it, to logprob (n - from): those of the model itself, whose softmax covers all its ids,
// without a sampling stage. token (n): ids of the model. A text that is longer than the context is an error.
bool speclab_score(struct speclab_target *t, const int32_t *token, int n, int from, double *logprob,
                   struct speclab_error *error);

// ---- decoder (decoder.c; the loop: decode.c)

struct speclab_decoder; // a drafter, a rule and a sampling on a target, and the sequences being decoded

// One step of one sequence; borrowed for the call. A draft is a tree: node 0 is its root, the last token of the text
// before the step, and every other node is a draft token for the place after its parent's. The decision is a path from
// the root and a token of the target after it.
struct speclab_step {
    int64_t sequence;      // the request's number
    int slot, position;    // position: the root's place in the sequence, prompt included
    const int32_t *token;  // (decided) new tokens; token[i] follows node[i]
    int n;                 // the first so many of them are in the text: fewer than decided where the text ends
    int drafted, accepted; // draft tokens; those of them that are in the text
    int depth;             // depth of the deepest draft token; 0: there is none
    int decided;
    const int32_t *node;   // (decided) the accepted nodes; node[0] is the root
    const int32_t *draft;  // (drafted + 1) tokens of the nodes
    const int32_t *parent; // (drafted + 1) parent[0] is -1; parents come before their children
    // (drafted + 1) 0: deterministic, 1: drawn from q, 2: drawn from q without the tokens of earlier siblings
    const uint8_t *proposal;
    const uint8_t *source; // (drafted + 1) a bit for each part of a drafter of drafters that proposed the node
    const double *p, *q;   // (drafted + 1) probabilities of each node's acceptance test; NAN: it was not tested
    int empty;             // residuals that rounding left without mass
    int64_t propose_ns, verify_ns, advance_ns; // times of the whole batch
    int64_t
        at_ns; // time from the end of the sequence's prefill until the host had these tokens, by the decoder's clock
    int batch; // sequences in this step
    int64_t experts; // experts that the target's pass read, over all sequences and layers; 0: no mixture of experts
};

// Why a text has ended: an end token, a stop string, max_tokens, or the decoder's length.
enum speclab_stop { SPECLAB_STOP_TOKEN, SPECLAB_STOP_STRING, SPECLAB_STOP_LIMIT, SPECLAB_STOP_CONTEXT };

struct speclab_end { // a sequence has ended; borrowed for the call
    int64_t sequence;
    const int32_t *token; // (n) all new tokens, an end token or the tokens of a stop string included
    int n;
    const char *text; // (bytes) text of the tokens, up to the stop string: NUL-terminated; NULL without a tokenizer
    size_t bytes;
    const char *reason; // "end", "string", "limit" or "context": the word for why
    enum speclab_stop why;
    int shared;         // tokens of the prompt whose rows an earlier text had computed
    int64_t prefill_ns; // what these took then included
    int64_t decode_ns;  // this sequence's share of the time of its steps
    int64_t wall_ns;    // time from the end of its prefill to its end, by the decoder's clock
};
// The decoder's clock is a wall clock that stands still outside of speclab_decoder_start and speclab_decoder_step and
// during what is not part of decoding: callbacks (unless a device works meanwhile), untimed drafts.
// Prefills of other sequences are part of it.

// Called within speclab_decoder_step, and must not call the decoder; members may be NULL. Their time is not part of the
// times of steps. On a device that queues work, a step is reported while the device runs the pass of the second step
// after it. The steps of a sequence are reported in order, then its end.
struct speclab_rows; // the distributions of a step, or its logits
struct speclab_listener {
    void (*step)(void *self, const struct speclab_step *s);
    void (*end)(void *self, const struct speclab_end *e);
    void *self;
    // A draft was decided, and nothing else has happened: the step is the one that `step` reports later, without its
    // times and what its place in the text says (n, accepted). With it a device waits in every step.
    void (*decided)(void *self, const struct speclab_step *s, struct speclab_rows *rows);
    // A draft was scored, and is not decided yet: the step has the draft alone. With it a device waits twice in a step.
    void (*scored)(void *self, const struct speclab_step *s, struct speclab_rows *rows);
};
// In `decided`: the target's distribution after a node, as it is sampled from, and the one that the node's children
// were drawn from: (vocab of the model) probabilities, borrowed for the call. NULL: no child was drawn from one.
const float *speclab_rows_p(struct speclab_rows *r, int node);
const float *speclab_rows_q(struct speclab_rows *r, int node);
// In `scored`: the target's logits after a node, (vocab of the model), borrowed until the next row is read or `scored`
// returns. Each of the three functions returns NULL in the other callback.
const float *speclab_rows_logits(struct speclab_rows *r, int node);

struct speclab_decoder_options { // NULL and 0: the default
    const char *drafter;         // "none", "ngram:tokens=4", "small:model=draft.gguf,widths=[2,2]"; default: "none"
    const char *rule;            // "rejection", "match", ..; default: "rejection"
    const char *sampling;        // "temperature=0.8,top_p=0.95"; default: "temperature=1"
    int slots;                   // sequences decoded at a time; default: 1
    int length;                  // maximum length of a sequence, drafts included; default: the model's context
    uint64_t seed;               // seed of all random numbers: same seed, same tokens
    struct speclab_listener listener;
};

// Checks drafter, rule and sampling as far as that needs no model: an unknown kind or option, a value out of range, and
// a rule that does not take the drafter's drafts, are errors. options may be NULL.
bool speclab_decoder_options_check(const struct speclab_decoder_options *options, struct speclab_error *error);
// Makes the same checks, then opens what the drafter needs. options may be NULL. Borrows t. Several decoders on one
// target take turns: each is paused before another one starts or steps a sequence. None has active sequences while
// another is created.
struct speclab_decoder *speclab_decoder_create(struct speclab_target *t, const struct speclab_decoder_options *options,
                                               struct speclab_error *error);
void speclab_decoder_destroy(struct speclab_decoder *d);           // NULL is fine
bool speclab_decoder_is_lossless(const struct speclab_decoder *d); // the rule keeps the target's distribution

struct speclab_request {
    int64_t sequence;      // 0 .. 2^32 - 1, not active already: with the seed it names the sequence's random numbers
    const int32_t *prompt; // (n) ids below speclab_target_vocab; at least one token, fewer than the decoder's length
    int n;
    int max_tokens;          // new tokens, at least 1
    bool ignore_end;         // end-of-text tokens do not end it
    const char *const *stop; // (n_stop) stop strings: a text ends where one of them is complete; UTF-8, not empty
    int n_stop;
    // The target's sampling for this sequence: "temperature=0.7"; NULL: the decoder's. A drafter's q is of the
    // decoder's in any case.
    const char *sampling;
};

bool speclab_decoder_has_free_slot(const struct speclab_decoder *d);
// Runs the prompt through target and drafter. Needs a free slot. Copies the request.
bool speclab_decoder_start(struct speclab_decoder *d, const struct speclab_request *r, struct speclab_error *error);
int speclab_decoder_active(const struct speclab_decoder *d); // sequences that have not ended
// The slot of a sequence; -1: it is not active.
int speclab_decoder_slot(const struct speclab_decoder *d, int64_t sequence);
// One step of every active sequence: propose, verify, advance. After a failure (of the device) the decoder can only be
// destroyed.
bool speclab_decoder_step(struct speclab_decoder *d, struct speclab_error *error);
// Waits for queued work and reports all steps, so that another decoder on the target may step. Active sequences keep
// their slots.
bool speclab_decoder_pause(struct speclab_decoder *d, struct speclab_error *error);
// Ends active sequences without a report, after speclab_decoder_pause.
void speclab_decoder_drop(struct speclab_decoder *d);

#ifdef __cplusplus
}
#endif
#endif
