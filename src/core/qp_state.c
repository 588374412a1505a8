// qp_state.c - the allowed changes of state, and the attributes that each requires or allows
// follows: IBA volume 1, 11.2.5.2, tables 91 and 92 (modify queue pair), annex A14 (XRC); the Linux kernel's rule where
// they are silent, as about the rate limit
// SPDX-License-Identifier: MIT
#include <errno.h>

#include "core/qp.h"

#define PKEY IBV_QP_PKEY_INDEX
#define PORT IBV_QP_PORT
#define QKEY IBV_QP_QKEY
#define ACCESS IBV_QP_ACCESS_FLAGS
#define CUR IBV_QP_CUR_STATE
#define ALT IBV_QP_ALT_PATH
#define MIG IBV_QP_PATH_MIG_STATE
#define NOTIFY IBV_QP_EN_SQD_ASYNC_NOTIFY
#define RNR IBV_QP_MIN_RNR_TIMER
#define PATH (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define RATE IBV_QP_RATE_LIMIT
#define RETRY (IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY)

struct masks {
	int required, optional;
};

struct change {
	bool valid;
	struct masks rc, uc, ud;
	struct masks ini, tgt; /* XRC_SEND (initiator), XRC_RECV (target) */
};

#define ANY                   \
	{                     \
		.valid = true \
	} /* with no attribute but the state */

/* An empty entry is a change that is not allowed. */
// clang-format off
static const struct change changes[IBV_QPS_ERR + 1][IBV_QPS_ERR + 1] = {
	[IBV_QPS_RESET] = {
		[IBV_QPS_RESET] = ANY,
		[IBV_QPS_INIT] = {true,
			.rc = {PKEY | PORT | ACCESS, 0},
			.uc = {PKEY | PORT | ACCESS, 0},
			.ud = {PKEY | PORT | QKEY, 0},
			.ini = {PKEY | PORT | ACCESS, 0},
			.tgt = {PKEY | PORT | ACCESS, 0}},
	},
	[IBV_QPS_INIT] = {
		[IBV_QPS_RESET] = ANY,
		[IBV_QPS_INIT] = {true,
			.rc = {0, PKEY | PORT | ACCESS},
			.uc = {0, PKEY | PORT | ACCESS},
			.ud = {0, PKEY | PORT | QKEY},
			.ini = {0, PKEY | PORT | ACCESS},
			.tgt = {0, PKEY | PORT | ACCESS}},
		[IBV_QPS_RTR] = {true,
			.rc = {PATH | RNR | IBV_QP_MAX_DEST_RD_ATOMIC, ALT | ACCESS | PKEY},
			.uc = {PATH, ALT | ACCESS | PKEY},
			.ud = {0, PKEY | QKEY},
			/* deviates: the kernel's table has no responder's attributes for an initiator; perftest sets them */
			.ini = {PATH, ALT | ACCESS | PKEY | RNR | IBV_QP_MAX_DEST_RD_ATOMIC},
			.tgt = {PATH | RNR | IBV_QP_MAX_DEST_RD_ATOMIC, ALT | ACCESS | PKEY}},
		[IBV_QPS_ERR] = ANY,
	},
	[IBV_QPS_RTR] = {
		[IBV_QPS_RESET] = ANY,
		[IBV_QPS_RTS] = {true,
			.rc = {RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC, CUR | ALT | ACCESS | RNR | MIG | RATE},
			.uc = {IBV_QP_SQ_PSN, CUR | ALT | ACCESS | MIG | RATE},
			.ud = {IBV_QP_SQ_PSN, CUR | QKEY | RATE},
			.ini = {RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC, CUR | ALT | ACCESS | MIG | RATE},
			/* deviates: the kernel's table has no requester's attributes for a target; perftest sets them */
			.tgt = {IBV_QP_TIMEOUT | IBV_QP_SQ_PSN,
				CUR | ALT | ACCESS | RNR | MIG | RETRY | IBV_QP_MAX_QP_RD_ATOMIC}},
		[IBV_QPS_ERR] = ANY,
	},
	[IBV_QPS_RTS] = {
		[IBV_QPS_RESET] = ANY,
		[IBV_QPS_RTS] = {true,
			.rc = {0, CUR | ACCESS | ALT | MIG | RNR | RATE},
			.uc = {0, CUR | ACCESS | ALT | MIG | RATE},
			.ud = {0, CUR | QKEY | RATE},
			.ini = {0, CUR | ACCESS | ALT | MIG | RATE},
			.tgt = {0, CUR | ACCESS | ALT | MIG | RNR}},
		[IBV_QPS_SQD] = {true, .rc = {0, NOTIFY}, .uc = {0, NOTIFY}, .ud = {0, NOTIFY}, .ini = {0, NOTIFY}, .tgt = {0, NOTIFY}},
		[IBV_QPS_ERR] = ANY,
	},
	[IBV_QPS_SQD] = {
		[IBV_QPS_RESET] = ANY,
		[IBV_QPS_RTS] = {true,
			.rc = {0, CUR | ALT | ACCESS | RNR | MIG},
			.uc = {0, CUR | ALT | ACCESS | MIG},
			.ud = {0, CUR | QKEY},
			.ini = {0, CUR | ALT | ACCESS | MIG},
			.tgt = {0, CUR | ALT | ACCESS | RNR | MIG}},
		[IBV_QPS_SQD] = {true,
			.rc = {0, PORT | IBV_QP_AV | RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | ALT | ACCESS |
					  PKEY | RNR | MIG},
			.uc = {0, IBV_QP_AV | ALT | ACCESS | PKEY | MIG},
			.ud = {0, PKEY | QKEY},
			.ini = {0, PORT | IBV_QP_AV | RETRY | IBV_QP_MAX_QP_RD_ATOMIC | ALT | ACCESS | PKEY | MIG},
			.tgt = {0, PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_MAX_DEST_RD_ATOMIC | ALT | ACCESS | PKEY | RNR | MIG}},
		[IBV_QPS_ERR] = ANY,
	},
	[IBV_QPS_SQE] = {
		[IBV_QPS_RESET] = ANY,
		[IBV_QPS_RTS] = {true, .uc = {0, CUR | ACCESS}, .ud = {0, CUR | QKEY}},
		[IBV_QPS_ERR] = ANY,
	},
	[IBV_QPS_ERR] = {
		[IBV_QPS_RESET] = ANY,
		[IBV_QPS_ERR] = ANY,
	},
};
// clang-format on

/*
 * iWARP: not the program but the connection takes the queue pair to RTS. Attributes without a meaning are ignored. RFC
 * 5040 has no states, and Linux's siw does the same. Programs request RTR because rdma_init_qp_attr suggests it; that
 * does not change the state.
 */
static const bool iwarp_changes[IBV_QPS_ERR + 1][IBV_QPS_ERR + 1] = {
        [IBV_QPS_RESET] = {[IBV_QPS_RESET] = true, [IBV_QPS_INIT] = true},
        [IBV_QPS_INIT] = {[IBV_QPS_RESET] = true, [IBV_QPS_INIT] = true, [IBV_QPS_RTR] = true, [IBV_QPS_ERR] = true},
        [IBV_QPS_RTR] = {[IBV_QPS_RESET] = true, [IBV_QPS_RTR] = true, [IBV_QPS_ERR] = true},
        [IBV_QPS_RTS] = {[IBV_QPS_RESET] = true,
                         [IBV_QPS_RTR] = true,
                         [IBV_QPS_RTS] = true,
                         [IBV_QPS_SQD] = true,
                         [IBV_QPS_ERR] = true},
        [IBV_QPS_SQD] = {[IBV_QPS_RESET] = true, [IBV_QPS_RTS] = true, [IBV_QPS_SQD] = true, [IBV_QPS_ERR] = true},
        [IBV_QPS_ERR] = {[IBV_QPS_RESET] = true, [IBV_QPS_ERR] = true},
};

int vb_qp_check_iwarp(enum ibv_qp_state cur, enum ibv_qp_state next)
{
	if ((unsigned)cur > IBV_QPS_ERR || (unsigned)next > IBV_QPS_ERR)
		return EINVAL;
	return iwarp_changes[cur][next] ? 0 : EINVAL;
}

static const struct masks *masks_of(const struct change *c, enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC:
		return &c->rc;
	case IBV_QPT_UC:
		return &c->uc;
	case IBV_QPT_XRC_SEND:
		return &c->ini;
	case IBV_QPT_XRC_RECV:
		return &c->tgt;
	default:
		return &c->ud;
	}
}

int vb_qp_check_mask(enum ibv_qp_type type, enum ibv_qp_state cur, enum ibv_qp_state next, int mask)
{
	if ((unsigned)cur > IBV_QPS_ERR || (unsigned)next > IBV_QPS_ERR)
		return EINVAL;
	const struct change *c = &changes[cur][next];

	if (type == IBV_QPT_RAW_PACKET) { /* which has no attributes but its port and its rate */
		int required = cur == IBV_QPS_RESET && next == IBV_QPS_INIT ? PORT : 0, rate = c->ud.optional & RATE;

		return c->valid && (mask & ~(IBV_QP_STATE | rate)) == required ? 0 : EINVAL;
	}
	const struct masks *m = masks_of(c, type);

	if (!c->valid || (mask & m->required) != m->required)
		return EINVAL;
	return mask & ~(m->required | m->optional | IBV_QP_STATE) ? EINVAL : 0;
}
