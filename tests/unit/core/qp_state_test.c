// qp_state_test.c - the attribute masks of ibv_modify_qp, compared with the specification's tables
// follows: IBA volume 1, tables 91 and 92; the Linux kernel's ib_modify_qp_is_ok
// SPDX-License-Identifier: MIT
#include "harness.h"

#include "core/qp.h"

/* One line for each type and transition: required and optional attributes, by bit number as in enum
 * ibv_qp_attr_mask. */
static const struct row {
	enum ibv_qp_type type;
	enum ibv_qp_state cur, next;
	int required, optional;
} rows[] = {
        {IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, 0x38, 0},
        {IBV_QPT_UC, IBV_QPS_RESET, IBV_QPS_INIT, 0x38, 0},
        {IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT, 0x70, 0},
        {IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_INIT, 0, 0x38},
        {IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_INIT, 0, 0x38},
        {IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_INIT, 0, 0x70},
        {IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, 0x129180, 0x4018},
        {IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_RTR, 0x101180, 0x4018},
        {IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, 0, 0x50},
        {IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, 0x12e00, 0x204c00a},
        {IBV_QPT_UC, IBV_QPS_RTR, IBV_QPS_RTS, 0x10000, 0x204400a},
        {IBV_QPT_UD, IBV_QPS_RTR, IBV_QPS_RTS, 0x10000, 0x2000042},
        {IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RTS, 0, 0x204c00a},
        {IBV_QPT_UC, IBV_QPS_RTS, IBV_QPS_RTS, 0, 0x204400a},
        {IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_RTS, 0, 0x2000042},
        {IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_SQD, 0, 0x4},
        {IBV_QPT_UC, IBV_QPS_RTS, IBV_QPS_SQD, 0, 0x4},
        {IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_SQD, 0, 0x4},
        {IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_RTS, 0, 0x4c00a},
        {IBV_QPT_UC, IBV_QPS_SQD, IBV_QPS_RTS, 0, 0x4400a},
        {IBV_QPT_UD, IBV_QPS_SQD, IBV_QPS_RTS, 0, 0x42},
        {IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_SQD, 0, 0x6eeb8},
        {IBV_QPT_UC, IBV_QPS_SQD, IBV_QPS_SQD, 0, 0x44098},
        {IBV_QPT_UD, IBV_QPS_SQD, IBV_QPS_SQD, 0, 0x50},
        {IBV_QPT_RC, IBV_QPS_SQE, IBV_QPS_RTS, 0, 0},
        {IBV_QPT_UC, IBV_QPS_SQE, IBV_QPS_RTS, 0, 0xa},
        {IBV_QPT_UD, IBV_QPS_SQE, IBV_QPS_RTS, 0, 0x42},
        {IBV_QPT_XRC_SEND, IBV_QPS_RESET, IBV_QPS_INIT, 0x38, 0},
        {IBV_QPT_XRC_RECV, IBV_QPS_RESET, IBV_QPS_INIT, 0x38, 0},
        {IBV_QPT_XRC_SEND, IBV_QPS_INIT, IBV_QPS_INIT, 0, 0x38},
        {IBV_QPT_XRC_RECV, IBV_QPS_INIT, IBV_QPS_INIT, 0, 0x38},
        {IBV_QPT_XRC_SEND, IBV_QPS_INIT, IBV_QPS_RTR, 0x101180, 0x2c018},
        {IBV_QPT_XRC_RECV, IBV_QPS_INIT, IBV_QPS_RTR, 0x129180, 0x4018},
        {IBV_QPT_XRC_SEND, IBV_QPS_RTR, IBV_QPS_RTS, 0x12e00, 0x204400a},
        {IBV_QPT_XRC_RECV, IBV_QPS_RTR, IBV_QPS_RTS, 0x10200, 0x4ec0a},
        {IBV_QPT_XRC_SEND, IBV_QPS_RTS, IBV_QPS_RTS, 0, 0x204400a},
        {IBV_QPT_XRC_RECV, IBV_QPS_RTS, IBV_QPS_RTS, 0, 0x4c00a},
        {IBV_QPT_XRC_SEND, IBV_QPS_RTS, IBV_QPS_SQD, 0, 0x4},
        {IBV_QPT_XRC_RECV, IBV_QPS_RTS, IBV_QPS_SQD, 0, 0x4},
        {IBV_QPT_XRC_SEND, IBV_QPS_SQD, IBV_QPS_RTS, 0, 0x4400a},
        {IBV_QPT_XRC_RECV, IBV_QPS_SQD, IBV_QPS_RTS, 0, 0x4c00a},
        {IBV_QPT_XRC_SEND, IBV_QPS_SQD, IBV_QPS_SQD, 0, 0x46eb8},
        {IBV_QPT_XRC_RECV, IBV_QPS_SQD, IBV_QPS_SQD, 0, 0x6c2b8},
        {IBV_QPT_XRC_SEND, IBV_QPS_SQE, IBV_QPS_RTS, 0, 0},
        {IBV_QPT_XRC_RECV, IBV_QPS_SQE, IBV_QPS_RTS, 0, 0},
};

static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV};

static const struct row *find(enum ibv_qp_type type, enum ibv_qp_state cur, enum ibv_qp_state next)
{
	static const struct row any;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (rows[i].type == type && rows[i].cur == cur && rows[i].next == next)
			return &rows[i];
	/* every state may go to RESET, and every state but RESET to ERR, without attributes */
	return next == IBV_QPS_RESET || (next == IBV_QPS_ERR && cur != IBV_QPS_RESET) ? &any : NULL;
}

static void check_row(enum ibv_qp_type t, enum ibv_qp_state c, enum ibv_qp_state n, const struct row *r)
{
	CHECK(!vb_qp_check_mask(t, c, n, r->required));
	CHECK(!vb_qp_check_mask(t, c, n, r->required | IBV_QP_STATE));
	CHECK(!vb_qp_check_mask(t, c, n, r->required | r->optional | IBV_QP_STATE));
	for (int bit = 1; bit < 31; bit++) {
		int m = 1 << bit;

		if (r->required & m)
			CHECK(vb_qp_check_mask(t, c, n, r->required & ~m) == EINVAL);
		else if (r->optional & m)
			CHECK(!vb_qp_check_mask(t, c, n, r->required | m));
		else
			CHECK(vb_qp_check_mask(t, c, n, r->required | m) == EINVAL);
	}
}

static void every_change_takes_its_attributes_and_no_others(void)
{
	for (int t = 0; t < 5; t++)
		for (int c = 0; c <= IBV_QPS_ERR; c++)
			for (int n = 0; n <= IBV_QPS_ERR; n++) {
				const struct row *r = find(types[t], c, n);

				if (r) {
					check_row(types[t], c, n, r);
					continue;
				}
				for (int m = 0; m < 1 << 21; m += 7)
					CHECK(vb_qp_check_mask(types[t], c, n, m) == EINVAL);
			}
}

static void states_out_of_range_are_refused(void)
{
	CHECK(vb_qp_check_mask(IBV_QPT_RC, IBV_QPS_UNKNOWN, IBV_QPS_RESET, 0) == EINVAL);
	CHECK(vb_qp_check_mask(IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_UNKNOWN, 0) == EINVAL);
	CHECK(vb_qp_check_mask(IBV_QPT_RC, -1, IBV_QPS_RESET, 0) == EINVAL);
}

/* The attributes that perftest and the pingpong programs use (seen with strace). */
static void well_known_programs_get_through(void)
{
	CHECK(!vb_qp_check_mask(IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT, 0x39));
	CHECK(!vb_qp_check_mask(IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, 0x129181));
	CHECK(!vb_qp_check_mask(IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, 0x12e01));
}

int main(void)
{
	RUN(every_change_takes_its_attributes_and_no_others);
	RUN(states_out_of_range_are_refused);
	RUN(well_known_programs_get_through);
}
