// meeting.h - functions that peer.c, meeting.c and announce.c share
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#ifndef VB_PATH_LOCAL_MEETING_H
#define VB_PATH_LOCAL_MEETING_H

#include "node/io.h"

/* Handles the introduction of a new or known process. Takes ownership of the descriptors. Returns the peer, or NULL.
 * Progress thread. peer.c */
struct vb_peer *vb_peer_meet(struct vb_node *node, const struct vb_peer_info *info);
/* Closes the descriptors. peer.c */
void vb_peer_info_close(const struct vb_peer_info *info);

/* Called when the node ends, after its progress thread. meeting.c */
void vb_meetings_free(struct vb_io *io);

#endif
