#include "tests/support/small_tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/memory.h"
#include "tests/formats/gguf_write.h"
#include "tests/support/small_model.h"

static const char *const special[] = { "<|endoftext|>", "<|im_start|>", "<|im_end|>" };
// In byte characters: a space is G with a dot. The order is the rank; the merged tokens are the last ids.
enum { SPECIAL = 3, BYTES = 256, MERGES = 11 };
static const char *const merges[MERGES] = { "Ġ t", "h e", "Ġt he", "i n",  "Ġ a",  "e r",
                                            "o n", "r e", "in g",  "Ġa n", "Ġan d" };
// Of the other tokenizer, which has the bytes in the opposite order and the special tokens after the first one in another: five of its merged
// tokens are those of the first.
static const char *const other_merges[MERGES] = { "t h", "i n", "th e", "Ġ a",  "e n", "o n",
                                                  "r e", "i s", "Ġ o",  "in g", "Ġo n" };
static const int other_special[] = { SMALL_ENDOFTEXT, SMALL_IM_END, SMALL_IM_START };
_Static_assert(SPECIAL + BYTES + MERGES == SMALL_TOKENS, "SMALL_TOKENS in small_model.h");

static const char chatml[] =
    "{% for message in messages %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

// GPT-2's bytes_to_unicode: printable bytes map to themselves, the others to characters from 256 on.
static void byte_character(int byte, char *to)
{
    int c = byte, others = 0;
    for (int b = 0; b <= byte; b++) {
        bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        if (b == byte && !printable)
            c = 256 + others;
        others += !printable;
    }
    if (c < 0x80)
        snprintf(to, 3, "%c", c);
    else
        snprintf(to, 3, "%c%c", 0xC0 | c >> 6, 0x80 | (c & 0x3F));
}

struct tokens {
    char text[SMALL_TOKENS][16];
};

static void make_tokens(struct tokens *t, bool other)
{
    for (int i = 0; i < SPECIAL; i++)
        snprintf(t->text[i], sizeof(t->text[i]), "%s", special[other ? other_special[i] : i]);
    for (int i = 0; i < BYTES; i++)
        byte_character(i, t->text[SPECIAL + (other ? BYTES - 1 - i : i)]);
    for (int i = 0; i < MERGES; i++) {
        const char *merge = other ? other_merges[i] : merges[i], *space = strchr(merge, ' ');
        snprintf(t->text[SPECIAL + BYTES + i], 16, "%.*s%s", (int)(space - merge), merge, space + 1);
    }
}

void small_write_tokenizer_gguf(struct gguf_writer *w)
{
    static struct tokens t;
    make_tokens(&t, false);
    const char *text[SMALL_TOKENS];
    int32_t kind[SMALL_TOKENS];
    for (int i = 0; i < SMALL_TOKENS; i++) {
        text[i] = t.text[i];
        kind[i] = i < SPECIAL ? 3 : 1; // control, normal
    }
    gguf_write_text(w, "tokenizer.ggml.model", "gpt2");
    gguf_write_text(w, "tokenizer.ggml.pre", "smollm");
    gguf_write_texts(w, "tokenizer.ggml.tokens", text, SMALL_TOKENS);
    gguf_write_ints(w, "tokenizer.ggml.token_type", kind, SMALL_TOKENS);
    gguf_write_texts(w, "tokenizer.ggml.merges", merges, MERGES);
    gguf_write_int(w, "tokenizer.ggml.bos_token_id", GGUF_U32, SMALL_IM_START);
    gguf_write_int(w, "tokenizer.ggml.eos_token_id", GGUF_U32, SMALL_IM_END);
    gguf_write_bool(w, "tokenizer.ggml.add_bos_token", false);
    gguf_write_bool(w, "tokenizer.ggml.add_space_prefix", false);
    gguf_write_text(w, "tokenizer.chat_template", chatml);
}

static void write_json(const char *directory, const char *name, struct json *j)
{
    char *path = xformat("%s/%s", directory, name), *text = json_write(j);
    FILE *f = fopen(path, "we");
    if (f == NULL || fputs(text, f) < 0 || fclose(f) != 0) {
        perror(path);
        exit(1);
    }
    free(path);
    free(text);
    json_free(j);
}

static struct json *object(const char *type)
{
    struct json *j = json_new_object();
    json_set(j, "type", json_new_text(type));
    return j;
}

static struct json *byte_level(bool pattern)
{
    struct json *j = object("ByteLevel");
    json_set(j, "add_prefix_space", json_new_bool(false));
    json_set(j, "trim_offsets", json_new_bool(true));
    json_set(j, "use_regex", json_new_bool(pattern));
    return j;
}

static struct json *added_tokens(bool other)
{
    struct json *list = json_new_array();
    for (int i = 0; i < SPECIAL; i++) {
        static const char *const no[] = { "single_word", "lstrip", "rstrip", "normalized" };
        struct json *j = json_new_object();
        json_set(j, "id", json_new_int(i));
        json_set(j, "content", json_new_text(special[other ? other_special[i] : i]));
        for (int k = 0; k < 4; k++)
            json_set(j, no[k], json_new_bool(false));
        json_set(j, "special", json_new_bool(true));
        json_push(list, j);
    }
    return list;
}

static struct json *bpe(bool other)
{
    static struct tokens t;
    make_tokens(&t, other);
    struct json *j = object("BPE"), *vocab = json_new_object(), *list = json_new_array();
    for (int i = 0; i < SMALL_TOKENS; i++)
        json_set(vocab, t.text[i], json_new_int(i));
    for (int i = 0; i < MERGES; i++)
        json_push(list, json_new_text(other ? other_merges[i] : merges[i]));
    json_set(j, "dropout", json_new_null());
    json_set(j, "unk_token", json_new_null());
    json_set(j, "continuing_subword_prefix", json_new_null());
    json_set(j, "end_of_word_suffix", json_new_null());
    json_set(j, "fuse_unk", json_new_bool(false));
    json_set(j, "byte_fallback", json_new_bool(false));
    json_set(j, "ignore_merges", json_new_bool(false));
    json_set(j, "vocab", vocab);
    json_set(j, "merges", list);
    return j;
}

void small_write_tokenizer_hf(const char *directory, bool other)
{
    struct json *j = json_new_object(), *digits = object("Digits"), *steps = json_new_array(),
                *pre = object("Sequence");
    json_set(digits, "individual_digits", json_new_bool(true));
    json_push(steps, digits);
    json_push(steps, byte_level(true));
    json_set(pre, "pretokenizers", steps);
    json_set(j, "version", json_new_text("1.0"));
    json_set(j, "truncation", json_new_null());
    json_set(j, "padding", json_new_null());
    json_set(j, "added_tokens", added_tokens(other));
    json_set(j, "normalizer", json_new_null());
    json_set(j, "pre_tokenizer", pre);
    json_set(j, "post_processor", json_new_null());
    json_set(j, "decoder", byte_level(true));
    json_set(j, "model", bpe(other));
    write_json(directory, "tokenizer.json", j);

    j = json_new_object();
    json_set(j, "tokenizer_class", json_new_text("GPT2Tokenizer"));
    json_set(j, "bos_token", json_new_text(special[SMALL_IM_START]));
    json_set(j, "eos_token", json_new_text(special[SMALL_IM_END]));
    json_set(j, "add_prefix_space", json_new_bool(false));
    json_set(j, "chat_template", json_new_text(chatml));
    write_json(directory, "tokenizer_config.json", j);

    j = json_new_object();
    json_set(j, "eos_token_id", json_new_int(other ? SMALL_IM_START : SMALL_IM_END));
    json_set(j, "bos_token_id", json_new_int(other ? SMALL_IM_END : SMALL_IM_START));
    write_json(directory, "generation_config.json", j);
}
