// relay.h - relays datagrams to programs of users other than the broker's: from the group's sockets to each program's channel
// follows: udp(7), UDP_GRO
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
 * A socket of the reuseport group controls the whole port: its holder can attach a program that chooses where every
 * datagram of the group goes. So no socket of the group is given to another user. Other users' programs get their
 * packets from the process that owns the sockets, each over a channel of its own.
 */
#define VB_RELAY_BATCH 8
#define VB_RELAY_DATAGRAM 65536
#define VB_RELAY_OUT 64 /* messages of one sendmmsg */

struct vb_relay {
	const struct vb_lane_group *group;
	int channel[VB_LANE_COUNT]; /* our end of each lane's channel; -1: none. The caller opens and closes them */
	bool crowded;               /* a socket fills faster than we read it */
	uint64_t relayed, dropped;  /* packets; dropped: no channel, or a full one */

	/* messages to be sent, all to one lane */
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

/* Makes a channel: *ours is only written to, *theirs only read. The program cannot block us or leave anything in our
 * end. Returns 0 or an errno. */
int vb_relay_channel(int *ours, int *theirs);

/* Relays a batch of datagrams from the group's socket number i. */
void vb_relay_socket(struct vb_relay *r, uint32_t i);

/* Relays one datagram of len bytes from socket number i. If head->seg is smaller than len it is several packets, and
 * each goes to its lane's channel. Every run of packets gets its own seg and id, the other members of head are
 * copied. The bytes must stay valid until vb_relay_flush. Also called by tests and the fuzzer. */
void vb_relay_datagram(struct vb_relay *r, uint32_t i, const struct vb_relay_head *head, const uint8_t *bytes,
                       size_t len);
void vb_relay_flush(struct vb_relay *r);

#endif
