/* game_loop.c - Shows how to run a bus without any thread, inside a loop that has no time to lose.
**
** 60 frames; each gives the bus 2 ms with eb_pump(). Loading a level posts 24 chunks of work at
** once: they spread over many frames by themselves. A quest reward is delayed, a cloud save fails
** and is retried, all between frames, and all of it would survive a crash. Prints what happened.
**
** The disk: at EB_DURABLE_NORMAL a commit waits for no fsync (a crash loses nothing, a power cut
** perhaps the newest events). What does is a checkpoint: the write-ahead log is copied into the
** database: by default every 1000 pages, in whichever frame that is. With wal_pages = EB_NONE that
** happens in eb_checkpoint(), here on the loading screen, at the end, and once the log has 64 MiB.
** The first commit after a checkpoint waits for one more fsync, so something is published there.
**
** Build: cc -I. -Isqlite3 examples/game_loop.c sqlite3/sqlite3.c -o game_loop -lpthread -ldl -lm && ./game_loop
*/
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
#include "sqlite3.h"
#include <stdio.h>
#include <stdlib.h>

enum { FRAMES = 60, CHUNKS = 24 };

typedef struct game {
    int frame, chunks, first_frame, last_frame, loading;
} game;

static void check(eb_result got)
{
    if (got == EB_OK) return;
    fprintf(stderr, "game_loop: %s\n", eb_strerror(got));
    exit(1);
}

static eb_result on_chunk(eb_delivery *d, void *user)
{
    game *g = (game *)user;
    (void)d;
    sqlite3_sleep(1); /* unpacking takes a millisecond */
    if (g->chunks++ == 0) g->first_frame = g->frame;
    g->last_frame = g->frame;
    return EB_OK;
}

static eb_result on_loaded(eb_delivery *d, void *user)
{
    (void)d, (void)user;
    puts("level loaded");
    return EB_OK;
}

static eb_result on_reward(eb_delivery *d, void *user)
{
    (void)user;
    printf("reward: %s\n", d->event->payload);
    return EB_OK;
}

static eb_result on_save(eb_delivery *d, void *user)
{
    (void)user;
    printf("cloud save, attempt %d\n", d->attempt);
    return d->attempt == 1 ? eb_fail(d, "no network") : EB_OK; /* the frame goes on meanwhile */
}

static void quiet(const eb_log_entry *e, void *user) { (void)e, (void)user; }

int main(void)
{
    eb_options options = {.path = "game_loop.db", .workers = EB_NONE};
    eb_message chunks[CHUNKS] = {{0}}, reward = {.type = "quest.reward"};
    game g = {.loading = 1};
    int64_t next;
    int busy = 0;
    eb_bus *bus;

    for (int i = 0; i < CHUNKS; i++) chunks[i].type = "level.chunk";
    reward.payload = "\"a sword\""; /* JSON, so a text has quotes of its own */
    reward.delay_ms = 200;
    options.durability = EB_DURABLE_NORMAL; /* no fsync when a frame publishes, */
    options.wal_pages = EB_NONE;            /* nor for a checkpoint in the middle of one */
    options.retry.base_delay_ms = 100;
    options.logger.func = quiet;
    remove("game_loop.db"); /* a fresh start, for this demonstration only */
    remove("game_loop.db-wal");
    check(eb_open(&bus, &options));
    check(eb_subscribe(bus, "level.chunk", on_chunk, &g, NULL, NULL));
    check(eb_subscribe(bus, "level.loaded", on_loaded, NULL, NULL, NULL));
    check(eb_subscribe(bus, "quest.*", on_reward, NULL, NULL, NULL));
    check(eb_subscribe(bus, "save.*", on_save, NULL, NULL, NULL));
    check(eb_start(bus));

    for (g.frame = 0; g.frame < FRAMES; g.frame++) {
        if (g.frame == 0) check(eb_send(bus, chunks, CHUNKS, NULL)); /* one commit */
        if (g.frame == 40) {
            check(eb_post(bus, "save.cloud", "{\"slot\": 1}", NULL));
            check(eb_send(bus, &reward, 1, NULL));
        }
        check(eb_pump(bus, 2, &next)); /* next: 0 = more now, -1 = nothing, else ms until due */
        if (next == 0) busy++;
        if (g.loading && g.chunks == CHUNKS) {
            check(eb_checkpoint(eb_bus_store(bus))); /* nobody minds some ms of disk here */
            check(eb_post(bus, "level.loaded", NULL, NULL));
            g.loading = 0;
        }
        sqlite3_sleep(10); /* draw the frame */
    }
    check(eb_drain(bus, 5000)); /* leaving the game: finish what is left, pumping here */
    printf("%d chunks took %d frames; %d frames left work for the next one\n", g.chunks,
           g.last_frame - g.first_frame + 1, busy);
    eb_destroy(bus);
    return 0;
}
