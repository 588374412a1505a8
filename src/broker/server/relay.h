// relay.h - datagrams for programs of users other than the broker's: from the group's sockets to a channel of each program
// follows: udp(7) (UDP_GRO); broker/proto/proto.h (struct vb_relay_head)
// SPDX-License-Identifier: MIT
#ifndef VB_BROKER_SERVER_RELAY_H
#define VB_BROKER_SERVER_RELAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "broker/server/lanes.h"
#include "broker/proto/proto.h"

/*
 * A socket of the reuseport group is worth the whole port: its holder can choose, by a program of his, where every datagram
 * of the group goes. So it never leaves the user who owns the group. Programs of other users get their packets from the
 * process that owns the sockets, each over a channel of its own.
 */
#define VB_RELAY_BATCH 8
#define VB_RELAY_DATAGRAM 65536
#define VB_RELAY_OUT 64 /* messages that are handed over at once */

struct vb_relay {
	const struct vb_lane_group *group;
	int channel[VB_LANE_COUNT]; /* our end of a lane's; -1: none. The caller opens and closes them */
	bool crowded;               /* the sockets fill faster than we empty them */
	uint64_t relayed, dropped;  /* packets; dropped: for no channel, or one that is full */

	/* what waits to be handed over, all to one lane */
	uint32_t to, n;
	struct vb_relay_head head[VB_RELAY_OUT];
	struct iovec iov[VB_RELAY_OUT][2];
	struct mmsghdr out[VB_RELAY_OUT];
	uint32_t packets[VB_RELAY_OUT];

	struct mmsghdr in[VB_RELAY_BATCH];
	struct iovec in_iov[VB_RELAY_BATCH];
	struct sockaddr_storage from[VB_RELAY_BATCH];
	_Alignas(struct cmsghdr) char control[VB_RELAY_BATCH][256];
	uint8_t buffer[VB_RELAY_BATCH][VB_RELAY_DATAGRAM];
};

void vb_relay_init(struct vb_relay *r, const struct vb_lane_group *group);

/* A channel: *ours is only written to, *theirs only read. Nothing that the program does to its end blocks us or leaves
 * anything in ours. 0 or an errno. */
int vb_relay_channel(int *ours, int *theirs);

/* Takes a batch from the group's socket number i and hands it on. */
void vb_relay_socket(struct vb_relay *r, uint32_t i);

/* One datagram that came by socket number i, len bytes that are several packets where head->seg is smaller: each to the
 * channel of its lane. head: all but seg and id, which are set for each run of packets. The bytes have to stay until
 * vb_relay_flush. The entry for tests and the fuzzer, too. */
void vb_relay_datagram(struct vb_relay *r, uint32_t i, const struct vb_relay_head *head, const uint8_t *bytes, size_t len);
void vb_relay_flush(struct vb_relay *r);

#endif
