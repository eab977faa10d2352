/* The implementation and nothing else; also compiled as C++. */
#define EVENTBUS_IMPLEMENTATION
#include "eventbus.h"
