/* test_cost.c - what an event costs, counted and not timed: commits by SQLite's commit hook, fsyncs
** by the shim of fault/vfs.h, allocations by eb_options.allocator. One thread, an injected clock:
** the figures are the same on every machine. A change that makes one larger is a slower bus.
**
** What the statements read is in test_plans.c; how often a bus without work wakes up is in
** test_threads.c.
*/
#include "fault/vfs.h"

enum { MANY = 100 };

/* ---- counting -------------------------------------------------------------------------------- */

static struct { int commits, allocated, freed; } cost;

static void *on_resize(void *ptr, size_t size, void *user)
{
    (void)user;
    if (size == 0) {
        cost.freed += ptr != NULL;
        free(ptr);
        return NULL;
    }
    cost.allocated++;
    return realloc(ptr, size);
}
static int on_commit(void *user)
{
    (void)user;
    cost.commits++;
    return 0;
}
static int syncs(void) { return (int)vfs_count("sync"); }

static void count_from_here(void)
{
    memset(&cost, 0, sizeof cost);
    vfs_heal();
}

static int runs;
static eb_result on_event(eb_delivery *d, void *user)
{
    (void)d;
    (void)user;
    runs++;
    return EB_OK;
}

/* ---- a bus that has been used ---------------------------------------------------------------- */

static eb_bus *bus;
static t_time time_now;
static eb_message batch[MANY];

/* One of everything first: statements are prepared, the WAL has its header, all is in the cache.
** The WAL is far from its first checkpoint. */
static void begin(int durability)
{
    eb_options o = t_options(t_path("cost"));
    int i;
    vfs_install();
    o.vfs = "fault";
    o.workers = EB_NONE;
    o.durability = durability;
    o.clock = t_clock(&time_now);
    o.allocator.resize = on_resize;
    bus = t_open(&o);
    T_MUST(eb_subscribe(bus, "*", on_event, NULL, NULL, NULL) == EB_OK && eb_start(bus) == EB_OK);
    sqlite3_commit_hook(bus->store.writer.handle, on_commit, NULL);
    memset(batch, 0, sizeof batch);
    for (i = 0; i < MANY; i++) {
        batch[i].type = "order.placed";
        batch[i].payload = "{\"order\":42,\"to\":\"somebody\"}";
    }
    T_MUST(eb_publish(bus, "order.placed", "{}", NULL) == EB_OK);
    T_MUST(eb_send(bus, batch, MANY, NULL) == EB_OK && t_settle(bus) == EB_OK);
    count_from_here();
    runs = 0;
}
static void end(void)
{
    eb_destroy(bus);
    t_path("cost");
}

/* ---- publishing ------------------------------------------------------------------------------ */

TEST post_is_one_commit_and_at_full_one_sync(int durability, int want)
{
    int i;
    begin(durability);
    for (i = 1; i <= MANY / 2; i++) {
        T_OK(eb_post(bus, "order.placed", "{}", NULL));
        ASSERT_EQ(i, cost.commits);
        ASSERT_EQ(i * want, syncs());
    }
    end();
    PASS();
}

TEST batch_is_one_commit_and_at_full_one_sync(int durability, int want)
{
    begin(durability);
    T_OK(eb_send(bus, batch, MANY, NULL));
    ASSERT_EQ(1, cost.commits);
    ASSERT_EQ(want, syncs());
    end();
    PASS();
}

/* A message may ask for more or less than its bus; the most careful of a batch decides. */
TEST durability_of_a_message_decides_about_the_sync(int durability)
{
    begin(durability);
    batch[0].durability = EB_DURABLE_NORMAL;
    T_OK(eb_send(bus, batch, 1, NULL));
    ASSERT_EQ(0, syncs());
    batch[0].durability = EB_DURABLE_FULL;
    T_OK(eb_send(bus, batch, 1, NULL));
    ASSERT_EQ(1, syncs());
    batch[1].durability = EB_DURABLE_NORMAL;
    T_OK(eb_send(bus, batch, 2, NULL));
    ASSERT_EQ(2, syncs());
    ASSERT_EQ(3, cost.commits);
    end();
    PASS();
}

/* What is refused costs nothing on disk. */
TEST refused_message_commits_nothing(void)
{
    begin(EB_DURABLE_FULL);
    batch[MANY - 1].payload = "{";
    T_IS(EB_ERR_PAYLOAD, eb_send(bus, batch, MANY, NULL));
    ASSERT_EQ(0, cost.commits + syncs());
    ASSERT_EQ(cost.allocated, cost.freed);
    end();
    PASS();
}

/* ---- dispatching ----------------------------------------------------------------------------- */

/* Claims and acks of many events share their commits, and none of them is worth an fsync: a lost
** ack is a handler that runs again. */
TEST dispatch_of_many_takes_few_commits_and_no_sync(int durability)
{
    begin(durability);
    T_OK(eb_send(bus, batch, MANY, NULL));
    count_from_here();
    T_OK(eb_pump(bus, EB_NONE, NULL));
    ASSERT_EQ(MANY, runs);
    ASSERT(cost.commits >= 1 && cost.commits <= 3);
    ASSERT_EQ(0, syncs());
    end();
    PASS();
}

/* Publish, claim, ack: each a commit at most, one sync in all. */
TEST publish_takes_three_commits_and_at_full_one_sync(int durability, int want)
{
    int i;
    begin(durability);
    for (i = 0; i < MANY / 4; i++) T_OK(eb_publish(bus, "order.placed", "{}", NULL));
    ASSERT_EQ(MANY / 4, runs);
    ASSERT(cost.commits <= 3 * MANY / 4);
    ASSERT_EQ(want * MANY / 4, syncs());
    end();
    PASS();
}

TEST turn_without_work_writes_nothing(void)
{
    int i;
    begin(EB_DURABLE_FULL);
    for (i = 0; i < 20; i++) {
        T_OK(eb_pump(bus, EB_NONE, NULL));
        t_advance(&time_now, 7);
    }
    ASSERT_EQ(0, cost.commits + syncs() + (int)vfs_count("write"));
    ASSERT_EQ(0, cost.allocated);
    end();
    PASS();
}

/* ---- memory ---------------------------------------------------------------------------------- */

TEST event_is_one_allocation_and_its_dispatch_none(void)
{
    int i;
    begin(EB_DURABLE_NORMAL);
    for (i = 1; i <= MANY / 2; i++) {
        T_OK(eb_post(bus, "order.placed", "{\"order\":42}", NULL));
        ASSERT(cost.allocated <= i);
    }
    count_from_here();
    T_OK(eb_pump(bus, EB_NONE, NULL));
    ASSERT_EQ(MANY / 2, runs);
    ASSERT_EQ(0, cost.allocated);
    ASSERT(cost.freed <= MANY / 2);
    end();
    PASS();
}

/* All members of a message lie in that one block. */
TEST full_message_is_one_allocation(void)
{
    begin(EB_DURABLE_NORMAL);
    batch[0].metadata = "{\"trace\":\"1\"}";
    batch[0].ordering_key = "customer-7";
    batch[0].idempotency_key = "order-42";
    T_OK(eb_send(bus, batch, 1, NULL));
    ASSERT(cost.allocated <= 1);
    count_from_here();
    T_OK(eb_pump(bus, EB_NONE, NULL));
    ASSERT_EQ(1, runs);
    ASSERT_EQ(0, cost.allocated);
    end();
    PASS();
}

/* A batch needs two lists of its own. */
TEST batch_is_an_allocation_per_event_and_two(void)
{
    begin(EB_DURABLE_NORMAL);
    T_OK(eb_send(bus, batch, MANY, NULL));
    ASSERT(cost.allocated <= MANY + 2);
    T_OK(eb_pump(bus, EB_NONE, NULL));
    ASSERT_EQ(MANY, runs);
    ASSERT(cost.allocated <= MANY + 2);
    ASSERT_EQ(cost.allocated, cost.freed);
    end();
    PASS();
}

GREATEST_MAIN_DEFS();
int main(int argc, char **argv)
{
    static const struct { int level, syncs; const char *name; } levels[] = {
        {EB_DURABLE_FULL, 1, "full"}, {EB_DURABLE_NORMAL, 0, "normal"}, {EB_DURABLE_OFF, 0, "off"}};
    size_t i;
    GREATEST_MAIN_BEGIN();
    vfs_no_sync = 1; /* they are counted all the same */
    for (i = 0; i < sizeof levels / sizeof *levels; i++) {
        greatest_set_test_suffix(levels[i].name);
        RUN_TESTp(post_is_one_commit_and_at_full_one_sync, levels[i].level, levels[i].syncs);
        greatest_set_test_suffix(levels[i].name);
        RUN_TESTp(batch_is_one_commit_and_at_full_one_sync, levels[i].level, levels[i].syncs);
        greatest_set_test_suffix(levels[i].name);
        RUN_TESTp(dispatch_of_many_takes_few_commits_and_no_sync, levels[i].level);
        greatest_set_test_suffix(levels[i].name);
        RUN_TESTp(publish_takes_three_commits_and_at_full_one_sync, levels[i].level,
                  levels[i].syncs);
    }
    RUN_TESTp(durability_of_a_message_decides_about_the_sync, EB_DURABLE_FULL);
    RUN_TESTp(durability_of_a_message_decides_about_the_sync, EB_DURABLE_NORMAL);
    RUN_TEST(refused_message_commits_nothing);
    RUN_TEST(turn_without_work_writes_nothing);
    RUN_TEST(event_is_one_allocation_and_its_dispatch_none);
    RUN_TEST(full_message_is_one_allocation);
    RUN_TEST(batch_is_an_allocation_per_event_and_two);
    GREATEST_MAIN_END();
}
