/* test_model_small.c - test_model.c with room for four events in memory and two in a claim, so that
** some thirty events take every way over the disk that takes thousands otherwise.
*/
#define EB_READY_MAX 4
#define EB_CLAIM_MAX 2
#define MODEL_SEEDS 800
#define MODEL_FIRST 100001
#include "test_model.c"
