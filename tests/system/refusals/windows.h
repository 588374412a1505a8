// windows.h - the memory windows of a case: those whose keys a request names, and those that a request binds
// follows: IBA volume 1, 10.6 (memory windows); ibv_alloc_mw(3), ibv_bind_mw(3), ibv_post_send(3)
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_WINDOWS_H
#define VB_TEST_WINDOWS_H

#include "request.h"

#define WINDOW_AT 8192u
#define WINDOW_BYTES 32768u

/* Binds a window as the case wants it to memory of this end. Returns the key that the request names. */
uint32_t window_open(struct end *e, struct ibv_mr *mr);
/* Posts a request that binds a window to the region. Returns the result of the call. */
int window_post_bind(struct end *e, struct ibv_mr *mr, bool *named);
/* Frees the windows. */
void window_close(struct end *e);

#endif
