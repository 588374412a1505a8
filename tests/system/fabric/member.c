// member.c - hosts of a fabric for a test: each is a process that does what the test says, and answers
// follows: ibv_attach_mcast(3), umad_send(3); IBA volume 1, 15.2.5.17 (MCMemberRecord)
// SPDX-License-Identifier: MIT
#include "member.h"
#include "need.h"

#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/umad.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RECEIVES = 128, SLOT = 40 + TEXT_MAX, SENDS = 64 };

static struct {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *scq, *rcq;
	struct ibv_qp *qp[QPS_MAX];
	struct ibv_mr *mr;
	unsigned qps;
	uint8_t *memory; /* a slot for what is sent, then those of the receives of each queue pair */
} me;

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	size_t size = (1 + QPS_MAX * RECEIVES) * (size_t)SLOT;

	need(list && list[0] && !strcmp(ibv_get_device_name(list[0]), "ib0"), "the first device is ib0");
	me.ctx = ibv_open_device(list[0]);
	need(me.ctx, "ibv_open_device");
	me.pd = ibv_alloc_pd(me.ctx);
	me.scq = ibv_create_cq(me.ctx, SENDS, NULL, NULL, 0);
	me.rcq = ibv_create_cq(me.ctx, QPS_MAX * RECEIVES, NULL, NULL, 0);
	me.memory = calloc(1, size);
	need(me.pd && me.scq && me.rcq && me.memory, "objects");
	me.mr = ibv_reg_mr(me.pd, me.memory, size, IBV_ACCESS_LOCAL_WRITE);
	need(me.mr, "ibv_reg_mr");
}

/* --- the subnet administrator --- */

/* 15.2.5.17: MGID, port GID, Q_Key, P_Key, traffic class, SL, flow label and join state: enough to make the group. */
static void fill_record(uint8_t *mad, const struct order *o, const umad_port_t *port)
{
	const uint64_t wanted = 1 | 2 | 4 | 1 << 6 | 1 << 7 | 1 << 12 | 1 << 13 | 1 << 16;
	uint8_t *data = mad + 56;
	uint64_t mask = htobe64(o->op == JOIN ? wanted : 1 | 2 | 1 << 16);
	uint32_t qkey = htobe32(o->qkey);
	uint16_t pkey = htobe16(o->pkey), attr = htobe16(0x38);

	memset(mad, 0, 256);
	mad[0] = 1;
	mad[1] = 3;
	mad[2] = 2;
	mad[3] = o->op == JOIN ? 0x02 : 0x15;
	mad[15] = 7;
	memcpy(mad + 16, &attr, sizeof(attr));
	memcpy(mad + 48, &mask, sizeof(mask));
	memcpy(data, o->gid.raw, 16);
	memcpy(data + 16, &port->gid_prefix, 8);
	memcpy(data + 24, &port->port_guid, 8);
	memcpy(data + 32, &qkey, sizeof(qkey));
	memcpy(data + 40, &pkey, sizeof(pkey));
	data[48] = o->join_state;
}

static void ask_sa(const struct order *o, struct reply *r)
{
	umad_port_t port;
	void *umad = umad_alloc(1, umad_size() + 256);
	int length = 256, fd = umad_open_port(NULL, 1), agent;

	need(umad && fd >= 0 && !umad_get_port(NULL, 1, &port), "umad_open_port");
	agent = umad_register(fd, 3, 2, 0, NULL);
	need(agent >= 0, "umad_register");
	uint8_t *mad = umad_get_mad(umad);

	fill_record(mad, o, &port);
	need(!umad_set_addr(umad, (int)port.sm_lid, 1, 0, (int)0x80010000), "umad_set_addr");
	need(!umad_send(fd, agent, umad, 256, 1000, 5), "umad_send");
	need(umad_recv(fd, umad, &length, 10000) >= 0, "umad_recv");
	r->rc = umad_status(umad) ? umad_status(umad) : mad[4] << 8 | mad[5];
	r->lid = (uint16_t)(mad[56 + 36] << 8 | mad[56 + 37]);
	umad_release_port(&port);
	umad_close_port(fd);
	umad_free(umad);
}

/* --- queue pairs --- */

static uint8_t *slot_of(uint64_t n)
{
	return me.memory + (1 + n) * SLOT;
}

static void post_receive(uint64_t n)
{
	struct ibv_sge sge = {(uintptr_t)slot_of(n), SLOT, me.mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = n, .sg_list = &sge, .num_sge = 1}, *bad;

	need(!ibv_post_recv(me.qp[n / RECEIVES], &wr, &bad), "ibv_post_recv");
}

static void ready(struct ibv_qp *qp, const struct order *o)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
	                        .path_mtu = IBV_MTU_2048,
	                        .dest_qp_num = o->qpn,
	                        .max_dest_rd_atomic = 1,
	                        .max_rd_atomic = 1,
	                        .min_rnr_timer = 12,
	                        .timeout = 12,
	                        .retry_cnt = 5,
	                        .rnr_retry = 7,
	                        .ah_attr = {.dlid = o->lid, .src_path_bits = o->path_bits, .port_num = 1}};
	bool rc = qp->qp_type == IBV_QPT_RC, ud = qp->qp_type == IBV_QPT_UD;
	int rtr = IBV_QP_STATE | (ud ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN);

	need(!ibv_modify_qp(qp, &a, rtr | (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)), "RTR");
	a.qp_state = IBV_QPS_RTS;
	need(!ibv_modify_qp(
	             qp, &a,
	             IBV_QP_STATE | IBV_QP_SQ_PSN |
	                     (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0)),
	     "RTS");
}

static void make(const struct order *o, struct reply *r)
{
	struct ibv_qp_init_attr_ex init = {.send_cq = me.scq,
	                                   .recv_cq = me.rcq,
	                                   .qp_type = o->type,
	                                   .cap = {SENDS, RECEIVES, 1, 1, 0},
	                                   .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
	                                   .pd = me.pd,
	                                   .create_flags = o->flags};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = o->qkey, .pkey_index = o->pkey_index};
	struct ibv_qp *qp = ibv_create_qp_ex(me.pd->context, &init);

	need(qp && me.qps < QPS_MAX, "ibv_create_qp");
	need(!ibv_modify_qp(qp, &a,
	                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
	                            (o->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)),
	     "INIT");
	r->qp = me.qps++;
	r->qpn = qp->qp_num;
	me.qp[r->qp] = qp;
	for (uint64_t i = 0; i < RECEIVES; i++)
		post_receive(r->qp * RECEIVES + i);
	if (o->type == IBV_QPT_UD)
		ready(qp, o);
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static bool await(struct ibv_cq *cq, int ms, struct ibv_wc *wc)
{
	int64_t end = now_ms() + ms;

	do {
		int n = ibv_poll_cq(cq, 1, wc);

		need(n >= 0, "ibv_poll_cq");
		if (n)
			return true;
		poll(NULL, 0, 1);
	} while (now_ms() < end);
	return false;
}

static void send_all(const struct order *o, struct reply *r)
{
	struct ibv_ah_attr av = {.dlid = o->lid,
	                         .port_num = 1,
	                         .is_global = o->gid.raw[0] != 0,
	                         .sl = 1,
	                         .grh = {.dgid = o->gid, .hop_limit = 3, .traffic_class = 5, .flow_label = 0x12345}};
	bool ud = me.qp[o->qp]->qp_type == IBV_QPT_UD;
	struct ibv_sge sge = {(uintptr_t)me.memory, o->length, me.mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
	                         .num_sge = 1,
	                         .opcode = o->imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
	                         .send_flags = IBV_SEND_SIGNALED,
	                         .imm_data = htonl(o->imm),
	                         .wr.ud = {ud ? ibv_create_ah(me.pd, &av) : NULL, o->qpn, o->qkey}},
	                   *bad;

	r->rc = ud && !wr.wr.ud.ah ? 1000 : 0;
	memcpy(me.memory, o->text, o->length);
	for (uint32_t posted = 0, done = 0; !r->rc && done < o->count;) {
		for (; posted < o->count && posted - done < SENDS; posted++)
			need(!ibv_post_send(me.qp[o->qp], &wr, &bad), "ibv_post_send");
		need(await(me.scq, 20000, &r->wc), "a send completes");
		r->rc = r->wc.status;
		done++;
	}
	if (ud && wr.wr.ud.ah)
		ibv_destroy_ah(wr.wr.ud.ah);
}

static void take(const struct order *o, struct reply *r)
{
	r->rc = !await(me.rcq, o->wait_ms, &r->wc);
	if (r->rc)
		return;
	const uint8_t *at = slot_of(r->wc.wr_id);

	r->qp = (unsigned)(r->wc.wr_id / RECEIVES);
	memcpy(r->grh, at, 40);
	if (r->wc.status == IBV_WC_SUCCESS && me.qp[r->qp]->qp_type != IBV_QPT_UD)
		memcpy(r->text, at, r->wc.byte_len);
	else if (r->wc.status == IBV_WC_SUCCESS)
		memcpy(r->text, at + 40, r->wc.byte_len - 40);
	if (r->wc.status == IBV_WC_SUCCESS)
		post_receive(r->wc.wr_id);
}

static void show_port(struct reply *r)
{
	struct ibv_port_attr a;

	need(!ibv_query_port(me.ctx, 1, &a), "ibv_query_port");
	r->lid = a.lid;
	r->violations = a.qkey_viol_cntr;
}

static void obey(const struct order *o, struct reply *r)
{
	switch (o->op) {
	case JOIN:
	case LEAVE:
		ask_sa(o, r);
		break;
	case MAKE:
		make(o, r);
		break;
	case ATTACH:
		r->rc = ibv_attach_mcast(me.qp[o->qp], &o->gid, o->lid);
		break;
	case DETACH:
		r->rc = ibv_detach_mcast(me.qp[o->qp], &o->gid, o->lid);
		break;
	case CONNECT:
		ready(me.qp[o->qp], o);
		break;
	case SEND:
		send_all(o, r);
		break;
	case TAKE:
		take(o, r);
		break;
	case PORT:
		show_port(r);
		break;
	case END:
		break;
	}
}

static void serve(int fd)
{
	static struct order o;

	need(!umad_init(), "umad_init");
	open_device();
	while (recv(fd, &o, sizeof(o), MSG_WAITALL) == sizeof(o) && o.op != END) {
		struct reply r = {0};

		obey(&o, &r);
		need(send(fd, &r, sizeof(r), 0) == sizeof(r), "an answer");
	}
	exit(0);
}

/* --- the test's end --- */

struct member member_start(const char *node)
{
	struct member m;
	int fd[2];

	fflush(stdout);
	need(!socketpair(AF_UNIX, SOCK_STREAM, 0, fd), "socketpair");
	m.pid = fork();
	m.fd = fd[0];
	need(m.pid >= 0, "fork");
	if (!m.pid) {
		close(fd[0]);
		setenv("VERBENA_NODE", node, 1);
		serve(fd[1]);
	}
	close(fd[1]);
	return m;
}

struct reply member_does(const struct member *m, const struct order *o)
{
	struct reply r;

	need(send(m->fd, o, sizeof(*o), MSG_NOSIGNAL) == sizeof(*o) &&
	             recv(m->fd, &r, sizeof(r), MSG_WAITALL) == sizeof(r),
	     "a member has ended");
	return r;
}

void member_end(struct member *m)
{
	const struct order o = {.op = END};
	int status;

	need(send(m->fd, &o, sizeof(o), MSG_NOSIGNAL) == sizeof(o), "a member has ended");
	close(m->fd);
	need(waitpid(m->pid, &status, 0) == m->pid && !status, "a member's end");
}
