/* clients.h - the least that is needed to speak with beanstalkd, Redis and PostgreSQL over TCP.
**
** One connection, one call in flight, no library: put an event and wait for the acknowledgement,
** take the next one (waiting for it), acknowledge that. Anything unexpected ends the program.
**
** Include after bench.h.
*/
#ifndef CLIENTS_H
#define CLIENTS_H
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

typedef struct c_conn {
    int fd;
    size_t at, end;       /* unread input */
    unsigned char in[65536];
    char id[64];          /* of the event that was taken */
    int listens, noted;   /* PostgreSQL: waits for NOTIFY, else looks again soon; one came */
} c_conn;

/* One kind of server. */
typedef struct c_kind {
    void (*open)(c_conn *c, int asynchronous); /* asynchronous: do not wait for the disk */
    void (*put)(c_conn *c, const char *payload, int notify);
    void (*take)(c_conn *c, char *payload); /* waits; payload has room for one, see bench.h */
    void (*ack)(c_conn *c);
    void (*clear)(c_conn *c);  /* nothing is left, whatever there was */
    void (*listen)(c_conn *c); /* from now on events are put with notify; NULL: no need */
} c_kind;

/* ---- bytes --------------------------------------------------------------------------------- */

static void c_connect(c_conn *c, int port)
{
    struct sockaddr_in address;
    int one = 1;
    memset(c, 0, sizeof *c);
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons((uint16_t)port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address) != 0)
        b_die("connect", "no server there");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static void c_write(c_conn *c, const void *data, size_t size)
{
    const char *p = (const char *)data;
    while (size > 0) {
        ssize_t n = send(c->fd, p, size, MSG_NOSIGNAL);
        if (n <= 0) b_die("send", "connection lost");
        p += n;
        size -= (size_t)n;
    }
}

static void c_fill(c_conn *c)
{
    ssize_t n;
    if (c->at == c->end) c->at = c->end = 0;
    if (c->end == sizeof c->in) b_die("recv", "answer too long");
    n = recv(c->fd, c->in + c->end, sizeof c->in - c->end, 0);
    if (n <= 0) b_die("recv", "connection lost");
    c->end += (size_t)n;
}

static void c_read(c_conn *c, void *to, size_t size)
{
    unsigned char *p = (unsigned char *)to;
    while (size > 0) {
        size_t n = c->end - c->at;
        if (n == 0) {
            c_fill(c);
            continue;
        }
        if (n > size) n = size;
        if (p) memcpy(p, c->in + c->at, n), p += n;
        c->at += n;
        size -= n;
    }
}

/* One line without its \r\n. */
static void c_line(c_conn *c, char *to, size_t size)
{
    size_t n = 0;
    char ch;
    for (;;) {
        c_read(c, &ch, 1);
        if (ch == '\n') break;
        if (ch != '\r' && n + 1 < size) to[n++] = ch;
    }
    to[n] = 0;
}

/* ---- beanstalkd ---------------------------------------------------------------------------- */

static void c_bean_open(c_conn *c, int asynchronous)
{
    (void)c;
    (void)asynchronous; /* a property of the server: -f */
}

static void c_bean_put(c_conn *c, const char *payload, int notify)
{
    char text[B_PAYLOAD_BYTES + 60], line[100];
    int n = snprintf(text, sizeof text, "put 0 0 60 %d\r\n%s\r\n", B_PAYLOAD_BYTES, payload);
    (void)notify;
    c_write(c, text, (size_t)n);
    c_line(c, line, sizeof line);
    if (strncmp(line, "INSERTED ", 9) != 0) b_die("beanstalkd put", line);
}

/* The answer to a reserve: 0 if there was nothing. */
static int c_bean_reserved(c_conn *c, char *payload)
{
    char line[100];
    int bytes = 0;
    c_line(c, line, sizeof line);
    if (strcmp(line, "TIMED_OUT") == 0) return 0;
    if (sscanf(line, "RESERVED %60s %d", c->id, &bytes) != 2 || bytes != B_PAYLOAD_BYTES)
        b_die("beanstalkd reserve", line);
    c_read(c, payload, B_PAYLOAD_BYTES);
    payload[B_PAYLOAD_BYTES] = 0;
    c_read(c, NULL, 2);
    return 1;
}

static void c_bean_take(c_conn *c, char *payload)
{
    c_write(c, "reserve\r\n", 9);
    if (!c_bean_reserved(c, payload)) b_die("beanstalkd reserve", "timed out");
}

static void c_bean_ack(c_conn *c)
{
    char text[100];
    c_write(c, text, (size_t)snprintf(text, sizeof text, "delete %s\r\n", c->id));
    c_line(c, text, sizeof text);
    if (strcmp(text, "DELETED") != 0) b_die("beanstalkd delete", text);
}

static void c_bean_clear(c_conn *c)
{
    char payload[B_PAYLOAD_BYTES + 1];
    for (;;) {
        c_write(c, "reserve-with-timeout 0\r\n", 24);
        if (!c_bean_reserved(c, payload)) return;
        c_bean_ack(c);
    }
}

/* ---- Redis Streams ------------------------------------------------------------------------- */

/* Reads one answer, however nested; keeps the second string (the id) and the last (the payload). */
static void c_redis_answer(c_conn *c, int *strings, char *payload)
{
    char line[300];
    long n, i;
    c_line(c, line, sizeof line);
    n = atol(line + 1);
    switch (line[0]) {
    case '-': b_die("redis", line);
    /* fall through */
    case '*':
        for (i = 0; i < n; i++) c_redis_answer(c, strings, payload);
        break;
    case '$':
        if (n < 0) break;
        ++*strings;
        if (*strings == 2 && (size_t)n < sizeof c->id) {
            c_read(c, c->id, (size_t)n);
            c->id[n] = 0;
        } else if (payload && n == B_PAYLOAD_BYTES) {
            c_read(c, payload, (size_t)n);
            payload[n] = 0;
        } else {
            c_read(c, NULL, (size_t)n);
        }
        c_read(c, NULL, 2);
    }
}

static void c_redis_call(c_conn *c, const char *text, char *payload)
{
    int strings = 0;
    c_write(c, text, strlen(text));
    c_redis_answer(c, &strings, payload);
}

static void c_redis_open(c_conn *c, int asynchronous)
{
    (void)c;
    (void)asynchronous; /* a property of the server: appendfsync */
}

static void c_redis_put(c_conn *c, const char *payload, int notify)
{
    char text[B_PAYLOAD_BYTES + 100];
    (void)notify;
    snprintf(text, sizeof text,
             "*5\r\n$4\r\nXADD\r\n$1\r\nq\r\n$1\r\n*\r\n$1\r\nd\r\n$%d\r\n%s\r\n", B_PAYLOAD_BYTES,
             payload);
    c_redis_call(c, text, NULL);
}

static void c_redis_take(c_conn *c, char *payload)
{
    payload[0] = 0;
    c_redis_call(c, "XREADGROUP GROUP g c COUNT 1 BLOCK 0 STREAMS q >\r\n", payload);
    if (!payload[0]) b_die("redis XREADGROUP", "no event");
}

static void c_redis_ack(c_conn *c)
{
    char text[120];
    snprintf(text, sizeof text, "*4\r\n$4\r\nXACK\r\n$1\r\nq\r\n$1\r\ng\r\n$%u\r\n%s\r\n",
             (unsigned)strlen(c->id), c->id);
    c_redis_call(c, text, NULL);
}

static void c_redis_clear(c_conn *c)
{
    c_redis_call(c, "DEL q\r\n", NULL);
    c_redis_call(c, "XGROUP CREATE q g $ MKSTREAM\r\n", NULL);
}

/* ---- PostgreSQL: protocol 3.0, prepared statements ----------------------------------------- */

typedef struct c_out { /* messages on their way */
    unsigned char data[4096];
    size_t n, begin;
} c_out;

static void c_pg_int(c_out *o, unsigned v, int bytes)
{
    while (bytes-- > 0) o->data[o->n++] = (unsigned char)(v >> (8 * bytes));
}
static void c_pg_text(c_out *o, const char *text)
{
    size_t n = strlen(text) + 1;
    if (o->n + n > sizeof o->data) b_die("postgresql", "statement too long");
    memcpy(o->data + o->n, text, n);
    o->n += n;
}
static void c_pg_begin(c_out *o, char type)
{
    if (type) o->data[o->n++] = (unsigned char)type;
    o->begin = o->n;
    c_pg_int(o, 0, 4);
}
static void c_pg_end(c_out *o)
{
    size_t end = o->n;
    o->n = o->begin;
    c_pg_int(o, (unsigned)(end - o->begin), 4);
    o->n = end;
}

/* Reads answers up to ReadyForQuery. Returns how many rows came; the first's last column goes to
** payload. A notification is no answer. */
static int c_pg_ready(c_conn *c, char *payload)
{
    unsigned char head[5], body[2000];
    unsigned size;
    int rows = 0;
    for (;;) {
        c_read(c, head, 5);
        size = ((unsigned)head[1] << 24 | (unsigned)head[2] << 16 | (unsigned)head[3] << 8 |
                head[4]) - 4;
        if (size >= sizeof body) b_die("postgresql", "answer too long");
        c_read(c, body, size);
        body[size] = 0;
        if (head[0] == 'E') b_die("postgresql", (const char *)body + 1);
        if (head[0] == 'D' && rows++ == 0 && payload && size >= B_PAYLOAD_BYTES) {
            memcpy(payload, body + size - B_PAYLOAD_BYTES, B_PAYLOAD_BYTES);
            payload[B_PAYLOAD_BYTES] = 0;
        }
        if (head[0] == 'A') c->noted = 1;
        if (head[0] == 'Z') return rows;
    }
}

static void c_pg_query(c_conn *c, const char *sql)
{
    c_out o = {{0}, 0, 0};
    c_pg_begin(&o, 'Q');
    c_pg_text(&o, sql);
    c_pg_end(&o);
    c_write(c, o.data, o.n);
    c_pg_ready(c, NULL);
}

static void c_pg_prepare(c_conn *c, const char *name, const char *sql)
{
    c_out o = {{0}, 0, 0};
    c_pg_begin(&o, 'P');
    c_pg_text(&o, name);
    c_pg_text(&o, sql);
    c_pg_int(&o, 0, 2);
    c_pg_end(&o);
    c_pg_begin(&o, 'S');
    c_pg_end(&o);
    c_write(c, o.data, o.n);
    c_pg_ready(c, NULL);
}

/* Bind and Execute of a prepared statement, with at most one parameter. */
static void c_pg_run(c_out *o, const char *name, const char *parameter)
{
    c_pg_begin(o, 'B');
    c_pg_text(o, "");
    c_pg_text(o, name);
    c_pg_int(o, 0, 2);
    c_pg_int(o, parameter ? 1 : 0, 2);
    if (parameter) {
        c_pg_int(o, B_PAYLOAD_BYTES, 4);
        memcpy(o->data + o->n, parameter, B_PAYLOAD_BYTES);
        o->n += B_PAYLOAD_BYTES;
    }
    c_pg_int(o, 0, 2);
    c_pg_end(o);
    c_pg_begin(o, 'E');
    c_pg_text(o, "");
    c_pg_int(o, 0, 4);
    c_pg_end(o);
}

static int c_pg_go(c_conn *c, c_out *o, char *payload)
{
    c_pg_begin(o, 'S');
    c_pg_end(o);
    c_write(c, o->data, o->n);
    return c_pg_ready(c, payload);
}

static void c_pg_open(c_conn *c, int asynchronous)
{
    c_out o = {{0}, 0, 0};
    c_pg_begin(&o, 0);
    c_pg_int(&o, 196608, 4);
    c_pg_text(&o, "user");
    c_pg_text(&o, "bench");
    c_pg_text(&o, "database");
    c_pg_text(&o, "postgres");
    c_pg_text(&o, "");
    c_pg_end(&o);
    c_write(c, o.data, o.n);
    c_pg_ready(c, NULL);
    c_pg_query(c, asynchronous ? "SET synchronous_commit = off" : "SET synchronous_commit = on");
    c_pg_query(c, "SET client_min_messages = error; CREATE TABLE IF NOT EXISTS q(id bigserial"
                  " PRIMARY KEY, type text NOT NULL, payload json NOT NULL, created_at timestamptz"
                  " NOT NULL DEFAULT now())");
    c_pg_prepare(c, "put", "INSERT INTO q(type, payload) VALUES('order.placed', $1)");
    c_pg_prepare(c, "notify", "NOTIFY q");
    c_pg_prepare(c, "begin", "BEGIN");
    c_pg_prepare(c, "take", "DELETE FROM q WHERE id = (SELECT id FROM q ORDER BY id"
                            " FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING payload");
    c_pg_prepare(c, "commit", "COMMIT");
}

/* In one transaction: two statements before one Sync are. */
static void c_pg_put(c_conn *c, const char *payload, int notify)
{
    c_out o = {{0}, 0, 0};
    c_pg_run(&o, "put", payload);
    if (notify) c_pg_run(&o, "notify", NULL);
    c_pg_go(c, &o, NULL);
}

/* The event is locked until the ack commits; if the consumer dies, it is there again. That is one
** commit per event, fewer than with a status column. */
static void c_pg_take(c_conn *c, char *payload)
{
    struct pollfd wait = {0, POLLIN, 0};
    struct timespec soon = {0, 200000};
    for (;;) {
        c_out o = {{0}, 0, 0};
        c->noted = 0;
        c_pg_run(&o, "begin", NULL);
        c_pg_run(&o, "take", NULL);
        if (c_pg_go(c, &o, payload) > 0) return;
        o.n = 0;
        c_pg_run(&o, "commit", NULL);
        c_pg_go(c, &o, NULL);
        wait.fd = c->fd;
        if (!c->listens) nanosleep(&soon, NULL);
        else if (!c->noted && c->at == c->end) poll(&wait, 1, 100); /* read by the next call */
    }
}

static void c_pg_ack(c_conn *c)
{
    c_out o = {{0}, 0, 0};
    c_pg_run(&o, "commit", NULL);
    c_pg_go(c, &o, NULL);
}

static void c_pg_clear(c_conn *c) { c_pg_query(c, "TRUNCATE q"); }

static void c_pg_listen(c_conn *c)
{
    c_pg_query(c, "LISTEN q");
    c->listens = 1;
}

static const c_kind c_beanstalkd = {c_bean_open, c_bean_put,   c_bean_take,
                                    c_bean_ack,  c_bean_clear, NULL};
static const c_kind c_redis = {c_redis_open, c_redis_put,   c_redis_take,
                               c_redis_ack,  c_redis_clear, NULL};
static const c_kind c_postgresql = {c_pg_open, c_pg_put,   c_pg_take,
                                    c_pg_ack,  c_pg_clear, c_pg_listen};

#endif /* CLIENTS_H */
