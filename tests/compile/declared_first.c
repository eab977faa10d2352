/* Some other header wanted the declarations before the implementation is asked for. */
#include "eventbus.h"
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
#include "smoke.h"

int main(void) { return smoke(); }
