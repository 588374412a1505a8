// io.c - I/O commands: checks, and their steps at the backend; fused compare and write
// follows: NVM Express Base 1.4, chapter 6; 6.2 (fused operations), 8.20.3 (asymmetric access)
// SPDX-License-Identifier: MIT
#include <errno.h>
#include <string.h>

#include "target/core.h"

#define CDW12_FUA (1u << 30)
#define CDW12_DEAC (1u << 25)
#define CHUNK (128u << 10) /* bytes that Verify reads, or that zeroing writes, at once */
#define DSM_RANGE 16u
#define DSM_LENGTH_MAX (256 * DSM_RANGE)
#define DSM_DEALLOCATE (1u << 2)

static const uint8_t zeros[CHUNK] __attribute__((aligned(4096)));

static uint64_t first_block(const struct nt_request *r)
{
	return (uint64_t)r->sqe.cdw[1] << 32 | r->sqe.cdw[0];
}

static uint64_t block_count(const struct nt_request *r)
{
	return (r->sqe.cdw[2] & 0xffff) + 1u;
}

static bool blocks_in_range(const struct nt_namespace *ns, uint64_t first, uint64_t n)
{
	uint64_t size = ns->backend->size >> ns->block_shift;

	return n <= size && first <= size - n;
}

/* ---- checks ---- */

static uint16_t check_access(const struct nt_namespace *ns)
{
	switch (ns->subsystem->ana[nt_ana_group(ns)]) {
	case NV_ANA_INACCESSIBLE:
		return NV_ANA_INACCESSIBLE_PATH;
	case NV_ANA_LOSS: /* no DNR: another controller may execute the command */
		return NV_ANA_LOSS_PATH;
	case NV_ANA_CHANGE:
		return NV_ANA_TRANSITION_PATH;
	default:
		return 0;
	}
}

uint16_t nt_check_ns(struct nt_request *r)
{
	r->ns = nt_ns_get(r->queue->ctrl->subsystem, r->sqe.nsid);
	r->error_at = NV_SQE_AT_NSID;
	return r->ns ? check_access(r->ns) : NV_INVALID_NS | NV_DNR;
}

/* Checks the range of a command with dwords 10 to 12. */
static uint16_t check_blocks(struct nt_request *r, bool writes)
{
	uint16_t status = nt_check_ns(r);

	if (status)
		return status;
	if (writes && r->ns->backend->readonly)
		return NV_WRITE_PROTECTED | NV_DNR;
	if (!blocks_in_range(r->ns, first_block(r), block_count(r))) {
		r->error_at = NV_SQE_AT_CDW10;
		return NV_LBA_RANGE | NV_DNR;
	}
	r->at = first_block(r) << r->ns->block_shift;
	r->left = block_count(r) << r->ns->block_shift;
	return 0;
}

/* Checks a command with such a range and with data. */
static uint16_t check_data(struct nt_request *r, bool writes)
{
	uint16_t status = check_blocks(r, writes);

	if (status)
		return status;
	if (r->left > NT_TRANSFER_MAX)
		return NT_INVALID(r, NV_SQE_AT_CDW12);
	r->length = (uint32_t)r->left;
	return 0;
}

static uint16_t read_check(struct nt_request *r)
{
	uint16_t status = check_data(r, false);
	const struct nb_backend *b = status ? NULL : r->ns->backend;

	if (b && b->map && !b->map_lost && !r->queue->stable && b->map_len >= r->left &&
	    r->at <= b->map_len - r->left) {
		r->data = (uint8_t *)(uintptr_t)b->map + r->at;
		r->borrowed = true;
	}
	return status;
}

void nt_map_lost(struct nt_request *r)
{
	if (r->borrowed)
		r->ns->backend->map_lost = true;
}

static uint16_t write_check(struct nt_request *r)
{
	if (r->sqe.cdw[2] >> 20 & 0xf) /* DTYPE: no directives */
		return NT_INVALID(r, NV_SQE_AT_CDW12 + 2);
	return check_data(r, true);
}

static uint16_t compare_check(struct nt_request *r)
{
	return check_data(r, false);
}

static uint16_t zeroes_check(struct nt_request *r)
{
	return check_blocks(r, true);
}

static uint16_t verify_check(struct nt_request *r)
{
	uint16_t status = check_blocks(r, false);

	r->length = status ? 0 : r->left < CHUNK ? (uint32_t)r->left : CHUNK;
	return status;
}

static uint16_t flush_check(struct nt_request *r)
{
	return nt_check_ns(r);
}

/* The host may describe more data than its ranges fill. All of it is fetched. */
static uint16_t dsm_check(struct nt_request *r)
{
	uint16_t status = nt_check_ns(r);
	uint32_t need = ((r->sqe.cdw[0] & 0xff) + 1) * DSM_RANGE, have = r->sqe.sgl.length;

	if (!status && (r->sqe.cdw[1] & DSM_DEALLOCATE) && r->ns->backend->readonly)
		status = NV_WRITE_PROTECTED | NV_DNR;
	r->length = have >= need && have <= DSM_LENGTH_MAX ? have : need;
	return status;
}

/* ---- steps ---- */

enum step { STEP_MORE, STEP_DONE };

/* Prepares the next backend step of a request in r->io. STEP_DONE: there is none (r->fate is the error, if any). */
static enum step next_step(struct nt_request *r);

enum { SUBMITTING, WAITING, DONE };

/* True if the error means lost data. With the page cache, a durable write that fails may mean the loss of earlier
 * writes. */
static bool means_loss(const struct nb_request *io, int error)
{
	if (!error || io->op == NB_FLUSH)
		return error;
	if (io->op != NB_WRITE && (error == EOPNOTSUPP || error == ENOTTY || error == EINVAL))
		return false; /* another method follows */
	return io->fua && io->backend->cached;
}

uint16_t nt_io_status(const struct nt_request *r, int error)
{
	if (error && r->io.op == NB_FLUSH)
		return NV_WRITE_FAULT | NV_DNR;
	switch (error) {
	case 0:
		return 0;
	case ENOSPC:
	case EDQUOT:
		return NV_CAPACITY;
	case EROFS:
		return NV_WRITE_PROTECTED | NV_DNR;
	case ENOMEM:
	case EAGAIN:
		return NV_INTERNAL;
	case NB_LATE:
		return NV_INTERNAL_PATH;
	case NB_FENCED:
		return NV_ANA_INACCESSIBLE_PATH;
	case NB_ELSEWHERE:
		return NV_ANA_TRANSITION_PATH;
	default:
		return r->io.op == NB_READ ? NV_READ_ERROR : NV_WRITE_FAULT;
	}
}

static void count_io(struct nt_request *r)
{
	struct nt_controller *c = r->queue->ctrl;

	if (!c || r->fate)
		return;
	if (r->sqe.opcode == NV_IO_READ || r->sqe.opcode == NV_IO_COMPARE) {
		c->reads++;
		c->read_blocks += r->length >> 9;
	} else if (r->sqe.opcode == NV_IO_WRITE) {
		c->writes++;
		c->written_blocks += r->length >> 9;
	}
}

static void finish_request(struct nt_request *r)
{
	struct nt_request *second = r->fused;

	r->fused = NULL;
	nt_reserve_leave(r);
	count_io(r);
	if (second) {
		uint16_t status = r->fate;

		second->fused = NULL;
		second->fate = status ? NV_FUSED_FAILED : second->fate;
		if (!status && second->fate)
			r->fate = NV_FUSED_FAILED;
		count_io(second);
		/* the second command holds the lock, so answer the first one first */
		nt_complete(r, r->fate);
		nt_complete(second, second->fate);
		return;
	}
	nt_complete(r, r->fate);
}

/* A backend may complete within the call: then this loop continues; otherwise step_done calls this again. */
static void run_steps(struct nt_request *r)
{
	while (next_step(r) == STEP_MORE) {
		r->phase = SUBMITTING;
		nb_submit(r->ns->backend, &r->io);
		if (r->phase == SUBMITTING) {
			r->phase = WAITING;
			return;
		}
	}
	finish_request(r);
}

/* The medium still uses the buffers of a request that is answered late. */
static void keep_buffers(struct nt_request *r)
{
	struct nb_late *late = r->io.late;

	if (!late)
		return;
	r->io.late = NULL;
	nt_memory_leave(r, late);
	if (r->fused)
		nt_memory_leave(r->fused, late);
}

static void step_done(struct nb_request *io, int error)
{
	struct nt_request *r = (struct nt_request *)(void *)((uint8_t *)io - offsetof(struct nt_request, io));

	r->error = error;
	if (error != NB_LATE)
		r->ns->answered = r->queue->target->now;
	keep_buffers(r);
	if (means_loss(io, error))
		nt_lost(r->ns);
	if (r->phase == SUBMITTING)
		r->phase = DONE;
	else if (r->queue->closing) /* its host may have repeated it already: no further step */
		finish_request(r);
	else
		run_steps(r);
}

static void step_aside(struct nb_request *io)
{
	struct nt_request *r = (struct nt_request *)(void *)((uint8_t *)io - offsetof(struct nt_request, io));
	struct nt_target *target = r->queue->target;

	r->aside = true;
	nt_memory_pace(r, NT_SLOW);
	nt_turn_done(r);
	nt_memory_serve(target); /* its peer has more of its share again */
}

void nt_launch(struct nt_request *r)
{
	nt_lend(r);
	if (r->fused)
		nt_lend(r->fused);
	r->index = 0;
	r->error = 0;
	r->io.done = step_done;
	r->io.aside = step_aside;
	uint16_t forbidden = nt_reserve_check(r);

	if (forbidden) {
		r->fate = forbidden;
		finish_request(r);
		return;
	}
	nt_reserve_admit(r);
	run_steps(r);
}

/* True if the write must be durable when complete: the host asks for FUA, or has disabled the cache. */
static bool must_be_durable(const struct nt_request *r)
{
	return (r->sqe.opcode != NV_IO_DSM && (r->sqe.cdw[2] & CDW12_FUA)) || !r->queue->ctrl->write_cache;
}

static enum step prepare_step(struct nt_request *r, enum nb_op op, void *data, uint64_t length)
{
	r->io.op = op;
	r->io.data = data;
	r->io.offset = r->at;
	r->io.length = length;
	r->io.fua = op != NB_READ && op != NB_FLUSH && must_be_durable(r);
	r->io.may_punch = false;
	r->index++;
	return STEP_MORE;
}

static enum step end_steps(struct nt_request *r)
{
	if (r->error)
		r->fate = nt_io_status(r, r->error);
	return STEP_DONE;
}

static enum step move_step(struct nt_request *r, enum nb_op op)
{
	if (r->error || r->index)
		return end_steps(r);
	return prepare_step(r, op, r->data, r->length);
}

static enum step flush_step(struct nt_request *r)
{
	if (!r->ns->backend->volatile_cache)
		return STEP_DONE;
	if (r->index) {
		if (nt_tell_loss(r->queue->ctrl, r->ns)) /* DNR: another flush would not bring it back */
			r->fate = NV_WRITE_FAULT | NV_DNR;
		return end_steps(r);
	}
	nt_flush_comes(r->queue->ctrl, r->ns);
	return prepare_step(r, NB_FLUSH, NULL, 0);
}

/* Performs a compare and, if it is the first of two fused commands, the write of the second. */
static enum step compare_step(struct nt_request *r)
{
	struct nt_request *second = r->fused;

	if (!r->index && second && r->ns->backend->compare_write) {
		r->io.other = second->data;
		return prepare_step(r, NB_COMPARE_WRITE, r->data, r->length);
	}
	if (r->io.op == NB_COMPARE_WRITE && r->error != EINVAL) {
		r->fate = r->error == EILSEQ ? NV_COMPARE_FAILED | NV_DNR : r->error ? nt_io_status(r, r->error) : 0;
		return STEP_DONE;
	}
	if (!r->index || r->io.op == NB_COMPARE_WRITE) { /* a range that the medium cannot compare */
		r->index = 0;
		r->error = 0;
		return prepare_step(r, NB_READ, r->other, r->length);
	}
	if (r->index == 1) {
		if (r->error)
			return end_steps(r);
		if (memcmp(r->data, r->other, r->length))
			r->fate = NV_COMPARE_FAILED | NV_DNR;
		if (r->fate || !second)
			return STEP_DONE;
		prepare_step(r, NB_WRITE, second->data, r->length);
		r->io.fua = must_be_durable(second);
		return STEP_MORE;
	}
	if (r->error)
		second->fate = nt_io_status(r, r->error);
	return STEP_DONE;
}

static enum step verify_step(struct nt_request *r)
{
	if (r->index) {
		if (r->error)
			return end_steps(r);
		r->at += r->io.length;
		r->left -= r->io.length;
	}
	if (!r->left)
		return STEP_DONE;
	return prepare_step(r, NB_READ, r->data, r->left < r->length ? r->left : r->length);
}

enum { ZERO_RANGE, ZERO_PUNCH, ZERO_WRITE }; /* methods of zeroing: the next one if a medium does not support one */

static enum step write_zeros(struct nt_request *r)
{
	if (!r->left)
		return STEP_DONE;
	prepare_step(r, NB_WRITE, (void *)(uintptr_t)zeros, r->left < CHUNK ? r->left : CHUNK);
	r->index = ZERO_WRITE + 1;
	return STEP_MORE;
}

static enum step zero_step(struct nt_request *r)
{
	bool unknown = r->error == EOPNOTSUPP || r->error == ENOTTY || r->error == EINVAL;

	if (r->index > ZERO_WRITE) {
		if (r->error)
			return end_steps(r);
		r->at += r->io.length;
		r->left -= r->io.length;
		return write_zeros(r);
	}
	if (r->index && !unknown)
		return end_steps(r);
	r->error = 0;
	if (r->index == ZERO_WRITE)
		return write_zeros(r);
	bool punch = r->index == ZERO_PUNCH || (r->sqe.cdw[2] & CDW12_DEAC);

	prepare_step(r, NB_ZERO, NULL, r->left);
	r->io.may_punch = punch;
	if (punch)
		r->index = ZERO_WRITE;
	return STEP_MORE;
}

/* Deallocation is only advice: it succeeds even if the medium does not support it. */
static enum step dsm_step(struct nt_request *r)
{
	uint32_t n = (r->sqe.cdw[0] & 0xff) + 1;

	if (r->error && r->error != EOPNOTSUPP && r->error != ENOTTY)
		return end_steps(r);
	r->error = 0;
	while (r->index < n) {
		const uint8_t *range = r->data + (size_t)r->index * DSM_RANGE;
		uint64_t length = (uint64_t)nv_get32(range + 4) << r->ns->block_shift;

		r->at = nv_get64(range + 8) << r->ns->block_shift;
		if (!length) {
			r->index++;
			continue;
		}
		return prepare_step(r, NB_DISCARD, NULL, length);
	}
	return STEP_DONE;
}

static enum step next_step(struct nt_request *r)
{
	switch (r->sqe.opcode) {
	case NV_IO_READ:
		return move_step(r, NB_READ);
	case NV_IO_WRITE:
		return move_step(r, NB_WRITE);
	case NV_IO_FLUSH:
		return flush_step(r);
	case NV_IO_COMPARE:
		return compare_step(r);
	case NV_IO_VERIFY:
		return verify_step(r);
	case NV_IO_WRITE_ZEROES:
		return zero_step(r);
	default:
		return dsm_step(r);
	}
}

/* ---- running a command once its data has arrived ---- */

static void read_run(struct nt_request *r)
{
	if (!r->borrowed) {
		nt_turn(r);
		return;
	}
	r->fate = nt_reserve_check(r);
	count_io(r);
	nt_complete(r, r->fate);
}

/* The two fused commands are linked when the second arrives. The pair starts when both have their data. */
void nt_fuse(struct nt_request *first, struct nt_request *second)
{
	first->fused = second;
	second->fused = first;
}

static void fused_run(struct nt_request *r)
{
	struct nt_request *first = r->sqe.fuse == NV_FUSE_FIRST ? r : r->fused;
	struct nt_request *second = r->sqe.fuse == NV_FUSE_FIRST ? r->fused : r;

	nt_hold(r);
	r->ready = true;
	if (!first || !second || !first->ready || !second->ready)
		return;
	second->fused = NULL; /* from now on the first command ends alone */
	nt_write_turn(first);
}

static void compare_run(struct nt_request *r)
{
	if (r->sqe.fuse)
		fused_run(r);
	else
		nt_turn(r);
}

static void write_run(struct nt_request *r)
{
	if (r->sqe.fuse)
		fused_run(r);
	else
		nt_write_turn(r);
}

static void dsm_run(struct nt_request *r)
{
	uint32_t n = (r->sqe.cdw[0] & 0xff) + 1;

	for (uint32_t i = 0; i < n; i++) {
		const uint8_t *range = r->data + (size_t)i * DSM_RANGE;

		if (blocks_in_range(r->ns, nv_get64(range + 8), nv_get32(range + 4)))
			continue;
		nt_complete(r, NV_LBA_RANGE | NV_DNR);
		return;
	}
	if (r->sqe.cdw[1] & DSM_DEALLOCATE)
		nt_write_turn(r);
	else
		nt_complete(r, nt_reserve_check(r)); /* the access hints are ignored */
}

static const struct nt_command_info commands[] = {
        {.opcode = NV_IO_READ, .way = NT_TO_HOST, .check = read_check, .run = read_run},
        {.opcode = NV_IO_WRITE, .way = NT_FROM_HOST, .check = write_check, .run = write_run},
        {.opcode = NV_IO_FLUSH, .check = flush_check, .run = nt_turn},
        {.opcode = NV_IO_COMPARE, .way = NT_FROM_HOST, .two_buffers = true, .check = compare_check, .run = compare_run},
        {.opcode = NV_IO_WRITE_ZEROES, .check = zeroes_check, .run = nt_write_turn},
        {.opcode = NV_IO_DSM, .way = NT_FROM_HOST, .check = dsm_check, .run = dsm_run},
        {.opcode = NV_IO_VERIFY, .check = verify_check, .run = nt_turn},
        {.opcode = NV_IO_RESERVE_REGISTER,
         .way = NT_FROM_HOST,
         .check = nt_reserve_register_check,
         .run = nt_reserve_register},
        {.opcode = NV_IO_RESERVE_REPORT,
         .way = NT_TO_HOST,
         .zeroed = true,
         .check = nt_reserve_report_check,
         .run = nt_reserve_report},
        {.opcode = NV_IO_RESERVE_ACQUIRE,
         .way = NT_FROM_HOST,
         .check = nt_reserve_acquire_check,
         .run = nt_reserve_acquire},
        {.opcode = NV_IO_RESERVE_RELEASE,
         .way = NT_FROM_HOST,
         .check = nt_reserve_release_check,
         .run = nt_reserve_release},
};

const struct nt_command_info *nt_io_info(struct nt_request *r, uint16_t *status)
{
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		if (commands[i].opcode == r->sqe.opcode)
			return &commands[i];
	*status = NV_INVALID_OPCODE | NV_DNR;
	return NULL;
}
