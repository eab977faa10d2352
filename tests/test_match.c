/* eb_match: '*' matches any run of characters, also an empty one; nothing else is special. */
#include "test.h"

typedef struct match_case {
    const char *pattern, *type;
    int want;
} match_case;

static const match_case table[] = {
    /* the table of seeds/000 */
    {"user.created", "user.created", 1},
    {"user.created", "user.updated", 0},
    {"user.*", "user.created", 1},
    {"user.*", "user.updated", 1},
    {"user.*", "order.created", 0},
    {"*", "user.created", 1},
    {"*", "x", 1},
    {"order.*.shipped", "order.123.shipped", 1},
    {"order.*.shipped", "order.shipped", 0},
    /* a star takes dots, many of them, and nothing at all */
    {"order.*.shipped", "order.1.2.3.shipped", 1},
    {"order.*.shipped", "order..shipped", 1},
    {"user.*", "user.", 1},
    {"user.*", "user", 0},
    {"user.*", "user.a.b.c", 1},
    {"user*", "user", 1},
    {"user*", "users.created", 1},
    {"*user", "user", 1},
    {"*user", "super.user", 1},
    {"*user", "user.", 0},
    {"*.created", "user.created", 1},
    {"*.created", ".created", 1},
    {"*.created", "created", 0},
    {"*.created", "user.created.created", 1},
    {"*.created", "user.created.not", 0},
    /* the whole type must be used up, and the whole pattern */
    {"a", "ab", 0},
    {"ab", "a", 0},
    {"a", "a", 1},
    {"a*b", "a", 0},
    {"a*b", "b", 0},
    {"a*b", "ab", 1},
    {"a*b", "aXb", 1},
    {"a*b", "abb", 1},
    {"a*b", "aba", 0},
    {"a*b*c", "abc", 1},
    {"a*b*c", "aXbYc", 1},
    {"a*b*c", "acb", 0},
    {"a*b*c", "abbcbc", 1},
    /* stars that have to give something back */
    {"*aab", "aaaab", 1},
    {"*aab", "aaaaba", 0},
    {"*ab*ab", "ab", 0},
    {"*ab*ab", "abab", 1},
    {"*ab*ab", "aabaab", 1},
    {"*.*.*", "a.b.c", 1},
    {"*.*.*", "a.b", 0},
    {"*.*.*", "..", 1},
    /* several stars in a row are one */
    {"**", "a", 1},
    {"**", "a.b", 1},
    {"a**b", "ab", 1},
    {"***a***", "a", 1},
    {"***a***", "b", 0},
    {"a.**", "a.", 1},
    /* empty texts */
    {"*", "", 1},
    {"**", "", 1},
    {"", "", 1},
    {"", "a", 0},
    {"a", "", 0},
    {"a*", "", 0},
    /* nothing else is special */
    {"a?c", "abc", 0},
    {"a?c", "a?c", 1},
    {"[ab]", "a", 0},
    {"[ab]", "[ab]", 1},
    {"{a,b}", "a", 0},
    {"{a,b}", "{a,b}", 1},
    {"a\\*b", "a*b", 0},
    {"a\\*b", "a\\Xb", 1},
    {"a.b", "aXb", 0},
    {"#", "a", 0},
    {">", "a", 0},
    {"%", "a", 0},
    {"_", "a", 0},
    {".", ".", 1},
    {"^a$", "a", 0},
    /* case counts */
    {"User.*", "user.created", 0},
    {"USER", "user", 0},
    /* UTF-8 */
    {"\xC3\xA4.*", "\xC3\xA4.\xC3\xB6", 1},
    {"*\xC3\xB6", "\xC3\xA4.\xC3\xB6", 1},
    {"*\xC3\xB6", "\xC3\xA4.\xC3\xA4", 0},
    {"\xE6\x97\xA5*", "\xE6\x97\xA5\xE6\x9C\xAC", 1},
    {"*\xF0\x9F\x98\x80*", "a\xF0\x9F\x98\x80z", 1},
    {"\xC3\xA4", "a", 0},
};

TEST table_of_patterns_and_types(void)
{
    size_t i;
    for (i = 0; i < sizeof table / sizeof *table; i++) {
        if (eb_match(table[i].pattern, table[i].type) != table[i].want) {
            fprintf(stderr, "\npattern \"%s\" type \"%s\": wanted %d\n", table[i].pattern,
                    table[i].type, table[i].want);
            FAILm("eb_match");
        }
    }
    PASS();
}

TEST null_matches_nothing(void)
{
    ASSERT_EQ(0, eb_match(NULL, "a"));
    ASSERT_EQ(0, eb_match("a", NULL));
    ASSERT_EQ(0, eb_match("*", NULL));
    ASSERT_EQ(0, eb_match(NULL, NULL));
    PASS();
}

/* The definition, word for word; exponential, for short texts only. */
static int naive(const char *p, const char *t)
{
    if (!*p) return !*t;
    if (*p != '*') return *p == *t && naive(p + 1, t + 1);
    for (;; t++) {
        if (naive(p + 1, t)) return 1;
        if (!*t) return 0;
    }
}

static uint32_t dice_state;
static uint32_t dice(uint32_t sides)
{
    dice_state ^= dice_state << 13;
    dice_state ^= dice_state >> 17;
    dice_state ^= dice_state << 5;
    return dice_state % sides;
}

static void random_text(char *out, uint32_t max, const char *alphabet)
{
    uint32_t n = dice(max + 1), sides = (uint32_t)strlen(alphabet), i;
    for (i = 0; i < n; i++) out[i] = alphabet[dice(sides)];
    out[n] = 0;
}

/* Few letters, so that many of them match. */
TEST agrees_with_the_definition_on_random_texts(void)
{
    char pattern[16], type[16];
    int i, hits = 0;
    dice_state = 20261118u;
    for (i = 0; i < 200000; i++) {
        int want, got;
        random_text(pattern, 8, i % 3 == 0 ? "**ab" : i % 3 == 1 ? "*ab." : "*a");
        random_text(type, 10, i % 3 == 2 ? "a" : "ab.");
        want = naive(pattern, type);
        got = eb_match(pattern, type);
        hits += want;
        if (want != got) {
            fprintf(stderr, "\nround %d: pattern \"%s\" type \"%s\": wanted %d\n", i, pattern, type,
                    want);
            FAILm("eb_match differs from the definition");
        }
    }
    ASSERTm("the texts must exercise both answers", hits > 20000 && hits < 180000);
    PASS();
}

/* A type cut into pieces, with stars for some of them, must match its own pattern. */
TEST pattern_made_from_a_type_matches_it(void)
{
    char type[64], pattern[130];
    int i;
    dice_state = 77u;
    for (i = 0; i < 20000; i++) {
        size_t at = 0, out = 0, n;
        random_text(type, 40, "abc.d");
        n = strlen(type);
        while (at < n) {
            if (dice(3) == 0) {
                pattern[out++] = '*';
                at += dice(5);
            } else {
                pattern[out++] = type[at++];
            }
        }
        pattern[out] = 0;
        if (at > n) continue; /* the last star took more than there was: still fine, but unclear */
        ASSERT_EQm(pattern, 1, eb_match(pattern, type));
    }
    PASS();
}

/* A matcher that tries everything needs about 2^40 steps or more here and never returns: the alarm
** ends the program then. A two-pointer matcher needs some thousands to millions of steps. */
TEST many_stars_do_not_explode(void)
{
    enum { STARS = 100, LEN = 100000 };
    char *pattern = (char *)malloc(2 * STARS + 2), *type = (char *)malloc(LEN + 2);
    size_t i;
    int miss, hit, blocks;
    T_MUST(pattern && type);
#ifndef _WIN32
    alarm(120);
#endif
    for (i = 0; i < STARS; i++) {
        pattern[2 * i] = '*';
        pattern[2 * i + 1] = 'a';
    }
    pattern[2 * STARS] = 'b';
    pattern[2 * STARS + 1] = 0;
    memset(type, 'a', LEN);
    type[LEN] = 0;
    miss = eb_match(pattern, type);
    type[LEN] = 'b';
    type[LEN + 1] = 0;
    hit = eb_match(pattern, type);
    type[LEN] = 'c';
    blocks = eb_match(pattern, type);
#ifndef _WIN32
    alarm(0);
#endif
    free(pattern);
    free(type);
    ASSERT_EQ(0, miss);
    ASSERT_EQ(1, hit);
    ASSERT_EQ(0, blocks);
    PASS();
}

/* The longest legal texts, every pattern of the kind that hurts backtracking. */
TEST longest_legal_texts_do_not_explode(void)
{
    char pattern[256], type[256];
    int i;
    memset(type, 'a', 255);
    type[255] = 0;
    for (i = 0; i < 255; i++) pattern[i] = i % 2 ? 'a' : '*';
    pattern[255] = 0;
#ifndef _WIN32
    alarm(120);
#endif
    ASSERT_EQ(1, eb_match(pattern, type));
    pattern[254] = 'b';
    for (i = 0; i < 1000; i++) ASSERT_EQ(0, eb_match(pattern, type));
#ifndef _WIN32
    alarm(0);
#endif
    PASS();
}

SUITE(match)
{
    RUN_TEST(table_of_patterns_and_types);
    RUN_TEST(null_matches_nothing);
    RUN_TEST(agrees_with_the_definition_on_random_texts);
    RUN_TEST(pattern_made_from_a_type_matches_it);
    RUN_TEST(many_stars_do_not_explode);
    RUN_TEST(longest_legal_texts_do_not_explode);
}

GREATEST_MAIN_DEFS();

int main(int argc, char **argv)
{
    GREATEST_MAIN_BEGIN();
    RUN_SUITE(match);
    GREATEST_MAIN_END();
}
