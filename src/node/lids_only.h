// lids_only.h - does the program connect its queue pairs by LIDs alone
// follows: verbena(7), VERBENA_LIDS
// SPDX-License-Identifier: MIT
#ifndef VB_NODE_LIDS_ONLY_H
#define VB_NODE_LIDS_ONLY_H

#include <stdbool.h>

/* Does the executable of this process call ibv_modify_qp and ibv_query_port, by which it learns its LID, and no function of
 * verbs about GIDs? Then it cannot give an address a GRH, and needs adapters with LIDs. Programs that connect by rdma_cm
 * alone, as rping does, ask for no port. A library that the program loads is not looked at: false. */
bool vb_knows_lids_only(void);

#endif
