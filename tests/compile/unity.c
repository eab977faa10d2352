/* The whole program as one file: SQLite, the bus, the application. sqlite3.c is found through
** -isystem, so that its own warnings stay out of ours. */
#include "sqlite3.c"
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
#include "smoke.h"

int main(void) { return smoke(); }
