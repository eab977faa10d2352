// A C++ program with the implementation in it: options with {}, a class behind the user pointer.
#include <string>
#include <vector>
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
#include "smoke.h"

class mailbox
{
  public:
    static eb_result receive(eb_delivery *delivery, void *self)
    {
        static_cast<mailbox *>(self)->letters_.emplace_back(delivery->event->payload);
        return EB_OK;
    }
    const std::vector<std::string> &letters() const { return letters_; }

  private:
    std::vector<std::string> letters_;
};

int main()
{
    eb_options options = {};
    eb_subscribe_options subscription = {};
    eb_message message = {};
    eb_event_list list = {};
    eb_query query = {};
    eb_bus *bus = nullptr;
    mailbox box;
    options.path = ":memory:";
    options.workers = EB_NONE;
    subscription.retry.max_retries = 1;
    message.type = "letter";
    message.payload = "\"hello\"";
    query.pattern = "let*";
    bool good = eb_open(&bus, &options) == EB_OK;
    good = good &&
           eb_subscribe(bus, "letter", mailbox::receive, &box, &subscription, nullptr) == EB_OK;
    good = good && eb_start(bus) == EB_OK && eb_send(bus, &message, 1, nullptr) == EB_OK;
    good = good && eb_drain(bus, 5000) == EB_OK;
    good = good && eb_log_read(eb_bus_store(bus), &query, &list) == EB_OK && list.count == 1;
    eb_event_list_free(&list);
    eb_destroy(bus);
    if (!good || box.letters().size() != 1 || box.letters()[0] != "\"hello\"") return 1;
    return smoke();
}
