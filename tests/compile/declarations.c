/* The declarations alone: they need no sqlite3.h, bring none, and leave no helper macro behind. */
#include "eventbus.h"
#ifdef SQLITE_VERSION
#error "the declarations bring sqlite3.h"
#endif
#ifdef EB_RESULT_ENUM
#error "EB_RESULT_ENUM is left behind"
#endif

int uses_the_types(const eb_options *options, eb_id *id);
int uses_the_types(const eb_options *options, eb_id *id)
{
    id->str[0] = 0;
    return options->path ? (int)EB_OK : (int)EB_ERR_ARG;
}
