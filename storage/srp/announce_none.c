// announce_none.c - stands for announce.c where the header of libibumad is not installed
// SPDX-License-Identifier: MIT
#include <errno.h>

#include "srp/announce.h"

int sp_announce_open(struct nt_loop *l, const char *port, const struct sp_dm *t, struct sp_announce **out,
                     const char **why)
{
	*why = "built without libibumad";
	return ENOSYS;
}

void sp_announce_close(struct sp_announce *a)
{
}
