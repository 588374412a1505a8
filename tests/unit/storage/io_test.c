// io_test.c - I/O commands: every error, requests to the backend, fused commands, ending connections
// follows: NVM Express Base 1.4, chapter 6
// SPDX-License-Identifier: MIT
#include <errno.h>

#include "host.h"

#define DNR(x) ((x) | NV_DNR)

static struct medium *m;
static struct host *admin, *h;

static void up(uint32_t memory)
{
	target_open(memory);
	m = medium_open(8 << 20, 512);
	medium_add(m, 1);
	admin = host_admin();
	h = host_io(admin, 1);
}

static void down(void)
{
	host_close(h);
	host_close(admin);
	target_close();
	CHECK(m->closed && !m->first);
	free(m->bytes);
	free(m);
}

static void what_is_written_is_read(void)
{
	up(16 << 20);
	for (uint32_t i = 0; i < 8192; i++)
		h->out[i] = (uint8_t)(i * 7);
	SAME(host_do(h, io_command(NV_IO_WRITE, 100, 16)).status, 0);
	CHECK(!memcmp(m->bytes + 51200, h->out, 8192));
	struct nv_sqe c = io_command(NV_IO_WRITE, 200, 16);

	c.sgl = in_capsule(8192);
	SAME(host_do(h, c).status, 0);
	CHECK(!memcmp(m->bytes + 102400, h->out, 8192));
	CHECK(!m->fua);
	c.cdw[2] |= 1u << 30;
	host_do(h, c);
	CHECK(m->fua);
	struct answer a = host_do(h, io_command(NV_IO_READ, 100, 16));

	SAME(a.status, 0);
	CHECK(a.data && a.length == 8192 && !memcmp(h->in, h->out, 8192));
	SAME(host_do(h, io_command(NV_IO_COMPARE, 100, 16)).status, 0);
	h->out[8191]++;
	SAME(host_do(h, io_command(NV_IO_COMPARE, 100, 16)).status, DNR(NV_COMPARE_FAILED));
	SAME(host_do(h, io_command(NV_IO_FLUSH, 0, 1)).status, 0);
	SAME(m->count[NB_FLUSH], 1);
	down();
}

static void what_cannot_be_is_refused(void)
{
	static const uint8_t all[] = {NV_IO_READ, NV_IO_WRITE, NV_IO_COMPARE, NV_IO_WRITE_ZEROES, NV_IO_VERIFY};
	struct nv_sqe c;

	up(16 << 20);
	for (size_t i = 0; i < sizeof(all); i++) {
		SAME(host_do(h, io_command(all[i], 16384, 1)).status, DNR(NV_LBA_RANGE));
		SAME(host_do(h, io_command(all[i], 16383, 2)).status, DNR(NV_LBA_RANGE));
		SAME(host_do(h, io_command(all[i], UINT64_MAX, 2)).status, DNR(NV_LBA_RANGE));
		SAME(host_do(h, io_command(all[i], UINT64_MAX - 1, 2)).status, DNR(NV_LBA_RANGE));
		SAME(host_do(h, io_command(all[i], 16383, 1)).status,
		     0); /* a compare finds the data of the write before it */
		c = io_command(all[i], 0, 1);
		c.nsid = 2;
		SAME(host_do(h, c).status, DNR(NV_INVALID_NS));
		c.nsid = NV_NSID_ALL;
		SAME(host_do(h, c).status, DNR(NV_INVALID_NS));
	}
	for (int i = 0; i < 3; i++) {
		c = io_command(all[i], 0, NT_TRANSFER_MAX / 512 + 1); /* MDTS */
		SAME(host_do(h, c).status, DNR(NV_INVALID_FIELD));
		c = io_command(all[i], 0, 2);
		c.sgl.length = 512;
		SAME(host_do(h, c).status, DNR(NV_SGL_LENGTH));
		c.sgl.length = 1536;
		SAME(host_do(h, c).status, DNR(NV_SGL_LENGTH));
		c.sgl = (struct nv_sgl){.type = NV_SGL_KEYED, .length = 1024};
		SAME(host_do(h, c).status, DNR(NV_SGL_TYPE));
		c.psdt = 1;
		SAME(host_do(h, c).status, DNR(NV_INVALID_FIELD));
	}
	c = io_command(NV_IO_WRITE, 0, 2);
	c.sgl = in_capsule(1024);
	c.sgl.address = 512;
	SAME(host_do(h, c).status, DNR(NV_SGL_OFFSET_INVALID));
	c.sgl = in_capsule(1024);
	h->count = 0;
	host_post(h, c, 512); /* the capsule has less than announced */
	SAME(h->answers[0].status, DNR(NV_SGL_LENGTH));
	c = io_command(NV_IO_WRITE, 0, 2);
	c.cdw[2] |= 1u << 20; /* a directive */
	SAME(host_do(h, c).status, DNR(NV_INVALID_FIELD));
	SAME(host_do(h, io_command(0x7e, 0, 1)).status, DNR(NV_INVALID_OPCODE));
	c = io_command(NV_IO_FLUSH, 0, 1);
	c.nsid = NV_NSID_ALL;
	SAME(host_do(h, c).status, DNR(NV_INVALID_NS));
	m->b.readonly = true;
	SAME(host_do(h, io_command(NV_IO_WRITE, 0, 1)).status, DNR(NV_WRITE_PROTECTED));
	SAME(host_do(h, io_command(NV_IO_WRITE_ZEROES, 0, 1)).status, DNR(NV_WRITE_PROTECTED));
	SAME(host_do(h, io_command(NV_IO_READ, 0, 1)).status, 0);
	down();
}

static uint16_t flush(struct host *x)
{
	return host_do(x, io_command(NV_IO_FLUSH, 0, 1)).status;
}

static void each_host_is_told_once_that_what_was_not_flushed_is_lost(void)
{
	up(16 << 20);
	struct host *other_admin = host_admin(), *other = host_io(other_admin, 1);
	struct nv_sqe c = io_command(NV_IO_WRITE, 0, 1);

	m->error = EIO;
	SAME(flush(h), DNR(NV_WRITE_FAULT));
	m->error = 0; /* from now on the medium works */
	SAME(flush(h), 0);
	SAME(flush(other), DNR(NV_WRITE_FAULT));
	SAME(flush(other), 0);
	m->error = ENOSPC;
	SAME(flush(other), DNR(NV_WRITE_FAULT));
	m->error = EIO;
	c.cdw[2] |= 1u << 30; /* FUA */
	SAME(host_do(h, c).status, NV_WRITE_FAULT);
	m->error = 0;
	SAME(flush(h), DNR(NV_WRITE_FAULT)); /* the other host's loss */
	SAME(flush(other), 0);
	m->b.cached = true;
	m->error = EIO;
	SAME(host_do(h, c).status, NV_WRITE_FAULT);
	m->error = 0;
	SAME(flush(other), DNR(NV_WRITE_FAULT)); /* with the page cache, either host may have lost data */
	SAME(flush(h), DNR(NV_WRITE_FAULT));
	SAME(flush(h), 0);
	SAME(flush(other), 0); /* both have got their answers */
	struct host *late_admin = host_admin(), *late = host_io(late_admin, 1);

	SAME(flush(late), 0); /* it has lost nothing */
	host_close(late);
	host_close(late_admin);
	host_close(other);
	host_close(other_admin);
	down();
}

/* By another host's flush: this host's was not answered, or not yet started. */
static void lose(struct host *other)
{
	m->error = EIO;
	SAME(flush(other), DNR(NV_WRITE_FAULT));
	m->error = 0;
}

static void come_back(void)
{
	admin = host_admin();
	h = host_io(admin, 1);
}

static struct host *far_admin, *far;

static void go(void)
{
	host_close(h);
	host_close(admin);
}

static void another_host(void)
{
	struct nv_sqe c;

	far_admin = host_open();
	c = connect_command(far_admin, 0, NV_CNTLID_DYNAMIC);
	memset(far_admin->out + NV_CONNECT_AT_HOSTID, 9, 16);
	SAME(host_do(far_admin, c).status, 0);
	SAME(property_set(far_admin, NV_PROP_CC, 0x460001, 0).status, 0);
	far = host_open();
	c = connect_command(far, 1, far_admin->q.ctrl->id);
	memset(far->out + NV_CONNECT_AT_HOSTID, 9, 16);
	SAME(host_do(far, c).status, 0);
}

static void all_down(void)
{
	host_close(far);
	host_close(far_admin);
	down();
}

static void a_host_that_comes_back_is_told_what_it_has_lost(void)
{
	up(16 << 20);
	another_host();
	for (int when = 0; when < 3; when++) {
		struct host *before = h, *admin_before = admin;

		if (when == 0) /* the loss happens while it is connected, … */
			lose(far);
		if (when == 2) /* … while it has two connections, … */
			come_back();
		if (when == 2)
			lose(far);
		host_close(before);
		host_close(admin_before);
		if (when == 1) /* … while it has none */
			lose(far);
		if (when < 2)
			come_back();
		SAME(flush(h), DNR(NV_WRITE_FAULT));
		SAME(flush(h), 0);
		SAME(flush(far), 0);
	}
	all_down();
}

static void a_host_is_told_again_what_its_connection_swallowed(void)
{
	up(16 << 20);
	another_host();
	lose(h);
	host_close(h);
	host_close(admin);
	come_back();
	SAME(flush(h), DNR(NV_WRITE_FAULT));
	SAME(flush(h), 0);
	SAME(flush(far), DNR(NV_WRITE_FAULT));
	SAME(flush(far), 0);
	all_down();
}

/* Without authentication its names are believed: a stranger who uses them and leaves must not take the report. */
static void a_connection_in_a_hosts_name_takes_nothing_until_it_flushes(void)
{
	up(16 << 20);
	another_host();
	go();
	lose(far);
	for (int enabled = 0; enabled < 2; enabled++) {
		struct host *stranger = host_open();

		SAME(host_do(stranger, connect_command(stranger, 0, NV_CNTLID_DYNAMIC)).status, 0);
		if (enabled)
			SAME(property_set(stranger, NV_PROP_CC, 0x460001, 0).status, 0);
		host_close(stranger);
	}
	struct host *idle = host_open();

	SAME(host_do(idle, connect_command(idle, 0, NV_CNTLID_DYNAMIC)).status, 0);
	come_back();
	SAME(flush(h), DNR(NV_WRITE_FAULT));
	SAME(flush(h), 0);
	host_close(idle);
	all_down();
}

static void a_controller_that_was_reset_still_has_to_be_told(void)
{
	up(16 << 20);
	another_host();
	host_close(h);
	SAME(property_set(admin, NV_PROP_CC, 0x460000, 0).status, 0);
	host_close(admin);
	lose(far);
	come_back();
	SAME(flush(h), DNR(NV_WRITE_FAULT));
	SAME(flush(h), 0);
	all_down();
}

static void a_host_that_shuts_down_has_flushed(void)
{
	up(16 << 20);
	another_host();
	SAME(property_set(admin, NV_PROP_CC, 0x464001, 0).status, 0); /* it shuts down, which flushes its data */
	host_close(h);
	host_close(admin);
	lose(far);
	come_back();
	SAME(flush(h), 0);
	all_down();
}

static void come_with(uint32_t hostid)
{
	admin = host_open();
	struct nv_sqe c = connect_command(admin, 0, NV_CNTLID_DYNAMIC);

	nv_put32(admin->out + NV_CONNECT_AT_HOSTID, hostid);
	SAME(host_do(admin, c).status, 0);
	SAME(property_set(admin, NV_PROP_CC, 0x460001, 0).status, 0);
	h = host_open();
	c = connect_command(h, 1, admin->q.ctrl->id);
	nv_put32(h->out + NV_CONNECT_AT_HOSTID, hostid);
	SAME(host_do(h, c).status, 0);
}

static void a_host_that_is_remembered_no_more_is_told_all_the_same(void)
{
	up(16 << 20);
	another_host();
	go();
	for (uint32_t i = 1; i <= NT_GONE_MAX; i++) { /* one more than can be stored */
		come_with(i);
		go();
	}
	lose(far);
	for (uint32_t i = 2; i <= NT_GONE_MAX; i += NT_GONE_MAX - 2) {
		come_with(i);
		SAME(flush(h), DNR(NV_WRITE_FAULT));
		SAME(flush(h), 0);
		go();
	}
	come_back(); /* the first one that left */
	SAME(flush(h), DNR(NV_WRITE_FAULT));
	SAME(flush(h), 0);
	SAME(flush(far), 0);
	all_down();
}

static void errors_of_the_medium_are_told(void)
{
	up(16 << 20);
	m->error = EIO;
	SAME(host_do(h, io_command(NV_IO_READ, 0, 1)).status, NV_READ_ERROR);
	SAME(host_do(h, io_command(NV_IO_WRITE, 0, 1)).status, NV_WRITE_FAULT);
	SAME(host_do(h, io_command(NV_IO_VERIFY, 0, 1)).status, NV_READ_ERROR);
	m->error = ENOSPC;
	SAME(host_do(h, io_command(NV_IO_WRITE, 0, 1)).status, NV_CAPACITY);
	SAME(host_do(h, io_command(NV_IO_WRITE_ZEROES, 0, 1)).status, NV_CAPACITY);
	m->error = 0;
	nt_ana_set(subsystem, 1, NV_ANA_INACCESSIBLE);
	SAME(host_do(h, io_command(NV_IO_READ, 0, 1)).status, NV_ANA_INACCESSIBLE_PATH);
	nt_ana_set(subsystem, 1, NV_ANA_LOSS);
	SAME(host_do(h, io_command(NV_IO_READ, 0, 1)).status,
	     NV_ANA_LOSS_PATH); /* with DNR a host would not use another path */
	nt_ana_set(subsystem, 1, NV_ANA_NON_OPTIMIZED);
	SAME(host_do(h, io_command(NV_IO_READ, 0, 1)).status, 0);
	down();
}

static void zeros_are_written_where_the_medium_knows_no_better(void)
{
	up(16 << 20);
	for (int i = 0; i < 2; i++) {
		memset(m->bytes, 0xee, 8 << 20);
		SAME(host_do(h, io_command(NV_IO_WRITE_ZEROES, 1, 2000)).status, 0);
		SAME(m->bytes[511], 0xee);
		SAME(m->bytes[512], 0);
		SAME(m->bytes[2001 * 512 - 1], 0);
		SAME(m->bytes[2001 * 512], 0xee);
		SAME(m->count[NB_WRITE] > 0, i);
		m->unknown = 1u << NB_ZERO;
	}
	SAME(host_do(h, io_command(NV_IO_VERIFY, 0, 16384)).status, 0);
	SAME(m->count[NB_READ], 64);
	down();
}

static void ranges_are_deallocated(void)
{
	struct nv_sqe c = {.opcode = NV_IO_DSM, .nsid = 1, .sgl = by_transport(32), .cdw = {1, 4}};

	up(16 << 20);
	memset(m->bytes, 0xee, 8 << 20);
	memset(h->out, 0, 4096);
	nv_put32(h->out + 4, 8);
	nv_put64(h->out + 8, 16);
	nv_put32(h->out + 20, 1);
	nv_put64(h->out + 24, 16383);
	SAME(host_do(h, c).status, 0);
	SAME(m->bytes[16 * 512], 0);
	SAME(m->bytes[24 * 512], 0xee);
	SAME(m->bytes[16383 * 512], 0);
	SAME(m->count[NB_DISCARD], 2);
	c.sgl.length = 4096; /* as Linux describes it */
	SAME(host_do(h, c).status, 0);
	c.sgl.length = 16;
	SAME(host_do(h, c).status, DNR(NV_SGL_LENGTH));
	c.sgl.length = 32;
	nv_put32(h->out + 20, 2);
	SAME(host_do(h, c).status, DNR(NV_LBA_RANGE));
	nv_put64(h->out + 24, UINT64_MAX);
	SAME(host_do(h, c).status, DNR(NV_LBA_RANGE));
	SAME(m->count[NB_DISCARD], 4);
	c.cdw[1] = 0; /* hints */
	nv_put64(h->out + 24, 0);
	SAME(host_do(h, c).status, 0);
	SAME(m->count[NB_DISCARD], 4);
	m->unknown = 1u << NB_DISCARD;
	c.cdw[1] = 4;
	SAME(host_do(h, c).status, 0);
	down();
}

/* As many ranges as a command can have. Empty ones have no effect, and an invalid one is found at any index. */
static void so_many_ranges_as_there_can_be(void)
{
	struct nv_sqe c = {.opcode = NV_IO_DSM, .nsid = 1, .sgl = by_transport(4096), .cdw = {255, 4}};

	up(16 << 20);
	memset(m->bytes, 0xee, 8 << 20);
	memset(h->out, 0, 4096);
	for (unsigned i = 0; i < 256; i++) {
		nv_put32(h->out + 16 * i + 4, i % 2);
		nv_put64(h->out + 16 * i + 8, 3 * i);
	}
	SAME(host_do(h, c).status, 0);
	SAME(m->count[NB_DISCARD], 128);
	SAME(m->bytes[3 * 512], 0);
	SAME(m->bytes[4 * 512], 0xee);
	SAME(m->bytes[765 * 512], 0);
	nv_put64(h->out + 16 * 255 + 8, 16384);
	SAME(host_do(h, c).status, DNR(NV_LBA_RANGE));
	SAME(m->count[NB_DISCARD], 128);
	down();
}

static void the_write_cache_can_be_switched_off(void)
{
	up(16 << 20);
	SAME(host_do(admin, (struct nv_sqe){.opcode = NV_ADMIN_SET_FEATURES,
	                                    .sgl = by_transport(0),
	                                    .cdw = {NV_FEAT_WRITE_CACHE, 0}})
	             .status,
	     0);
	host_do(h, io_command(NV_IO_WRITE, 0, 1));
	CHECK(m->fua);
	down();
}

static void fuse(struct nv_sqe *first, struct nv_sqe *second)
{
	*first = io_command(NV_IO_COMPARE, 8, 1);
	*second = io_command(NV_IO_WRITE, 8, 1);
	first->fuse = NV_FUSE_FIRST;
	second->fuse = NV_FUSE_SECOND;
}

static void compare_and_write_is_one(void)
{
	struct nv_sqe first, second;

	up(16 << 20);
	fuse(&first, &second);
	memset(h->out, 0, 512);
	uint16_t c1 = host_post(h, first, 0);

	SAME(h->count, 0); /* nothing happens before the second arrives */
	memset(h->out, 5, 512);
	uint16_t c2 = host_post(h, second, 0);

	SAME(h->count, 2);
	SAME(h->answers[0].cid, c1);
	SAME(h->answers[0].status, 0);
	SAME(h->answers[1].cid, c2);
	SAME(h->answers[1].status, 0);
	SAME(m->bytes[8 * 512], 5);
	h->count = 0;
	memset(h->out, 4, 512);
	host_post(h, first, 0);
	host_post(h, second, 0);
	SAME(h->answers[0].status, DNR(NV_COMPARE_FAILED));
	SAME(h->answers[1].status, NV_FUSED_FAILED);
	SAME(m->bytes[8 * 512], 5);
	down();
}

static void halves_of_a_fused_command_do_nothing(void)
{
	struct nv_sqe first, second;

	up(16 << 20);
	fuse(&first, &second);
	SAME(host_do(h, second).status, NV_FUSED_MISSING);
	host_post(h, first, 0);
	h->count = 0;
	host_post(h, io_command(NV_IO_READ, 0, 1), 0);
	SAME(h->count, 2);
	SAME(h->answers[0].status, NV_FUSED_MISSING);
	SAME(h->answers[1].status, 0);
	host_post(h, first, 0);
	h->count = 0;
	second.cdw[0] = 9; /* other blocks */
	host_post(h, second, 0);
	SAME(h->answers[0].status, DNR(NV_INVALID_FIELD));
	SAME(h->answers[1].status, DNR(NV_INVALID_FIELD));
	h->count = 0;
	first.nsid = 2;
	host_post(h, first, 0);
	second.cdw[0] = 8;
	host_post(h, second, 0);
	SAME(h->answers[0].status, DNR(NV_INVALID_NS));
	SAME(h->answers[1].status, NV_FUSED_FAILED);
	first.opcode = NV_IO_READ;
	first.nsid = 1;
	SAME(host_do(h, first).status, DNR(NV_INVALID_FIELD));
	down();
}

static void nobody_writes_between_compare_and_write(void)
{
	struct nv_sqe first, second;

	up(16 << 20);
	fuse(&first, &second);
	m->slow = true;
	memset(h->out, 0, 512);
	host_post(h, io_command(NV_IO_WRITE, 8, 1), 0); /* outstanding */
	host_post(h, first, 0);
	host_post(h, second, 0);
	memset(h->out, 9, 512);
	host_post(h, io_command(NV_IO_WRITE, 8, 1), 0); /* after the pair */
	SAME(m->count[NB_WRITE], 1);
	SAME(m->count[NB_READ], 0);
	host_post(h, io_command(NV_IO_READ, 0, 1), 0); /* reads do not wait */
	SAME(m->count[NB_READ], 1);
	medium_go(m);
	host_settle(h);
	SAME(h->count, 5);
	for (int i = 0; i < 5; i++)
		SAME(h->answers[i].status, 0);
	SAME(m->bytes[8 * 512], 9);
	down();
}

static void a_connection_may_end_at_any_moment(void)
{
	for (int when = 0; when < 6; when++) {
		struct nv_sqe first, second;

		up(16 << 20);
		fuse(&first, &second);
		m->slow = true;
		h->hold_data = when == 1;
		h->hold_answers = when == 2;
		if (when == 2)
			host_post(h, io_command(NV_IO_FLUSH, 0, 1), 0);
		host_post(h, io_command(NV_IO_READ, 0, 8), 0);
		host_post(h, io_command(NV_IO_WRITE, 0, 8), 0);
		if (when >= 3)
			host_post(h, first, 0);
		if (when >= 4)
			host_post(h, second, 0);
		if (when == 5)
			host_post(h, io_command(NV_IO_WRITE, 8, 1), 0);
		h->unreleased_count = 0;
		nt_queue_close(&h->q);
		CHECK(!h->gone); /* the medium still works on it */
		struct host *other = host_io(admin, 2);
		uint16_t cid = host_post(other, io_command(NV_IO_WRITE, 0, 1), 0);

		medium_go(m);
		CHECK(h->gone);
		host_settle(other);
		SAME(host_answer(other, cid)->status, 0);
		free(h);
		h = other;
		m->slow = false;
		down();
	}
}

static void what_waits_for_its_turn_is_not_begun_when_its_connection_ends(void)
{
	struct nv_sqe first, second;

	up(16 << 20);
	struct host *other = host_io(admin, 2);

	fuse(&first, &second);
	m->slow = true;
	uint16_t cid = host_post(other, io_command(NV_IO_WRITE, 0, 1), 0);

	host_post(h, first, 0); /* for the write */
	host_post(h, second, 0);
	host_post(h, io_command(NV_IO_WRITE, 8, 1), 0); /* for the pair */
	nt_queue_close(&h->q);
	CHECK(h->gone);
	SAME(m->count[NB_WRITE], 1);
	medium_go(m);
	host_settle(other);
	SAME(host_answer(other, cid)->status, 0);
	SAME(m->count[NB_WRITE], 1);
	free(h);
	h = other;
	m->slow = false;
	down();
}

static uint16_t connect_again(struct host *again, bool other)
{
	struct nv_sqe c = connect_command(again, 0, NV_CNTLID_DYNAMIC);

	again->out[NV_CONNECT_AT_HOSTID] += other;
	return host_post(again, c, c.sgl.length);
}

static void a_host_comes_back_when_the_medium_has_done_what_it_had_begun(void)
{
	struct host *again[3];
	uint16_t cid[3];

	up(16 << 20);
	m->slow = true;
	host_post(h, io_command(NV_IO_WRITE, 0, 1), 0);
	nt_queue_close(&h->q);
	host_close(admin);
	CHECK(!h->gone);
	for (int i = 0; i < 3; i++) {
		again[i] = host_open();
		cid[i] = connect_again(again[i], i == 2);
	}
	CHECK(!host_answer(again[0], cid[0]) && !host_answer(again[1], cid[1]));
	SAME(host_answer(again[2], cid[2])->status, 0); /* another host */
	host_close(again[1]);
	medium_go(m);
	CHECK(h->gone);
	host_settle(again[0]);
	SAME(host_answer(again[0], cid[0])->status, 0);
	SAME(property_set(again[0], NV_PROP_CC, 0x460001, 0).status, 0);
	host_close(again[2]);
	m->slow = false;
	free(h);
	admin = again[0];
	h = host_io(admin, 1);
	down();
}

static void a_host_comes_back_at_once_to_a_medium_that_keeps_the_order(void)
{
	struct nv_sqe ranges = {.opcode = NV_IO_DSM, .nsid = 1, .cdw = {1, 1u << 2}};

	up(16 << 20);
	m->b.ordered = true;
	m->slow = true;
	host_post(h, io_command(NV_IO_WRITE, 0, 1), 0);
	memset(h->out, 0, 32);
	h->out[4] = h->out[20] = 8; /* the first eight blocks, and the next eight */
	h->out[24] = 8;
	ranges.sgl = in_capsule(32);
	host_post(h, ranges, 32);
	SAME(m->count[NB_DISCARD], 1);
	nt_queue_close(&h->q);
	host_close(admin);
	CHECK(!h->gone);
	struct host *again = host_admin(), *io = host_io(again, 1);
	uint16_t cid = host_post(io, io_command(NV_IO_WRITE, 8, 1), 0);

	SAME(m->count[NB_WRITE], 2); /* the medium has it, after the first one */
	medium_go(m);
	CHECK(h->gone);
	SAME(m->count[NB_DISCARD], 1); /* the second range would come after the new write */
	host_settle(io);
	SAME(host_answer(io, cid)->status, 0);
	m->slow = false;
	free(h);
	admin = again;
	h = io;
	down();
}

static unsigned said;

static void say(const char *fmt, ...)
{
	said++;
}

static void a_host_is_told_to_come_again_while_the_medium_does_not_end(void)
{
	struct host *again[2];
	uint16_t cid[2];

	up(16 << 20);
	target.say = say;
	said = 0;
	m->slow = true;
	host_post(h, io_command(NV_IO_WRITE, 0, 1), 0);
	nt_queue_close(&h->q);
	host_close(admin);
	for (int i = 0; i < 2; i++) {
		again[i] = host_open();
		cid[i] = connect_again(again[i], false);
		target.now += NT_CONNECT_MS / 2;
	}
	uint64_t due = nt_target_tick(&target);

	CHECK(due > target.now && due <= target.now + NT_CONNECT_MS / 2); /* or when it looks at the medium */
	SAME(host_answer(again[0], cid[0])->status, NV_CONNECT_BUSY);
	CHECK(!host_answer(again[1], cid[1]));
	target.now += NT_CONNECT_MS / 2;
	nt_target_tick(&target);
	SAME(host_answer(again[1], cid[1])->status, NV_CONNECT_BUSY);
	SAME(said, 1);
	host_settle(again[0]);
	cid[0] = connect_again(again[0], false); /* on the same connection */
	CHECK(!host_answer(again[0], cid[0]));
	host_close(again[1]);
	medium_go(m);
	SAME(host_answer(again[0], cid[0])->status, 0);
	target.now += 250; /* then it knows that the medium goes on */
	SAME(nt_target_tick(&target), UINT64_MAX);
	host_settle(again[0]);
	SAME(property_set(again[0], NV_PROP_CC, 0x460001, 0).status, 0);
	m->slow = false;
	free(h);
	admin = again[0];
	h = host_io(admin, 1);
	down();
}

static void a_namespace_that_is_removed_finishes_what_it_has_begun(void)
{
	up(16 << 20);
	m->slow = true;
	host_post(h, io_command(NV_IO_READ, 0, 1), 0);
	nt_namespace_remove(subsystem->ns[1]);
	CHECK(!m->closed);
	SAME(host_do(h, io_command(NV_IO_READ, 0, 1)).status, DNR(NV_INVALID_NS));
	h->count = 0;
	medium_go(m);
	SAME(h->answers[0].status, 0);
	host_settle(h);
	CHECK(m->closed);
	down();
}

static void memory_is_shared_out(void)
{
	up(16 << 20); /* 4 MiB for each controller */
	m->slow = true;
	h->hold_data = true;
	for (int i = 0; i < 6; i++)
		host_post(h, io_command(i & 1 ? NV_IO_READ : NV_IO_WRITE, 0, 2048), 0);
	SAME(h->fetch_count, 2);
	SAME(m->count[NB_READ], 2);
	SAME(nt_pool_used(target.pool), 4 << 20);
	struct nv_sqe c = io_command(NV_IO_WRITE, 0, 16); /* data in a capsule still finds room */

	c.sgl = in_capsule(8192);
	uint16_t cid = host_post(h, c, 8192);

	SAME(m->count[NB_WRITE], 1);
	medium_go(m);
	SAME(host_answer(h, cid)->status, 0);
	h->hold_answers = false;
	host_settle(h);
	SAME(h->fetch_count, 3);
	for (int i = 0; i < 3; i++)
		nt_fetched(h->fetching[i], i == 1 ? NV_TRANSIENT_TRANSPORT : 0);
	host_settle(h);
	medium_go(m);
	host_settle(h);
	SAME(h->count, 7);
	SAME(nt_pool_used(target.pool), 0);
	down();
}

static void a_command_that_waits_for_memory_can_be_aborted(void)
{
	up(16 << 20);
	h->hold_data = true;
	for (int i = 0; i < 4; i++)
		host_post(h, io_command(NV_IO_WRITE, 0, 2048), 0);
	uint16_t cid = host_post(h, io_command(NV_IO_WRITE, 0, 2048), 0);

	SAME(host_abort(admin, 1, cid), 0);
	SAME(host_answer(h, cid)->status, NV_ABORT_REQUESTED);
	down();
}

static void commands_are_told_apart_by_their_ids(void)
{
	up(16 << 20);
	m->slow = true;
	uint16_t cid = host_post(h, io_command(NV_IO_READ, 0, 1), 0);

	h->next_cid = cid;
	host_post(h, io_command(NV_IO_READ, 0, 1), 0);
	SAME(h->answers[0].status, DNR(NV_CID_CONFLICT));
	h->next_cid = cid;
	host_post(h, io_command(NV_IO_READ, 0, 1), 0); /* it is still in use */
	SAME(h->answers[1].status, DNR(NV_CID_CONFLICT));
	medium_go(m);
	host_settle(h);
	h->next_cid = cid;
	m->slow = false;
	SAME(host_do(h, io_command(NV_IO_READ, 0, 1)).status, 0);
	down();
}

static void more_commands_than_the_queue_has_room_for_end_the_connection(void)
{
	uint8_t sqe[NV_SQE_LEN];
	struct nt_request *r;

	up(16 << 20);
	m->slow = true;
	for (int i = 0; i < 64; i++)
		host_post(h, io_command(NV_IO_READ, 0, 1), 0);
	struct nv_sqe c = io_command(NV_IO_READ, 0, 1);

	nv_sqe_encode(&c, sqe);
	CHECK(!nt_command(&h->q, sqe, 0, &r));
	medium_go(m);
	host_settle(h);
	SAME(h->answers[63].sqhd, 1); /* 64 and the Connect, modulo 64 */
	down();
}

int main(void)
{
	RUN(what_is_written_is_read);
	RUN(what_cannot_be_is_refused);
	RUN(errors_of_the_medium_are_told);
	RUN(each_host_is_told_once_that_what_was_not_flushed_is_lost);
	RUN(a_host_that_comes_back_is_told_what_it_has_lost);
	RUN(a_connection_in_a_hosts_name_takes_nothing_until_it_flushes);
	RUN(a_controller_that_was_reset_still_has_to_be_told);
	RUN(a_host_is_told_again_what_its_connection_swallowed);
	RUN(a_host_that_shuts_down_has_flushed);
	RUN(a_host_that_is_remembered_no_more_is_told_all_the_same);
	RUN(zeros_are_written_where_the_medium_knows_no_better);
	RUN(ranges_are_deallocated);
	RUN(so_many_ranges_as_there_can_be);
	RUN(the_write_cache_can_be_switched_off);
	RUN(compare_and_write_is_one);
	RUN(halves_of_a_fused_command_do_nothing);
	RUN(nobody_writes_between_compare_and_write);
	RUN(a_connection_may_end_at_any_moment);
	RUN(what_waits_for_its_turn_is_not_begun_when_its_connection_ends);
	RUN(a_host_comes_back_when_the_medium_has_done_what_it_had_begun);
	RUN(a_host_comes_back_at_once_to_a_medium_that_keeps_the_order);
	RUN(a_host_is_told_to_come_again_while_the_medium_does_not_end);
	RUN(a_namespace_that_is_removed_finishes_what_it_has_begun);
	RUN(memory_is_shared_out);
	RUN(a_command_that_waits_for_memory_can_be_aborted);
	RUN(commands_are_told_apart_by_their_ids);
	RUN(more_commands_than_the_queue_has_room_for_end_the_connection);
	return 0;
}
