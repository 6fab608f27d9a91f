// test_hash_map.c - the hash tables, compared with a search of all elements.
#include "core/hash_map.h"
#include "tests/support/tests.h"

enum { ELEMENTS = 3000, KINDS = 40 };

static uint32_t next(uint32_t *state) // xorshift
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    return *state ^= *state << 5;
}

// All keys have one of KINDS hashes, so that places run together and around the end of the table.
TEST(a_table_finds_what_a_search_of_all_elements_finds)
{
    static int key[ELEMENTS];
    struct hash_table t;
    uint32_t random = 1;
    int n = 0;
    hash_table_begin(&t, 2);
    for (int round = 0; round < 2 * ELEMENTS && n < ELEMENTS; round++) {
        const int wanted = (int)(next(&random) % ELEMENTS);
        int found = -1;
        for (int i = 0; i < n && found < 0; i++)
            found = key[i] == wanted ? i : -1;
        int32_t *at = hash_table_first(&t, (uint64_t)(wanted % KINDS) - 2);
        while (*at >= 0 && key[*at] != wanted)
            at = hash_table_next(&t, at);
        assert_int_equal(*at, found);
        if (found >= 0)
            continue;
        key[n] = wanted;
        *at = n++;
        assert_true(2 * (size_t)n <= t.capacity);
        if (!hash_table_enlarge(&t, (size_t)n + 1))
            continue;
        for (int i = 0; i < n; i++) {
            for (at = hash_table_first(&t, (uint64_t)(key[i] % KINDS) - 2); *at >= 0;)
                at = hash_table_next(&t, at);
            *at = i;
        }
    }
    assert_true(n > ELEMENTS / 2);
    hash_table_clear(&t);
    for (size_t i = 0; i < t.capacity; i++)
        assert_int_equal(t.place[i], -1);
    hash_table_free(&t);
}

TEST(a_map_keeps_the_value_that_was_added_first_and_what_is_written_to_it)
{
    struct hash_map m = { 0 };
    const struct hash none = { 0, 0 };
    assert_null(hash_map_find(&m, none));
    for (uint64_t i = 0; i < ELEMENTS; i++)
        assert_int_equal(*hash_map_add(&m, (struct hash){ i, i % KINDS }, (int64_t)i), i);
    assert_int_equal(m.n, ELEMENTS);
    assert_int_equal(*hash_map_add(&m, (struct hash){ 7, 7 }, -1), 7);
    *hash_map_find(&m, (struct hash){ 7, 7 }) = 70;
    for (uint64_t i = 0; i < ELEMENTS; i++) {
        assert_int_equal(*hash_map_find(&m, (struct hash){ i, i % KINDS }), i == 7 ? 70 : i);
        assert_null(hash_map_find(&m, (struct hash){ i, i % KINDS + 1 }));
    }
    assert_int_equal(m.n, ELEMENTS);
    hash_map_free(&m);
    assert_null(hash_map_find(&m, none));
}

RUN_TESTS(NULL, NULL)
