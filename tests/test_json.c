/* The JSON rules of payload and metadata, seen through eb_send: RFC 8259, UTF-8, nesting up to 128.
**
** The bus is never started: only what is accepted and what is refused matters here. */
#include "test.h"

/* A text that may hold zero bytes. */
#define J(text) text, sizeof(text) - 1

typedef struct json_case {
    int valid;
    const char *text;
    size_t len;
} json_case;

static const json_case payloads[] = {
    /* ---- any value may stand alone, with white space around it */
    {1, J("null")},
    {1, J("true")},
    {1, J("false")},
    {1, J("0")},
    {1, J("\"\"")},
    {1, J("[]")},
    {1, J("{}")},
    {1, J(" null ")},
    {1, J("\t\n\r 1 \t\n\r")},
    {1, J(" [ ] ")},
    {1, J("\n{\n}\n")},
    {1, J("[1, 2 ,3]")},
    {1, J("{ \"a\" : 1 , \"b\" : [ ] }")},
    /* ---- nothing, or only white space, is no value */
    {0, J("")},
    {0, J(" ")},
    {0, J("\n\t")},
    /* ---- other white space is none */
    {0, J("\v1")},
    {0, J("\f1")},
    {0, J("1\f")},
    {0, J("\xC2\xA0"
          "1")},
    {0, J("\xE2\x80\xA8"
          "1")},
    {0, J("[1,\xC2\xA0"
          "2]")},
    /* ---- literals: exactly these three */
    {0, J("nul")},
    {0, J("nulll")},
    {0, J("Null")},
    {0, J("NULL")},
    {0, J("TRUE")},
    {0, J("True")},
    {0, J("tru")},
    {0, J("truefalse")},
    {0, J("fals")},
    {0, J("undefined")},
    {0, J("NaN")},
    {0, J("nan")},
    {0, J("Infinity")},
    {0, J("-Infinity")},
    {0, J("n")},
    {0, J("t")},
    /* ---- numbers */
    {1, J("-0")},
    {1, J("10")},
    {1, J("1234567890")},
    {1, J("-1")},
    {1, J("0.5")},
    {1, J("-0.0")},
    {1, J("1.0")},
    {1, J("1e5")},
    {1, J("1E5")},
    {1, J("1e+5")},
    {1, J("1e-5")},
    {1, J("1.5e10")},
    {1, J("0e0")},
    {1, J("0E+00")},
    {1, J("1e000000000000000000001")},
    {1, J("1e999999")},
    {1, J("-1e-999999")},
    {1, J("123456789012345678901234567890123456789012345678901234567890")},
    {1, J("0.000000000000000000000000000000000000000000000000000000000001")},
    {0, J("-")},
    {0, J("+1")},
    {0, J("01")},
    {0, J("-01")},
    {0, J("00")},
    {0, J("-00")},
    {0, J("1.")},
    {0, J(".5")},
    {0, J("-.5")},
    {0, J("1.e5")},
    {0, J("1e")},
    {0, J("1E+")},
    {0, J("1e-")},
    {0, J("1e5.5")},
    {0, J("1.2.3")},
    {0, J("1 2")},
    {0, J("- 1")},
    {0, J("--1")},
    {0, J("0x10")},
    {0, J("1_000")},
    {0, J("1,5")},
    {0, J("1a")},
    {0, J("1.5f")},
    {0, J("\xEF\xBC\x91")}, /* a full-width digit one */
    {0, J("[1.]")},
    {0, J("[01]")},
    {0, J("{\"a\":-}")},
    /* ---- strings and escapes */
    {1, J("\"a\"")},
    {1, J("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"")},
    {1, J("\"\\u0000\"")},
    {1, J("\"\\u00e4\\u00E4\\uABCD\\uabcd\"")},
    {1, J("\"\\uD83D\\uDE00\"")},
    {1, J("\"\\uD83D\"")}, /* lone surrogate escapes: RFC 8259 section 8.2 lets them be */
    {1, J("\"\\uDE00\"")},
    {1, J("\"\\uDE00\\uD83D\"")},
    {1, J("\"\\uD83Dx\"")},
    {1, J("\"\x7F\"")},
    {1, J("\"'\"")},
    {1, J("\"/\"")},
    {1, J("\"{[}],:\"")},
    {1, J("\"\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80\"")},
    {1, J("\"\xE2\x80\xA8\xE2\x80\xA9\"")}, /* U+2028 and U+2029 need no escape */
    {1, J("\"\xEF\xBF\xBF\"")},             /* U+FFFF, a noncharacter, is still valid UTF-8 */
    {1, J("\"\xEF\xBB\xBF\"")},             /* U+FEFF inside a string is a character */
    {0, J("\"")},
    {0, J("\"a")},
    {0, J("a\"")},
    {0, J("'a'")},
    {0, J("a")},
    {0, J("\"a\"b")},
    {0, J("\"a\"\"b\"")},
    {0, J("\"\\\"")},
    {0, J("\"\\")},
    {0, J("\"\\\0\"")}, /* an escaped zero byte */
    {0, J("\"\\a\"")},
    {0, J("\"\\v\"")},
    {0, J("\"\\0\"")},
    {0, J("\"\\'\"")},
    {0, J("\"\\x41\"")},
    {0, J("\"\\N\"")},
    {0, J("\"\\U0041\"")},
    {0, J("\"\\u\"")},
    {0, J("\"\\u1\"")},
    {0, J("\"\\u12\"")},
    {0, J("\"\\u123\"")},
    {0, J("\"\\u123")},
    {0, J("\"\\u12G4\"")},
    {0, J("\"\\u 123\"")},
    {0, J("\"\\u+123\"")},
    {0, J("\"\\\n\"")},
    {0, J("\"\\\xC3\xA4\"")},
    /* ---- raw control characters inside a string, and zero bytes anywhere */
    {0, J("\"\n\"")},
    {0, J("\"\t\"")},
    {0, J("\"\r\"")},
    {0, J("\"\x01\"")},
    {0, J("\"\x1F\"")},
    {0, J("\"\0\"")},
    {0, J("\"a\0b\"")},
    {0, J("\0")},
    {0, J("1\0")},
    {0, J("\0"
          "1")},
    {0, J("null\0")},
    {0, J("[]\0")},
    {0, J("[1,\0"
          "2]")},
    {0, J("{\"a\0\":1}")},
    {0, J("{}\0\0\0\0")},
    /* ---- arrays */
    {1, J("[null,true,false,0,\"\",[],{}]")},
    {1, J("[[],[[]],[[[]]]]")},
    {0, J("[")},
    {0, J("]")},
    {0, J("[1")},
    {0, J("[1,")},
    {0, J("[1,]")},
    {0, J("[,1]")},
    {0, J("[,]")},
    {0, J("[1,,2]")},
    {0, J("[1 2]")},
    {0, J("[1;2]")},
    {0, J("[1]]")},
    {0, J("[[1]")},
    {0, J("[1}")},
    {0, J("[\"a\":1]")},
    {0, J("[1:2]")},
    {0, J("[x]")},
    /* ---- objects */
    {1, J("{\"a\":1}")},
    {1, J("{\"\":1}")},
    {1, J("{\"a\":1,\"a\":2}")}, /* names SHOULD be unique, no more */
    {1, J("{\"a\":{\"b\":{\"c\":[{}]}}}")},
    {1, J("{\"\\u0061\":null}")},
    {0, J("{")},
    {0, J("}")},
    {0, J("{\"a\"")},
    {0, J("{\"a\":")},
    {0, J("{\"a\":1")},
    {0, J("{\"a\":1,")},
    {0, J("{\"a\":1,}")},
    {0, J("{,\"a\":1}")},
    {0, J("{,}")},
    {0, J("{\"a\"}")},
    {0, J("{\"a\":}")},
    {0, J("{\"a\",1}")},
    {0, J("{\"a\":1,,\"b\":2}")},
    {0, J("{\"a\":1 \"b\":2}")},
    {0, J("{\"a\"::1}")},
    {0, J("{\"a\":1:2}")},
    {0, J("{a:1}")},
    {0, J("{'a':1}")},
    {0, J("{1:1}")},
    {0, J("{null:1}")},
    {0, J("{[]:1}")},
    {0, J("{\"a\":1]")},
    {0, J("{\"a\":1}}")},
    {0, J("{\"a\"=1}")},
    {0, J("{:1}")},
    /* ---- one value and nothing after it; no comments, no byte order mark */
    {0, J("null null")},
    {0, J("{}{}")},
    {0, J("[][]")},
    {0, J("{} x")},
    {0, J("1,")},
    {0, J("\"a\",")},
    {0, J("[],")},
    {0, J("{};")},
    {0, J("// x\n1")},
    {0, J("/* x */1")},
    {0, J("1 // x")},
    {0, J("# x\n1")},
    {0, J("\xEF\xBB\xBF"
          "1")},
    {0, J("\xEF\xBB\xBF{}")},
    {0, J("1\xEF\xBB\xBF")},
    {0, J("\xFF\xFE"
          "1\0")},
    {0, J("\xEF\xBB\xBF")},
    /* ---- valid UTF-8 at its borders */
    {1, J("\"\xC2\x80\"")},
    {1, J("\"\xDF\xBF\"")},
    {1, J("\"\xE0\xA0\x80\"")},
    {1, J("\"\xED\x9F\xBF\"")},
    {1, J("\"\xEE\x80\x80\"")},
    {1, J("\"\xF0\x90\x80\x80\"")},
    {1, J("\"\xF4\x8F\xBF\xBF\"")},
    {1, J("{\"\xC3\xA4\":\"\xC3\xB6\"}")},
    /* ---- bytes that never occur in UTF-8 */
    {0, J("\"\xC0\"")},
    {0, J("\"\xC1\x80\"")},
    {0, J("\"\xF5\x80\x80\x80\"")},
    {0, J("\"\xF8\x88\x80\x80\x80\"")},
    {0, J("\"\xFC\x84\x80\x80\x80\x80\"")},
    {0, J("\"\xFE\"")},
    {0, J("\"\xFF\"")},
    /* ---- overlong forms */
    {0, J("\"\xC0\x80\"")},
    {0, J("\"\xC0\xAF\"")},
    {0, J("\"\xC1\xBF\"")},
    {0, J("\"\xE0\x80\x80\"")},
    {0, J("\"\xE0\x80\xAF\"")},
    {0, J("\"\xE0\x9F\xBF\"")},
    {0, J("\"\xF0\x80\x80\xAF\"")},
    {0, J("\"\xF0\x8F\xBF\xBF\"")},
    {0, J("\xC0\xA0"
          "1")}, /* an overlong space */
    /* ---- surrogates, alone and in pairs */
    {0, J("\"\xED\xA0\x80\"")},
    {0, J("\"\xED\xAF\xBF\"")},
    {0, J("\"\xED\xB0\x80\"")},
    {0, J("\"\xED\xBF\xBF\"")},
    {0, J("\"\xED\xA0\xBD\xED\xB8\x80\"")},
    /* ---- beyond U+10FFFF */
    {0, J("\"\xF4\x90\x80\x80\"")},
    {0, J("\"\xF4\xBF\xBF\xBF\"")},
    /* ---- truncated, and continuation bytes out of place */
    {0, J("\"\xC3\"")},
    {0, J("\"\xE2\"")},
    {0, J("\"\xE2\x82\"")},
    {0, J("\"\xF0\"")},
    {0, J("\"\xF0\x9F\"")},
    {0, J("\"\xF0\x9F\x98\"")},
    {0, J("\"\xC3")},
    {0, J("\"\xE2\x82")},
    {0, J("\"\xF0\x9F\x98")},
    {0, J("\"\x80\"")},
    {0, J("\"\xBF\"")},
    {0, J("\"\xC3\xA4\xA4\"")},
    {0, J("\"\xC3\x28\"")},
    {0, J("\"\xE2\x28\xA1\"")},
    {0, J("\"\xE2\x82\x28\"")},
    {0, J("\"\xF0\x28\x8C\xBC\"")},
    {0, J("\"\xF0\x9F\x28\xBC\"")},
    {0, J("\"\xF0\x9F\x98\x28\"")},
    {0, J("\"\xC3\xC3\xA4\"")},
    {0, J("{\"\xE4\":1}")}, /* Latin-1 */
};

static const json_case metadata[] = {
    {1, J("{}")},
    {1, J(" { } ")},
    {1, J("{\"a\":\"b\"}")},
    {1, J("{\"a\":\"\"}")},
    {1, J("{\"\":\"\"}")},
    {1, J("{\"a\":\"b\",\"c\":\"d\"}")},
    {1, J("{\n  \"trace\" : \"00-4bf9\",\n  \"user\" : \"\xC3\xA4\\u00e4\\n\"\n}")},
    {1, J("{\"a\":\"1\",\"b\":\"true\",\"c\":\"null\",\"d\":\"{}\",\"e\":\"[]\"}")},
    {1, J("{\"a\":\"\\\"}\"}")},
    {0, J("")},
    {0, J(" ")},
    {0, J("null")},
    {0, J("true")},
    {0, J("1")},
    {0, J("\"a\"")},
    {0, J("[]")},
    {0, J("[\"a\"]")},
    {0, J("[{\"a\":\"b\"}]")},
    {0, J("{\"a\":1}")},
    {0, J("{\"a\":-1.5}")},
    {0, J("{\"a\":null}")},
    {0, J("{\"a\":true}")},
    {0, J("{\"a\":false}")},
    {0, J("{\"a\":{}}")},
    {0, J("{\"a\":{\"b\":\"c\"}}")},
    {0, J("{\"a\":[]}")},
    {0, J("{\"a\":[\"b\"]}")},
    {0, J("{\"a\":\"b\",\"c\":1}")},
    {0, J("{\"a\":\"b\",\"c\":null,\"d\":\"e\"}")},
    {0, J("{")},
    {0, J("{ ")},
    {0, J("{\"a\":")},
    {0, J("{\"a\":\"b\"")},
    {0, J("{\"a\":\"b\" \"c\":\"d\"}")},
    {0, J("{\"a\":\"b\",}")},
    {0, J("{\"a\":\"b\"} x")},
    {0, J("{\"a\":\"b\"}{\"c\":\"d\"}")},
    {0, J("{a:\"b\"}")},
    {0, J("{'a':'b'}")},
    {0, J("{\"a\":\"\n\"}")},
    {0, J("{\"a\":\"\xFF\"}")},
    {0, J("{\"\xC0\x80\":\"b\"}")},
    {0, J("{\"a\":\"\\x\"}")},
    {0, J("\xEF\xBB\xBF{}")},
};

static eb_bus *bus;

static eb_result send_payload(const char *text, size_t len)
{
    eb_message m;
    memset(&m, 0, sizeof m);
    m.type = "json";
    m.payload = text;
    m.payload_len = len; /* 0 means strlen: the same for the empty text */
    return eb_send(bus, &m, 1, NULL);
}

static eb_result send_metadata(const char *text)
{
    eb_message m;
    memset(&m, 0, sizeof m);
    m.type = "json";
    m.metadata = text;
    return eb_send(bus, &m, 1, NULL);
}

static void print_text(const char *text, size_t len)
{
    size_t i;
    for (i = 0; i < len && i < 80; i++) {
        unsigned c = (unsigned char)text[i];
        if (c >= 0x20 && c < 0x7F) fprintf(stderr, "%c", (int)c);
        else fprintf(stderr, "\\x%02X", c);
    }
}

static int wrong(const char *what, size_t i, const json_case *c, eb_result got)
{
    if (got == (c->valid ? EB_OK : EB_ERR_PAYLOAD)) return 0;
    fprintf(stderr, "\n%s %d: ", what, (int)i);
    print_text(c->text, c->len);
    fprintf(stderr, "\n  wanted %s, got %d (%s)\n", c->valid ? "EB_OK" : "EB_ERR_PAYLOAD", (int)got,
            eb_strerror(got));
    return 1;
}

TEST payload_table(void)
{
    size_t i, n = sizeof payloads / sizeof *payloads;
    int bad = 0;
    ASSERTm("at least 120 texts", n >= 120);
    for (i = 0; i < n; i++)
        bad += wrong("payload", i, &payloads[i], send_payload(payloads[i].text, payloads[i].len));
    ASSERT_EQ(0, bad);
    PASS();
}

TEST metadata_table(void)
{
    size_t i, n = sizeof metadata / sizeof *metadata;
    int bad = 0;
    for (i = 0; i < n; i++)
        bad += wrong("metadata", i, &metadata[i], send_metadata(metadata[i].text));
    ASSERT_EQ(0, bad);
    PASS();
}

/* What was accepted is on disk as it was given, and what was refused left nothing. */
TEST accepted_texts_are_stored_byte_for_byte_and_refused_ones_not_at_all(void)
{
    size_t i, n = sizeof payloads / sizeof *payloads;
    for (i = 0; i < n; i++) {
        eb_id id;
        eb_message m;
        eb_event_list list;
        eb_stats before, after;
        memset(&m, 0, sizeof m);
        memset(&list, 0, sizeof list);
        m.type = "stored";
        m.payload = payloads[i].text;
        m.payload_len = payloads[i].len;
        T_OK(eb_stats_get(eb_bus_store(bus), &before));
        if (payloads[i].valid) {
            T_OK(eb_send(bus, &m, 1, &id));
            T_OK(eb_get(eb_bus_store(bus), id.str, &list));
            ASSERT_EQ_FMT(payloads[i].len, list.items[0].payload_len, "%zu");
            ASSERT_EQ(0, memcmp(payloads[i].text, list.items[0].payload, payloads[i].len));
            ASSERT_EQ(0, list.items[0].payload[payloads[i].len]);
            eb_event_list_free(&list);
        } else {
            T_IS(EB_ERR_PAYLOAD, eb_send(bus, &m, 1, &id));
        }
        T_OK(eb_stats_get(eb_bus_store(bus), &after));
        ASSERT_EQ(before.pending + payloads[i].valid, after.pending);
        ASSERT_EQ(payloads[i].valid, after.last_seq > before.last_seq);
    }
    PASS();
}

TEST refusal_has_a_message(void)
{
    char msg[200];
    T_IS(EB_ERR_PAYLOAD, send_payload(J("{\"a\":}")));
    ASSERT(eb_errmsg(msg, sizeof msg) > 0);
    ASSERT(msg[0] != 0);
    T_IS(EB_ERR_PAYLOAD, send_metadata("[]"));
    ASSERT(eb_errmsg(msg, sizeof msg) > 0);
    ASSERT(strstr(msg, "metadata") != NULL);
    PASS();
}

/* ---- nesting ------------------------------------------------------------------------------- */

/* open and close repeated `depth` times around `inner`; the caller frees. */
static char *nested(int depth, const char *open, const char *inner, const char *close)
{
    size_t o = strlen(open), c = strlen(close), i;
    char *text = (char *)malloc((o + c) * (size_t)depth + strlen(inner) + 1), *p = text;
    T_MUST(text);
    for (i = 0; i < (size_t)depth; i++, p += o) memcpy(p, open, o);
    memcpy(p, inner, strlen(inner));
    p += strlen(inner);
    for (i = 0; i < (size_t)depth; i++, p += c) memcpy(p, close, c);
    *p = 0;
    return text;
}

static eb_result send_nested(int depth, const char *open, const char *inner, const char *close)
{
    char *text = nested(depth, open, inner, close);
    eb_result rc = send_payload(text, strlen(text));
    free(text);
    return rc;
}

TEST nesting_of_128_is_accepted_and_129_is_not(void)
{
    T_OK(send_nested(128, "[", "", "]"));
    T_IS(EB_ERR_PAYLOAD, send_nested(129, "[", "", "]"));
    T_OK(send_nested(128, "[", "1", "]"));
    T_IS(EB_ERR_PAYLOAD, send_nested(129, "[", "1", "]"));
    T_OK(send_nested(127, "{\"a\":", "{}", "}"));
    T_OK(send_nested(128, "{\"a\":", "1", "}"));
    T_IS(EB_ERR_PAYLOAD, send_nested(129, "{\"a\":", "1", "}"));
    T_OK(send_nested(64, "[{\"a\":", "null", "}]"));
    T_IS(EB_ERR_PAYLOAD, send_nested(64, "[{\"a\":", "[]", "}]"));
    T_OK(send_nested(128, "[0,", "\"[[[[\"", "]"));
    PASS();
}

/* Brackets inside a string are text; brackets that were closed no longer count. */
TEST only_open_brackets_count_as_nesting(void)
{
    char text[2000];
    int i;
    text[0] = '"';
    for (i = 1; i < 1000; i++) text[i] = '[';
    text[1000] = '"';
    T_OK(send_payload(text, 1001));
    text[0] = '[';
    for (i = 0; i < 500; i++) memcpy(text + 1 + 3 * i, "[],", 3);
    memcpy(text + 1 + 1500, "[]]", 3);
    T_OK(send_payload(text, 1504));
    PASS();
}

/* No recursion: a hundred thousand brackets neither overflow the stack nor take time. */
TEST very_deep_texts_are_refused_without_recursion(void)
{
    size_t n = 1000000;
    char *text = (char *)malloc(n + 1);
    int i;
    T_MUST(text);
    memset(text, '[', n);
    text[n] = 0;
    for (i = 0; i < 100; i++) T_IS(EB_ERR_PAYLOAD, send_payload(text, 100000));
    T_IS(EB_ERR_PAYLOAD, send_payload(text, n));
    memset(text, ']', n);
    T_IS(EB_ERR_PAYLOAD, send_payload(text, n));
    free(text);
    T_IS(EB_ERR_PAYLOAD, send_nested(50000, "[", "", "]"));
    T_IS(EB_ERR_PAYLOAD, send_nested(50000, "{\"a\":", "1", "}"));
    PASS();
}

TEST long_flat_texts_are_accepted(void)
{
    size_t n = 200000, i;
    char *text = (char *)malloc(2 * n + 3);
    T_MUST(text);
    text[0] = '[';
    for (i = 0; i < n; i++) {
        text[1 + 2 * i] = '7';
        text[2 + 2 * i] = ',';
    }
    text[1 + 2 * n - 1] = ']';
    T_OK(send_payload(text, 2 * n + 1));
    memset(text, 'x', 2 * n);
    text[0] = text[2 * n - 1] = '"';
    T_OK(send_payload(text, 2 * n));
    memset(text, '9', 2 * n);
    T_OK(send_payload(text, 2 * n));
    memset(text, ' ', 2 * n);
    text[n] = '1';
    T_OK(send_payload(text, 2 * n));
    free(text);
    PASS();
}

/* ---- against a second opinion ---------------------------------------------------------------- */

/* The grammar of RFC 8259, written down once more, recursively; for short texts. */
typedef struct reader {
    const char *p, *end;
} reader;

static void ref_space(reader *r)
{
    while (r->p < r->end &&
           (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r')) r->p++;
}

static int ref_take(reader *r, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, word, n) != 0) return 0;
    r->p += n;
    return 1;
}

static int ref_digits(reader *r)
{
    const char *from = r->p;
    while (r->p < r->end && *r->p >= '0' && *r->p <= '9') r->p++;
    return r->p > from;
}

static int ref_number(reader *r)
{
    ref_take(r, "-");
    if (!ref_take(r, "0") && !ref_digits(r)) return 0;
    if (ref_take(r, ".") && !ref_digits(r)) return 0;
    if (ref_take(r, "e") || ref_take(r, "E")) {
        if (!ref_take(r, "+")) ref_take(r, "-");
        return ref_digits(r);
    }
    return 1;
}

static int ref_string(reader *r)
{
    int i;
    if (!ref_take(r, "\"")) return 0;
    while (r->p < r->end) {
        unsigned char c = (unsigned char)*r->p++;
        if (c == '"') return 1;
        if (c < 0x20) return 0;
        if (c != '\\') continue;
        if (r->p >= r->end) return 0;
        c = (unsigned char)*r->p++;
        if (c == 'u') {
            for (i = 0; i < 4; i++, r->p++)
                if (r->p >= r->end || !*r->p || !strchr("0123456789abcdefABCDEF", *r->p)) return 0;
        } else if (!c || !strchr("\"\\/bfnrt", c)) {
            return 0;
        }
    }
    return 0;
}

static int ref_value(reader *r)
{
    int ok;
    ref_space(r);
    if (r->p < r->end && *r->p == '"') {
        ok = ref_string(r);
    } else if (ref_take(r, "[")) {
        ref_space(r);
        ok = ref_take(r, "]");
        while (!ok) {
            if (!ref_value(r)) return 0;
            ok = ref_take(r, "]");
            if (!ok && !ref_take(r, ",")) return 0;
        }
    } else if (ref_take(r, "{")) {
        ref_space(r);
        ok = ref_take(r, "}");
        while (!ok) {
            ref_space(r);
            if (!ref_string(r)) return 0;
            ref_space(r);
            if (!ref_take(r, ":") || !ref_value(r)) return 0;
            ok = ref_take(r, "}");
            if (!ok && !ref_take(r, ",")) return 0;
        }
    } else {
        ok = ref_take(r, "null") || ref_take(r, "true") || ref_take(r, "false") || ref_number(r);
    }
    ref_space(r);
    return ok;
}

static int ref_valid(const char *text, size_t len)
{
    reader r;
    r.p = text;
    r.end = text + len;
    return ref_value(&r) && r.p == r.end && t_utf8_ok(text, len);
}

static uint32_t dice_state;
static uint32_t dice(uint32_t sides)
{
    dice_state ^= dice_state << 13;
    dice_state ^= dice_state >> 17;
    dice_state ^= dice_state << 5;
    return dice_state % sides;
}

/* The grammar above must agree with the table first, or it proves nothing. */
TEST second_opinion_agrees_with_the_table(void)
{
    size_t i;
    for (i = 0; i < sizeof payloads / sizeof *payloads; i++)
        ASSERT_EQ_FMT(payloads[i].valid, ref_valid(payloads[i].text, payloads[i].len), "%d");
    PASS();
}

/* Valid texts with a byte or two changed, inserted, removed or repeated: near misses. */
TEST mutated_texts_get_the_same_verdict_from_a_second_opinion(void)
{
    static const char *const seeds[] = {
        "{\"a\":[1,-2.5e+3,true,false,null,\"x\\u00e4\\n\"],\"b\":{\"c\":{}}}",
        "[0,[1,[2,[3]]],\"\\\"\\\\\"]",
        "-12.75E-10",
        "\"\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80\"",
        " { \"k\" : [ ] , \"\" : \"\" } ",
    };
    static const char spice[] = "{}[]\",:\\/ \t\n0123456789+-.eEtrufalsn"
                                "\x80\xBF\xC2\xE0\xED\xF4\xFF\x01";
    int round, valid = 0;
    dice_state = 8259u;
    for (round = 0; round < 6000; round++) {
        char text[160];
        const char *from = seeds[dice(5)];
        size_t len = strlen(from), at;
        uint32_t edits = 1 + dice(3), e;
        eb_result want, got;
        memcpy(text, from, len);
        for (e = 0; e < edits && len > 1 && len < 150; e++) {
            char c = spice[dice((uint32_t)sizeof spice - 1)];
            at = dice((uint32_t)len);
            switch (dice(4)) {
            case 0: text[at] = c; break;
            case 1:
                memmove(text + at + 1, text + at, len - at);
                text[at] = c;
                len++;
                break;
            case 2:
                memmove(text + at, text + at + 1, len - at - 1);
                len--;
                break;
            default:
                memmove(text + at + 1, text + at, len - at);
                len++;
                break;
            }
        }
        want = ref_valid(text, len) ? EB_OK : EB_ERR_PAYLOAD;
        valid += want == EB_OK;
        got = send_payload(text, len);
        if (want != got) {
            fprintf(stderr, "\nround %d: ", round);
            print_text(text, len);
            fprintf(stderr, "\n  wanted %d, got %d\n", (int)want, (int)got);
            FAILm("verdicts differ");
        }
    }
    ASSERTm("both verdicts must occur often", valid > 300 && valid < 5700);
    PASS();
}

/* eb_json_text: what it writes, and its length as snprintf counts. */
TEST text_becomes_a_json_string(void)
{
    static const struct {
        const char *text;
        size_t len;
        const char *json;
    } cases[] = {
        {"", (size_t)-1, "\"\""},
        {NULL, (size_t)-1, "\"\""},
        {NULL, 7, "\"\""},
        {"buy milk", (size_t)-1, "\"buy milk\""},
        {"buy milk", 3, "\"buy\""},
        {"say \"no\" \\ or/yes", (size_t)-1, "\"say \\\"no\\\" \\\\ or/yes\""},
        {"a\nb\tc\x01", (size_t)-1, "\"a\\u000ab\\u0009c\\u0001\""},
        {"a\0b", 3, "\"a\\u0000b\""},
        {"\xC3\xA4\xF0\x9F\x98\x80", (size_t)-1, "\"\xC3\xA4\xF0\x9F\x98\x80\""},
        {"x\xFFy\xC3", (size_t)-1, "\"x\xEF\xBF\xBDy\xEF\xBF\xBD\""},
    };
    size_t i, n, cap;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        char buf[64], small[64];
        ebi_json j;
        memset(buf, 'x', sizeof buf);
        n = eb_json_text(buf, sizeof buf, cases[i].text, cases[i].len);
        ASSERT_STR_EQ(cases[i].json, buf);
        T_EQ(strlen(cases[i].json), n);
        T_EQ(n, eb_json_text(NULL, 0, cases[i].text, cases[i].len));
        ebi_json_init(&j, buf, n);
        ASSERT(ebi_json_value(&j)); /* a payload that is accepted */
        for (cap = 1; cap <= n; cap++) { /* cut, terminated, and nothing behind it is touched */
            memset(small, 'x', sizeof small);
            T_EQ(n, eb_json_text(small, cap, cases[i].text, cases[i].len));
            T_EQ(0, memcmp(small, buf, cap - 1));
            T_EQ(0, small[cap - 1]);
            T_EQ('x', small[cap]);
        }
    }
    PASS();
}

SUITE(json)
{
    eb_options o = t_options(t_path("json"));
    o.durability = EB_DURABLE_OFF;
    o.workers = EB_NONE;
    bus = t_open(&o);
    RUN_TEST(text_becomes_a_json_string);
    RUN_TEST(payload_table);
    RUN_TEST(metadata_table);
    RUN_TEST(accepted_texts_are_stored_byte_for_byte_and_refused_ones_not_at_all);
    RUN_TEST(refusal_has_a_message);
    RUN_TEST(nesting_of_128_is_accepted_and_129_is_not);
    RUN_TEST(only_open_brackets_count_as_nesting);
    RUN_TEST(very_deep_texts_are_refused_without_recursion);
    RUN_TEST(long_flat_texts_are_accepted);
    RUN_TEST(second_opinion_agrees_with_the_table);
    RUN_TEST(mutated_texts_get_the_same_verdict_from_a_second_opinion);
    eb_destroy(bus);
}

GREATEST_MAIN_DEFS();

int main(int argc, char **argv)
{
    GREATEST_MAIN_BEGIN();
    RUN_SUITE(json);
    GREATEST_MAIN_END();
}
