/* The file of a program that uses the bus; the implementation is in another one (impl.c). Also
** compiled as C++. */
#include "eventbus.h"
#include "smoke.h"

int main(void) { return smoke(); }
