// reserve_host.h - a host that registers and reserves, with its two queues
// see: host.h
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_STORAGE_RESERVE_HOST_H
#define VB_TEST_STORAGE_RESERVE_HOST_H

#include "host.h"

struct reserver {
	struct host *admin, *io;
};

static inline struct host *reserver_queue(const char *subnqn, const char *hostnqn, uint8_t id, uint16_t qid,
                                          uint16_t cntlid)
{
	struct host *h = host_open();
	struct nv_sqe c = connect_command(h, qid, cntlid);

	memset(h->out + NV_CONNECT_AT_HOSTID, id, 16);
	strcpy((char *)h->out + NV_CONNECT_AT_SUBNQN, subnqn);
	strcpy((char *)h->out + NV_CONNECT_AT_HOSTNQN, hostnqn);
	SAME(host_do(h, c).status, 0);
	return h;
}

static inline struct reserver reserver_open(const char *subnqn, const char *hostnqn, uint8_t id)
{
	struct reserver v = {.admin = reserver_queue(subnqn, hostnqn, id, 0, NV_CNTLID_DYNAMIC)};

	SAME(property_set(v.admin, NV_PROP_CC, 0x460001, 0).status, 0);
	v.io = reserver_queue(subnqn, hostnqn, id, 1, v.admin->q.ctrl->id);
	v.io->count = 0;
	return v;
}

static inline void reserver_close(struct reserver *v)
{
	host_close(v->io);
	host_close(v->admin);
}

static inline uint16_t reserve_post(struct reserver *v, uint8_t opcode, uint32_t cdw10, uint64_t key, uint64_t other)
{
	nv_put64(v->io->out, key);
	nv_put64(v->io->out + 8, other);
	struct nv_sqe c = {.opcode = opcode,
	                   .nsid = 1,
	                   .sgl = by_transport(opcode == NV_IO_RESERVE_RELEASE ? 8 : 16),
	                   .cdw = {cdw10}};

	return host_post(v->io, c, 0);
}

/* The answer of a medium that answers at once. */
static inline uint16_t reserve_now(struct reserver *v, uint16_t cid)
{
	CHECK(host_answer(v->io, cid));
	uint16_t status = host_answer(v->io, cid)->status;

	v->io->count = 0;
	return status;
}

static inline uint16_t post_enter(struct reserver *v, uint64_t key)
{
	return reserve_post(v, NV_IO_RESERVE_REGISTER, 3u << 30, 0, key);
}

static inline uint16_t post_acquire(struct reserver *v, uint64_t key, uint8_t type)
{
	return reserve_post(v, NV_IO_RESERVE_ACQUIRE, (uint32_t)type << 8, key, 0);
}

static inline uint16_t post_preempt(struct reserver *v, uint64_t key, uint64_t victim, uint8_t type)
{
	return reserve_post(v, NV_IO_RESERVE_ACQUIRE, 2u | (uint32_t)type << 8, key, victim);
}

static inline uint16_t post_release(struct reserver *v, uint64_t key, uint8_t type)
{
	return reserve_post(v, NV_IO_RESERVE_RELEASE, (uint32_t)type << 8, key, 0);
}

static inline uint16_t post_clear(struct reserver *v, uint64_t key)
{
	return reserve_post(v, NV_IO_RESERVE_RELEASE, 1, key, 0);
}

#define enter(v, key) reserve_now(v, post_enter(v, key))
#define acquire(v, key, type) reserve_now(v, post_acquire(v, key, type))
#define preempt(v, key, victim, type) reserve_now(v, post_preempt(v, key, victim, type))
#define release(v, key, type) reserve_now(v, post_release(v, key, type))
#define clear(v, key) reserve_now(v, post_clear(v, key))

static inline uint16_t report(struct reserver *v, uint32_t length)
{
	return host_do(v->io, (struct nv_sqe){.opcode = NV_IO_RESERVE_REPORT,
	                                      .nsid = 1,
	                                      .sgl = by_transport(length),
	                                      .cdw = {length / 4 - 1, 1}})
	        .status;
}

#endif
