/* Pretends to be another version of SQLite: -DFAKE_VERSION=3040001 -DEB_SQLITE3_H='"other_sqlite3.h"' */
#include "sqlite3.h"
#undef SQLITE_VERSION_NUMBER
#define SQLITE_VERSION_NUMBER FAKE_VERSION
