// write_tokenizers.c - seeds of fuzz_tokenizer.
#include "tests/fuzz/write_seeds.h"

#include <stdlib.h>

#include "core/json.h"
#include "core/memory.h"
#include "tests/formats/editable_tokenizer.h"

static void put_tokenizer(const char *name, struct json *j, const char *text)
{
    struct text t = { 0 };
    char *s = json_write(j);
    text_puts(&t, s);
    add_nul(&t);
    text_puts(&t, text);
    put_text("tokenizer", name, &t);
    free(t.s);
    free(s);
    json_free(j);
}

static void put_changed(const char *name, const char *path, const char *value);

// Each as the pattern of a Split: syntax common to Oniguruma and PCRE2, and syntax that is refused.
static void write_patterns(void)
{
    static const char *const patterns[] = { "\\\\d+|\\\\s*[^\\\\s\\\\d]",
                                            "(a|b)+?c{1,2}",
                                            "[\\\\p{L}-z]+|\\\\P{Nd}",
                                            "[\\\\D]",
                                            "\\\\x41|\\\\u00e9|\\\\x{1F600}",
                                            "(?=a)",
                                            "[a[b]]",
                                            "a{,2}",
                                            "\\\\pL",
                                            "\\\\q",
                                            "(*F)",
                                            "a++b{2}+",
                                            "\\\\p{^L}",
                                            "\\\\",
                                            "((a*)*)*b",
                                            "(?:" };
    for (size_t i = 0; i < sizeof(patterns) / sizeof(*patterns); i++) {
        char *value =
                 xformat("{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},"
                         "\"behavior\":\"%s\",\"invert\":%s},{\"type\":\"ByteLevel\"}]}",
                         patterns[i], i % 2 ? "Isolated" : "Removed", i % 4 < 2 ? "false" : "true"),
             *name = xformat("pattern_%zu", i);
        put_changed(name, "pre_tokenizer", value);
        free(value);
        free(name);
    }
}

static const char words_text[] = " the cat's aa 12 3\n\n <|x|> \xC3\xA9 e\xCC\x81 \xE4\xBD\xA0\xE5\xA5\xBD  .";

static void put_changed(const char *name, const char *path, const char *value)
{
    struct json *j = editable_json();
    editable_set(j, path, value);
    put_tokenizer(name, j, words_text);
}

// Small files in the forms of fuzz_vocabulary that have no golden file; SentencePiece's forms of tokenizer.json for fuzz_tokenizer.
static void write_vocabularies(void)
{
    static const char *const pieces[] = { "bpe_bytes", "unigram_identity", "unigram" };
    struct text tekken = { 0 };
    PUT("vocabulary", "tiktoken", "YQ== 0\nYg== 1\nYWI= 2\n");
    text_puts(
        &tekken,
        "{\"config\":{\"pattern\":\"\\\\p{L}+|\\\\s+|.\",\"default_vocab_size\":260,\"default_num_special_tokens\":2},\"vocab\":[");
    for (int b = 0; b < 258; b++) { // every byte, " a" and "ab"
        static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        const int second = b == 256 ? 'a' : b == 257 ? 'b' : 0, first = b < 256 ? b : b == 256 ? ' ' : 'a';
        text_printf(&tekken, "%s{\"rank\":%d,\"token_bytes\":\"%c%c%c=\"}", b > 0 ? "," : "", b, letters[first >> 2],
                    letters[(first & 3) << 4 | second >> 4], b < 256 ? '=' : letters[(second & 15) << 2]);
    }
    text_puts(&tekken, "]}");
    put_text("vocabulary", "tekken", &tekken);
    free(tekken.s);
    for (size_t i = 0; i < sizeof(pieces) / sizeof(*pieces); i++) {
        struct text t = { 0 };
        char *file = xformat("%s.json", pieces[i]);
        add_file(&t, CASES "/pieces", file);
        add_nul(&t);
        text_puts(&t, words_text);
        put_text("tokenizer", pieces[i], &t);
        free(t.s);
        free(file);
    }
}

void write_tokenizers(void)
{
    static const char *const published[] = { "tokenizer_l3", "tokenizer_q2" };
    for (size_t i = 0; i < 2; i++) {
        struct text t = { 0 };
        char *directory = xformat("%s/%s", CASES, published[i]);
        add_file(&t, directory, "tokenizer.json");
        add_nul(&t);
        text_puts(&t, words_text);
        put_text("tokenizer", published[i], &t);
        free(t.s);
        free(directory);
    }
    put_tokenizer("made", editable_json(), words_text);
    put_changed("nfc", "normalizer", "{'type':'Sequence','normalizers':[{'type':'NFC'}]}");
    put_changed(
        "cut", "pre_tokenizer",
        "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?i:'s|'t)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?"
        "\\\\p{L}+|\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false},"
        "{\"type\":\"Digits\",\"individual_digits\":true},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
        "\"use_regex\":false}]}");
    put_changed("removed", "pre_tokenizer",
                "{'type':'Sequence','pretokenizers':[{'type':'Split','pattern':{'String':' '},'behavior':'Removed',"
                "'invert':true},{'type':'ByteLevel'}]}");
    put_changed("added", "added_tokens",
                "[{'id':260,'content':'<|x|>','special':true,'lstrip':true,'rstrip':true,'normalized':false},"
                "{'id':261,'content':'cat','single_word':true},{'id':262,'content':'e\\u0301','normalized':true}]");
    put_changed("decoder", "decoder", "{'type':'Sequence','decoders':[{'type':'ByteLevel'}]}");
    put_changed("unknown", "model.unk_token", "'the'");
    put_changed("fused", "model.fuse_unk", "true");
    put_changed("ignore_merges", "model.ignore_merges", "true");
    put_changed("twice", "added_tokens", "[{'id':260,'content':'x'},{'id':261,'content':'x'}]");
    put_changed("spaced", "pre_tokenizer", "{'type':'ByteLevel','add_prefix_space':true}");
    write_patterns();
    write_vocabularies();
}
