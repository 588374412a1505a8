// channel.h - channels of a SRP target: messages in, responses and movements of data out. It knows no adapter
// follows: SRP (ANSI INCITS 365, T10/1415-D)
// SPDX-License-Identifier: MIT
#ifndef SP_CHANNEL_H
#define SP_CHANNEL_H

#include "scsi/device.h"
#include "srp/srp.h"
#include "target/pool.h"

#define SP_CREDITS 64u
#define SP_SLOTS (2 * SP_CREDITS) /* a response that the initiator has not acknowledged keeps its slot */
#define SP_CHUNK 8u               /* movements of one request at once */
#define SP_IU_MIN 64u
#define SP_IU_MAX 16384u
#define SP_RESPONSE_MAX 64u
#define SP_CHANNELS 128u
#define SP_CHANNELS_OF_HOST 64u /* so that no host can keep others out */
#define SP_CHANNELS_OF_ONE 16u
#define SP_POOL (8u << 20) /* bytes for the data of a channel */

struct sp_channel;

/* One read or write of the initiator's memory. */
struct sp_move {
	uint8_t *local;
	uint64_t va;
	uint32_t key, len;
};

enum sp_state {
	SP_FREE,
	SP_MEMORY, /* waits for memory */
	SP_TABLE,  /* its descriptor table is fetched */
	SP_FETCH,  /* its data-out is fetched */
	SP_TASK,   /* a command or a management function is in progress */
	SP_GIVE,   /* its data-in is written */
	SP_ANSWER, /* its response is sent */
};

struct sp_request {
	struct sp_channel *channel;
	enum sp_state state;
	bool managing; /* it is a management function */
	bool done;     /* it ended while data was fetched for it, or was aborted while its data-in was written */
	bool invalid;  /* its descriptors are for less data than they said */
	bool in_line;  /* … for memory */
	struct sc_task task;
	struct sc_manage manage;
	uint64_t tag;
	struct sp_buffer out, in;
	const uint8_t *immediate;
	uint8_t *table, *memory; /* blocks of the pool */
	uint32_t table_len;
	/* the data that is being moved */
	struct sp_buffer *buffer;
	uint8_t *at;
	uint32_t left, desc;
	struct sp_move moves[SP_CHUNK];
	uint32_t move_count;
	struct sp_request *next; /* that waits for memory */
	uint8_t *response;       /* SP_RESPONSE_MAX bytes; set by the adapter's end */
	size_t response_len;
};

/* The adapter's end. Requests are named by their slots: the number of the receive buffer. */
struct sp_ops {
	/* Reads or writes moves; sp_moved is called when all are done. */
	void (*move)(struct sp_request *r, bool write);
	/* Writes moves, then sends the response; sp_answered follows. */
	void (*answer)(struct sp_request *r);
	void (*release)(struct sp_request *r); /* there is no response: the receive buffer is free */
	void (*tell)(struct sp_channel *c, const uint8_t *message, size_t len); /* SP_RESPONSE_MAX at most */
	void (*fail)(struct sp_channel *c); /* the connection has to end; sp_channel_close follows later */
	void (*gone)(struct sp_channel *c); /* the last request has ended after sp_channel_close */
};

struct sp_nexus {
	struct sc_nexus scsi; /* first */
	struct sp_nexus *next;
	uint32_t channels;
	bool leaving; /* another login has ended its channels */
};

struct sp_channel {
	struct sp_channel *next;
	struct sp_target *target;
	struct sp_nexus *nexus;
	const struct sp_ops *ops;
	struct nt_pool *pool;
	uint32_t immediate, to_target, to_initiator; /* agreed on: offset, lengths of messages */
	uint32_t active, owed;                       /* requests in use; credits that no response has returned */
	bool closed, serving;
	/* requests of the target: those that are not answered yet; the events that the next one may report */
	uint32_t asking;
	bool tells_events, luns_changed;
	uint64_t resized; /* a bit for each unit */
	struct sp_request *waiting, **waiting_end;
	struct sp_request requests[SP_SLOTS];
};

struct sp_target {
	struct sc_target scsi;
	struct sp_nexus *nexuses;
	struct sp_channel *channels;
	uint32_t count;
};

/* Checks a login. 0, or a reason to reject it. */
uint32_t sp_login_check(const struct sp_target *t, const struct sp_login *l);
/* Opens a channel in c, which is zeroed, and fills the response. False: no memory. */
bool sp_channel_open(struct sp_channel *c, struct sp_target *t, const struct sp_ops *ops, const struct sp_login *l,
                     struct sp_login_rsp *rsp);
/* No movement and no message is in progress any more. ops->gone follows, possibly at once. */
void sp_channel_close(struct sp_channel *c);
void sp_channel_free(struct sp_channel *c); /* in ops->gone: frees all but the channel itself */
void sp_received(struct sp_channel *c, unsigned slot, const uint8_t *message, size_t len);
void sp_moved(struct sp_request *r);
void sp_answered(struct sp_request *r);
void sp_logout(struct sp_channel *c); /* tells the initiator that the target goes */
/* Report changes of units to those that are logged in. The unit attentions are the SCSI layer's. */
void sp_report_luns(struct sp_target *t);
void sp_report_capacity(struct sp_target *t, unsigned lun);
void sp_report_next(struct sp_channel *c); /* sends what waits, if the initiator takes it now */

static inline unsigned sp_slot(const struct sp_request *r)
{
	return (unsigned)(r - r->channel->requests);
}

#endif
