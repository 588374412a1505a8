// sim.h - two streams back to back: programs that post, a connection that splits bytes as it likes, and what must be true
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_IWARP_SIM_H
#define VB_TEST_IWARP_SIM_H

#include "engine/iwarp/state.h"

#define SIM_SENDS 16u
#define SIM_REQUESTS 96u
#define SIM_LENGTH_MAX (300u << 10)
#define SIM_PIPE (1u << 20)
#define SIM_GUARD 64u
#define SIM_PIECES 4

enum sim_mode {
	SIM_NORMAL,
	SIM_DEREG,   /* regions are deregistered */
	SIM_LOCAL,   /* memory of requests and receives becomes inaccessible */
	SIM_SHUT,    /* the connection ends */
	SIM_ABORT,   /* a program ends the stream */
	SIM_STARVED, /* receives are posted late; with some seeds one is never posted */
	SIM_DAMAGED, /* bits flip, and CRCs detect it */
	SIM_MODES,
};

/* Memory in up to SIM_PIECES pieces, with guards around each. */
struct sim_buffer {
	uint8_t *bytes;
	uint32_t total, length, n;
	struct {
		uint32_t at, length;
	} piece[SIM_PIECES];
	bool gone;
};

struct sim_region {
	struct sim_buffer buffer;
	uint64_t base;
	uint8_t access;
	bool valid, last_stored;
	uint8_t *frozen; /* content when it disappeared */
};

struct sim_request {
	struct vb_work work;
	struct sim_buffer local;
	struct sim_region remote; /* at the other side; its STag is the index with some bits */
	uint32_t seed;            /* seed of its data */
	bool takes_receive, sourced;
	uint64_t original;
};

struct sim_receive {
	struct sim_buffer buffer;
};

struct sim;

struct sim_node {
	struct sim *sim;
	int id;
	struct vb_iw_qp qp;
	struct vb_work_sent sends[SIM_SENDS];
	uint8_t *stage, *out;
	struct sim_request requests[SIM_REQUESTS];
	uint32_t goal, posted, taken, completed;
	struct sim_receive receives[SIM_REQUESTS];
	uint32_t consumer[SIM_REQUESTS];                 /* the peer's request for each receive */
	uint32_t r_posted, r_open, r_taken, r_completed; /* open: posted receives that the stream may use */
	uint32_t r_most;                                 /* and the limit of these */
	bool failed, closed, bad_seen;
	enum vb_work_event event;
	enum vb_work_status failure; /* status of the first failed request */
	uint8_t pipe[SIM_PIPE];      /* bytes in flight to it */
	uint32_t pipe_len;
};

struct sim {
	struct sim_node node[2];
	uint64_t random, seed, steps;
	enum sim_mode mode;
	bool verbose;
	char problem[200];
};

void sim_init(struct sim *sim, uint64_t seed);
bool sim_run(struct sim *sim);
void sim_free(struct sim *sim);
uint32_t sim_below(struct sim *sim, uint32_t n);
void sim_fail(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define SIM_MUST(sim, x)                                                    \
	do {                                                                \
		if (!(x))                                                   \
			sim_fail(sim, "%s:%d: %s", __func__, __LINE__, #x); \
	} while (0)

/* memory.c */
void sim_buffer_init(struct sim *sim, struct sim_buffer *b, uint32_t length);
void sim_buffer_free(struct sim_buffer *b);
/* The bytes of a seed. */
void sim_fill(struct sim_buffer *b, uint32_t seed);
bool sim_filled(const struct sim_buffer *b, uint32_t length, uint32_t seed);
bool sim_guarded(const struct sim_buffer *b);
int sim_pieces(const struct sim_buffer *b, uint32_t offset, uint32_t len, struct iovec *iov);

/* work.c */
extern const struct vb_iw_ops sim_ops;
void sim_post(struct sim_node *n);
void sim_check_memory(struct sim *sim, bool all_done);

#endif
