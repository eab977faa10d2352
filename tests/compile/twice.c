/* Included again and again, with and without the switch: only the first one counts. */
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
#include "eventbus.h"
#undef EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
#include "smoke.h"

int main(void) { return smoke(); }
