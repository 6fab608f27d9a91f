// decode.c - decodes one prompt with the library: decode MODEL DRAFTER PROMPT. The interface is speclab.h.
//
//     cc decode.c $(pkg-config --cflags --libs speclab) -o decode
//     ./decode smollm2-135m-instruct ngram:tokens=4 'Repeat after me: red, green, blue.'
#include <speclab.h>
#include <stdio.h>
#include <stdlib.h>

static int steps, drafted, accepted;

static void on_step(void *self, const struct speclab_step *s)
{
    (void)self;
    steps++, drafted += s->drafted, accepted += s->accepted;
}

static void on_end(void *self, const struct speclab_end *e)
{
    (void)self;
    printf("%s\n%d steps, %d draft tokens, %d accepted\n", e->text, steps, drafted, accepted);
}

int main(int argc, char **argv)
{
    struct speclab_error error = { "expected three arguments: MODEL DRAFTER PROMPT" };
    struct speclab_target *target = argc == 4 ? speclab_target_open(argv[1], NULL, &error) : NULL;
    struct speclab_decoder_options options = { .drafter = target ? argv[2] : NULL, .sampling = "temperature=0" };
    options.listener = (struct speclab_listener){ .step = on_step, .end = on_end };
    struct speclab_decoder *decoder = target ? speclab_decoder_create(target, &options, &error) : NULL;
    struct speclab_message message = { "user", target ? argv[3] : "" };
    struct speclab_tokens prompt = { NULL, 0 };
    bool ok = decoder && speclab_encode_chat(target, &message, 1, &prompt, &error);
    struct speclab_request request = { .prompt = prompt.id, .n = (int)prompt.n, .max_tokens = 128 };
    ok = ok && speclab_decoder_start(decoder, &request, &error);
    while (ok && speclab_decoder_active(decoder) > 0)
        ok = speclab_decoder_step(decoder, &error);
    if (!ok)
        fprintf(stderr, "decode: %s\n", error.text);
    speclab_decoder_destroy(decoder);
    speclab_target_close(target);
    free(prompt.id);
    return ok ? 0 : 1;
}
