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

static const char *const none = NULL; // JSON's null
static const bool no = false, yes = true;

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

static struct json *byte_level(void)
{
    return json_object_of(JSON("type", "ByteLevel"), JSON("add_prefix_space", no), JSON("trim_offsets", yes),
                          JSON("use_regex", yes));
}

static struct json *added_tokens(bool other)
{
    struct json *list = json_new_array();
    for (int i = 0; i < SPECIAL; i++)
        json_push(list, json_object_of(JSON("id", i), JSON("content", special[other ? other_special[i] : i]),
                                       JSON("single_word", no), JSON("lstrip", no), JSON("rstrip", no),
                                       JSON("normalized", no), JSON("special", yes)));
    return list;
}

static struct json *bpe(bool other)
{
    static struct tokens t;
    make_tokens(&t, other);
    struct json *vocab = json_new_object(), *list = json_new_array();
    for (int i = 0; i < SMALL_TOKENS; i++)
        json_set(vocab, t.text[i], json_new_int(i));
    for (int i = 0; i < MERGES; i++)
        json_push(list, json_new_text(other ? other_merges[i] : merges[i]));
    return json_object_of(JSON("type", "BPE"), JSON("dropout", none), JSON("unk_token", none),
                          JSON("continuing_subword_prefix", none), JSON("end_of_word_suffix", none),
                          JSON("fuse_unk", no), JSON("byte_fallback", no), JSON("ignore_merges", no),
                          JSON("vocab", vocab), JSON("merges", list));
}

void small_write_tokenizer_hf(const char *directory, bool other)
{
    struct json *steps = json_new_array();
    json_push(steps, json_object_of(JSON("type", "Digits"), JSON("individual_digits", yes)));
    json_push(steps, byte_level());
    small_write_json(
        directory, "tokenizer.json",
        json_object_of(JSON("version", "1.0"), JSON("truncation", none), JSON("padding", none),
                       JSON("added_tokens", added_tokens(other)), JSON("normalizer", none),
                       JSON("pre_tokenizer", json_object_of(JSON("type", "Sequence"), JSON("pretokenizers", steps))),
                       JSON("post_processor", none), JSON("decoder", byte_level()), JSON("model", bpe(other))));
    small_write_json(directory, "tokenizer_config.json",
                     json_object_of(JSON("tokenizer_class", "GPT2Tokenizer"),
                                    JSON("bos_token", special[SMALL_IM_START]),
                                    JSON("eos_token", special[SMALL_IM_END]), JSON("add_prefix_space", no),
                                    JSON("chat_template", chatml)));
    small_write_json(directory, "generation_config.json",
                     json_object_of(JSON("eos_token_id", other ? SMALL_IM_START : SMALL_IM_END),
                                    JSON("bos_token_id", other ? SMALL_IM_END : SMALL_IM_START)));
}
