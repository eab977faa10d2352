// An exception that leaves a handler is a failed attempt with its text, under either driver.
#include <stdexcept>
#include <string>
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"

namespace
{
eb_result throws(eb_delivery *delivery, void *)
{
    if (delivery->attempt == 1) throw std::runtime_error("out of paper");
    if (delivery->attempt == 2) throw 42;
    return EB_OK;
}

eb_result works(eb_delivery *, void *calls)
{
    ++*static_cast<int *>(calls);
    return EB_OK;
}

// What both attempts left behind, and whether the bus goes on.
bool survives(int workers)
{
    eb_options options = {};
    eb_event_list list = {};
    eb_bus *bus = nullptr;
    eb_id id;
    int calls = 0;
    options.path = ":memory:";
    options.workers = workers;
    options.retry.base_delay_ms = 1;
    options.logger.func = [](const eb_log_entry *, void *) {};
    bool good = eb_open(&bus, &options) == EB_OK &&
                eb_subscribe(bus, "print", throws, nullptr, nullptr, nullptr) == EB_OK &&
                eb_subscribe(bus, "*", works, &calls, nullptr, nullptr) == EB_OK &&
                eb_start(bus) == EB_OK && eb_publish(bus, "print", nullptr, &id) == EB_OK &&
                eb_publish(bus, "other", nullptr, nullptr) == EB_OK && calls == 2 &&
                eb_get(eb_bus_store(bus), id.str, &list) == EB_OK;
    good = good && list.items[0].retry_count == 2 &&
           list.items[0].last_error ==
               std::string("[\"out of paper\",\"an exception of unknown type\"]");
    eb_event_list_free(&list);
    eb_destroy(bus);
    return good;
}
} // namespace

int main()
{
    if (!survives(1) || !survives(EB_NONE)) return 1;
    puts("ok");
    return 0;
}
