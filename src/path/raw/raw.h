// raw.h - raw packet queue pairs: whole Ethernet frames, through packet sockets
// follows: ibv_create_flow(3); packet(7)
// SPDX-License-Identifier: MIT
#ifndef VB_PATH_RAW_RAW_H
#define VB_PATH_RAW_RAW_H

#include <pthread.h>

#include "core/arrival.h"
#include "core/flow.h"
#include "frame/vlan.h"
#include "path/path.h"

#define VB_RAW_FRAME_MAX 65550u /* the longest frame: lo's MTU and an Ethernet header */
#define VB_RAW_STAGE (2 * VB_RAW_FRAME_MAX)
#define VB_RAW_BATCH 16u /* frames per system call */

/* The part of a raw packet queue pair: a packet socket of its own, from creation to destruction. Under progress, but
 * the socket also sends, under sq_lock. */
struct vb_raw_path {
	struct vb_qp *qp;
	struct vb_raw_path *next, **prev; /* of the process's */
	pthread_mutex_t lock;             /* what the socket listens to: listens (read under progress) and joined */
	int fd;                           /* -1 in a child of fork() */
	const struct vb_device *dev;
	int ifindex;
	bool loopback;                    /* what it sends comes back as received, so what is sent is not looked at */
	bool listens;                     /* it has rules: the socket receives */
	atomic_bool cut;                  /* a rule of fault injection has the port down: all frames are lost */
	uint64_t sent_frames, sent_bytes; /* under sq_lock, as the next two */
	uint8_t *stage;                   /* frames that are built for one system call; NULL: it sends nothing */
	uint32_t segmented;               /* payload of the next request that was sent already */
	uint64_t received_frames, received_bytes, unclaimed, no_receive;
	struct vb_flow_wants joined; /* the addresses that the interface receives for it */
	/* a received frame, between room for a VLAN tag and for an FCS */
	uint8_t frame[VB_VLAN_TAG_LEN + VB_RAW_FRAME_MAX + VB_FCS_LEN];
};

struct vb_raw_host {
	struct vb_raw_path *paths;
};

/* socket.c: receives what its rules want. Returns 0 or an errno value; then nothing has changed. Under path->lock, no spin
 * lock held: the kernel may wait for other users of its interfaces. */
int vb_raw_listen(struct vb_raw_path *path, const struct vb_flow_wants *wants);
/* path.c: the socket begins to receive, or is about to stop. Under path->lock. */
void vb_raw_listens(struct vb_raw_path *path, bool listens);
/* A packet socket that receives nothing yet, or a negative errno value. */
int vb_raw_socket(const struct vb_netdev *nd);
/* segment.c: sends the frames of a TSO request, or what is left of them, and counts them. 0: all are sent. EAGAIN: the
 * socket has no room now. Else the errno value of the failed send, or ENOMSG: these are no headers of TCP. Under sq_lock. */
int vb_raw_send_segments(struct vb_qp *qp, struct vb_swqe *w);
/* Receives one frame, in path->frame. False: there is none; frames that the socket cannot hand out are skipped. */
bool vb_raw_take(struct vb_raw_path *path, struct vb_arrival *a);

#endif
