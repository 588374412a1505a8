// fuzz_broker.c - arbitrary messages from programs of three users, with and without descriptors, to the broker's handler
// follows: llvm.org/docs/LibFuzzer.html
// see: src/broker/proto/proto.h
// build: tests/fuzz/run 60 broker
// SPDX-License-Identifier: MIT
#include "broker/server/session.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#define PROGRAMS 4
#define OTHER_UID 47111 /* program 2 has two connections, program 3 one more */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int seg_fd = -1, doorbell_fd, wake_fd;

static struct vb_broker broker;
static struct vb_session *session[PROGRAMS];
static uint32_t session_gen[PROGRAMS];
static int far_end[PROGRAMS];

static void make_descriptors(void)
{
	seg_fd = memfd_create("seg", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	doorbell_fd = memfd_create("doorbell", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (ftruncate(seg_fd, 4096) || fcntl(seg_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE) ||
	    ftruncate(doorbell_fd, 4096) || fcntl(doorbell_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
		abort();
}

/* A session may have been closed by itself or by another one, so look it up as the loop does. */
static struct vb_session *program(unsigned i)
{
	for (uint32_t s = 0; session[i] && s < VB_MAX_SESSIONS; s++)
		if (broker.sessions[s] == session[i] && broker.sessions[s]->gen == session_gen[i])
			return session[i];
	if (far_end[i] >= 0)
		close(far_end[i]);
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair))
		abort();
	far_end[i] = pair[1];
	session[i] = NULL;
	if (vb_session_open(&broker, pair[0], &session[i]))
		abort();
	session_gen[i] = session[i]->gen;
	if (i >= 2) {
		session[i]->foreign = true;
		session[i]->uid = OTHER_UID + i - 2;
	}
	return session[i];
}

static void drain(unsigned i)
{
	char buf[VB_MAX_MSG];

	while (far_end[i] >= 0 && recv(far_end[i], buf, sizeof(buf), MSG_DONTWAIT) > 0)
		;
}

/* Each binding belongs to a member, and can be found in both tables. */
static void check_gsi(void)
{
	uint32_t members = 0, by_port = 0, by_id = 0;

	for (uint32_t i = 0; i < VB_MAX_SESSIONS; i++)
		members += broker.sessions[i] && broker.sessions[i]->gsi;
	if (members != (broker.gsi ? broker.gsi->members : 0))
		abort();
	if (!broker.gsi || !broker.gsi->services.n)
		return;
	for (uint32_t i = 0; i < VB_PORTS; i++)
		for (const struct vb_binding *s = broker.gsi->services.by_port[i]; s; s = s->next_port, by_port++)
			if (!broker.holder[s->lane] || !broker.holder[s->lane]->gsi || !s->port)
				abort();
	for (uint32_t i = 0; i < VB_SERVICE_BUCKETS; i++)
		for (const struct vb_binding *s = broker.gsi->services.by_id[i]; s; s = s->next_id)
			by_id++;
	if (by_port != broker.gsi->services.n || by_id != by_port)
		abort();
}

/* Programs of two users must not meet. */
static void check_users(void)
{
	for (uint32_t i = 1; i < VB_LANE_COUNT; i++) {
		const struct vb_session *s = broker.holder[i];

		if (!s)
			continue;
		if (broker.table.lanes[i].uid != s->uid)
			abort();
		for (uint32_t other = 1; other < VB_LANE_COUNT; other++) {
			const struct vb_session *o = broker.holder[other];

			if (o && o->uid != s->uid && vb_lane_set_has(&s->introduce, other))
				abort();
		}
		for (uint32_t a = 0; a < s->nanswers; a++)
			if (!s->answers[a].err && broker.holder[s->answers[a].lane] &&
			    broker.table.lanes[s->answers[a].lane].incarnation == s->answers[a].incarnation &&
			    broker.holder[s->answers[a].lane]->uid != s->uid)
				abort();
	}
}

/* Checks the invariants after every message. */
static void check(void)
{
	uint32_t held = 0, reserved = 0, sessions = 0, pending = 0, parked = 0;

	for (uint32_t i = 0; i < VB_LANE_COUNT; i++) {
		held += broker.table.lanes[i].state == VB_LANE_HELD;
		reserved += broker.table.lanes[i].state == VB_LANE_RESERVED;
		if ((broker.table.lanes[i].state == VB_LANE_HELD) != (broker.holder[i] != NULL))
			abort();
		if (broker.holder[i] && broker.holder[i]->lane != i)
			abort();
	}
	for (uint32_t i = 0; i < VB_MAX_SESSIONS; i++) {
		const struct vb_session *s = broker.sessions[i];
		if (!s)
			continue;
		sessions++;
		pending += !s->lane;
		if (s->nanswers + s->nparked > VB_MAX_ANSWERS + VB_MAX_PARKED_EACH)
			abort();
		parked += s->nparked;
	}
	if (held != broker.table.held || reserved != broker.table.reserved || sessions != broker.nsessions ||
	    pending != broker.npending || held + pending != sessions || parked != broker.nparked)
		abort();
	check_gsi();
	check_users();
	for (const struct vb_parked *p = broker.parked; p; p = p->next)
		parked--;
	if (parked || broker.holder[0] || broker.hold.n)
		abort();
}

static int some_fds(unsigned kind, int fds[VB_MAX_FDS])
{
	const int good[3] = {seg_fd, doorbell_fd, wake_fd};
	int n = kind & 4 ? 3 : (int)(kind & 3);

	for (int i = 0; i < n; i++)
		fds[i] = dup(good[(kind & 8 ? i + 1 : i) % 3]);
	return n;
}

/* Gives the message the form of a MAD from and to addresses that the program announces, to reach the code behind the
 * checks. */
static size_t shape_mad(const struct vb_session *s, uint8_t msg[VB_MAX_MSG], size_t len)
{
	static const uint8_t gid[16] = {0xfe, 0x80, [15] = 1};
	struct vb_msg_cm_mad m = {0};

	memcpy(&m, msg, len < sizeof(m) ? len : sizeof(m));
	m.head.len = sizeof(m);
	if (s->lane)
		vb_table_set_gids(&broker.table, s->lane, &gid, 1);
	memcpy(m.local, gid, sizeof(gid));
	memcpy(m.remote, gid, sizeof(gid));
	memcpy(m.mad, (const uint8_t[]){1, 7, 2, 3}, 4);
	m.mad[16] = 0;
	m.mad[17] = 0x10 | m.mad[17] % 16;
	memcpy(msg, &m, sizeof(m));
	return sizeof(m);
}

/* Names one of a few connections of the program, with another program that announces its address. */
static size_t shape_at_death(const struct vb_session *s, uint8_t msg[VB_MAX_MSG], size_t len)
{
	static const uint8_t gid[16] = {0xfe, 0x80, [15] = 1};
	struct vb_msg_cm_at_death m = {0};

	memcpy(&m, msg, len < sizeof(m) ? len : sizeof(m));
	m.head.len = sizeof(m);
	if (s->lane)
		vb_table_set_gids(&broker.table, s->lane, &gid, 1);
	memcpy(m.local, gid, sizeof(gid));
	memcpy(m.remote, gid, sizeof(gid));
	m.local_id = s->lane << 22 | m.local_id % 8;
	m.remote_id = (m.remote_id % 8) << 22 | 1;
	memcpy(msg, &m, sizeof(m));
	return sizeof(m);
}

/* Names one of a few bindings, so that programs conflict. */
static size_t shape_bind(uint8_t msg[VB_MAX_MSG], size_t len)
{
	static const uint16_t spaces[] = {0x106, 0x111, 0x2, 9};
	struct vb_msg_cm_bind m = {0};

	memcpy(&m, msg, len < sizeof(m) ? len : sizeof(m));
	m.head.len = sizeof(m);
	m.id %= 8;
	m.ifindex %= 3;
	m.port_space = spaces[m.port_space % 4];
	m.port = m.port % 8 ? (uint16_t)(2000 + m.port % 8) : 0;
	memset(m.local, 0, m.local[0] % 2 ? sizeof(m.local) : sizeof(m.local) - 1);
	memcpy(msg, &m, sizeof(m));
	return sizeof(m);
}

static size_t shape_binding(uint8_t msg[VB_MAX_MSG], size_t len)
{
	struct vb_msg_cm_binding m = {0};

	memcpy(&m, msg, len < sizeof(m) ? len : sizeof(m));
	m.head.len = sizeof(m);
	m.id %= 8;
	memcpy(msg, &m, sizeof(m));
	return sizeof(m);
}

static size_t shape(const struct vb_session *s, uint8_t type, uint8_t msg[VB_MAX_MSG], size_t len)
{
	switch (type) {
	case VB_MSG_CM_SEND:
		return shape_mad(s, msg, len);
	case VB_MSG_CM_AT_DEATH:
		return shape_at_death(s, msg, len);
	case VB_MSG_CM_BIND:
		return shape_bind(msg, len);
	case VB_MSG_CM_LISTEN:
	case VB_MSG_CM_UNBIND:
		return shape_binding(msg, len);
	default:
		return len;
	}
}

static void attach(struct vb_session *s)
{
	struct vb_msg_attach m = {.head = {.type = VB_MSG_ATTACH, .version = VB_PROTO_VERSION, .len = sizeof(m)}};
	const int fds[3] = {dup(seg_fd), dup(doorbell_fd), dup(wake_fd)};

	if (!vb_session_handle(&broker, s, &m, sizeof(m), fds, 3))
		abort();
	vb_session_flush(&broker, s);
}

/* Input: records of {program and flags, descriptors, length, bytes}. Flag 0x10 makes the head valid, to reach the code
 * behind the first check; 0x20 lets the program read; 0x40 ends it; 0x80 reserves a lane for an earlier program; 0x08
 * attaches the program. Flag 0x20 in the descriptors byte gives messages about queue pair 1 their form. */
static size_t one(const uint8_t *data, size_t size)
{
	static uint8_t msg[VB_MAX_MSG];
	unsigned i = data[0] % PROGRAMS;
	size_t len = (size_t)data[2] | (size_t)(data[1] & 0x10) << 4;
	int fds[VB_MAX_FDS];

	if (len > size - 3)
		len = size - 3;
	size_t used = len;
	memcpy(msg, data + 3, len);
	if (data[0] & 0x20)
		drain(i);
	if (data[0] & 0x80 && len >= 2)
		vb_table_reserve(&broker.table, msg[1] % 16, msg[1] & 16 ? OTHER_UID : geteuid(), 1 + msg[0] % 4);
	struct vb_session *s = program(i);
	if (data[0] & 0x08 && !s->lane)
		attach(s);
	if (data[0] & 0x10 && len >= sizeof(struct vb_msg_head)) {
		static const uint8_t types[] = {0,
		                                VB_MSG_ATTACH,
		                                VB_MSG_SET_GIDS,
		                                VB_MSG_MEET,
		                                VB_MSG_STATUS,
		                                VB_MSG_DETACH,
		                                VB_MSG_ROCE,
		                                VB_MSG_CM_OPEN,
		                                VB_MSG_CM_CLOSE,
		                                VB_MSG_CM_SEND,
		                                VB_MSG_CM_BIND,
		                                VB_MSG_CM_LISTEN,
		                                VB_MSG_CM_UNBIND,
		                                VB_MSG_CM_AT_DEATH,
		                                VB_MSG_ROCE_GROUP};
		struct vb_msg_head head = {
		        .type = types[msg[0] % sizeof(types)], .version = VB_PROTO_VERSION, .len = (uint32_t)len};
		memcpy(msg, &head, sizeof(head));
		if (data[1] & 0x20)
			len = shape(s, head.type, msg, len);
	}
	if (data[0] & 0x40) {
		vb_session_close(&broker, s, true);
	} else if (s->interest & 1) {
		int n = some_fds(data[1], fds);
		if (!vb_session_handle(&broker, s, msg, len, fds, n))
			vb_session_close(&broker, s, !s->detached);
		else
			vb_session_flush(&broker, s);
	} else {
		vb_session_flush(&broker, s);
	}
	check();
	return 3 + used;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vb_broker_config config = {.lock_fd = -1, .ready_fd = -1, .stop_fd = -1, .lanes = VB_LANES_NONE};

	if (seg_fd < 0)
		make_descriptors();
	if (vb_broker_init(&broker, &config))
		abort();
	vb_table_close(&broker.table);
	vb_table_init(&broker.table, 1); /* not a random lane: the same input must have the same effect */
	memset(session, 0, sizeof(session));
	memset(far_end, -1, sizeof(far_end));
	while (size > 3) {
		size_t used = one(data, size);
		data += used;
		size -= used;
	}
	vb_broker_fini(&broker, false);
	for (unsigned i = 0; i < PROGRAMS; i++)
		if (far_end[i] >= 0)
			close(far_end[i]);
	int probe = dup(seg_fd);
	if (probe > 64) /* each input would leave a descriptor open */
		abort();
	close(probe);
	return 0;
}
