// core.h - what the files of the protocol core have in common
// SPDX-License-Identifier: MIT
#ifndef NT_CORE_H
#define NT_CORE_H

#include "target/target.h"

enum nt_way { NT_NO_DATA, NT_FROM_HOST, NT_TO_HOST };

/* One row for each command. */
struct nt_verb {
	uint8_t opcode;
	uint8_t way;                             /* enum nt_way */
	bool two;                                /* needs a second buffer of the same length */
	bool zeroed;                             /* room for the host's data is zeroed first */
	uint16_t (*check)(struct nt_request *r); /* 0 and r->length, or a status */
	void (*run)(
	        struct nt_request *r); /* called with the host's data, or room for its answer; ends with nt_complete */
};

#define NT_INVALID(r, at) ((r)->error_at = (at), (uint16_t)(NV_INVALID_FIELD | NV_DNR))

/* queue.c */
void nt_fail(struct nt_request *r, uint16_t status);           /* as soon as it is ours */
void nt_hold(struct nt_request *r);                            /* state NT_HELD */
void nt_lend(struct nt_request *r);                            /* state NT_BACKEND */
void nt_queue_recount(struct nt_queue *q, struct nt_peer *to); /* its requests' memory, and their places in line */
bool nt_queue_ready(struct nt_queue *q, uint16_t entries);

void nt_connects_again(struct nt_target *t); /* fabrics.c: a queue is gone */

/* fabrics.c, admin.c, io.c: the row of a command, or NULL with *status */
const struct nt_verb *nt_fabrics_verb(struct nt_request *r, uint16_t *status);
const struct nt_verb *nt_admin_verb(struct nt_request *r, uint16_t *status);
const struct nt_verb *nt_io_verb(struct nt_request *r, uint16_t *status);

/* identify.c, features.c, log.c, discovery.c, event.c */
uint16_t nt_identify_check(struct nt_request *r);
void nt_identify(struct nt_request *r);
uint16_t nt_set_features_check(struct nt_request *r);
void nt_set_features(struct nt_request *r);
uint16_t nt_get_features_check(struct nt_request *r);
void nt_get_features(struct nt_request *r);
void nt_features_reset(struct nt_controller *c);
uint16_t nt_get_log_check(struct nt_request *r);
void nt_get_log(struct nt_request *r);
void nt_log_error(struct nt_request *r, uint16_t status);
uint8_t *nt_discovery_log(struct nt_request *r, size_t *len); /* malloc'd */
uint16_t nt_async_event_check(struct nt_request *r);
void nt_async_event(struct nt_request *r);
void nt_event(struct nt_controller *c, uint8_t info);
void nt_event_read(struct nt_controller *c, uint8_t info); /* its log page has been read */
void nt_event_ns(struct nt_subsystem *s, uint32_t nsid);
void nt_event_discovery(struct nt_target *t);                              /* what hosts would discover has changed */
bool nt_event_forget(struct nt_controller *c, const struct nt_request *r); /* true: it was waiting for an event */
bool nt_event_drop(struct nt_controller *c, uint16_t cid); /* … with this number, and gets no answer */

/* io.c */
void nt_write_done(struct nt_request *r);
void nt_waiting_remove(struct nt_request *r); /* nt_waiting_go follows */
void nt_waiting_go(struct nt_namespace *ns);

/* losses.c */
void nt_lost(struct nt_namespace *ns); /* its medium could not keep what hosts have written and not flushed */
void nt_flush_comes(struct nt_controller *c,
                    const struct nt_namespace *ns); /* answers to earlier commands have arrived */
bool nt_tell_loss(struct nt_controller *c,
                  const struct nt_namespace *ns); /* true: there was one that it did not know of */
void nt_losses_begin(struct nt_controller *c);    /* it is enabled: its host has authenticated, if required */
void nt_losses_end(struct nt_controller *c);
void nt_losses_forget(const struct nt_subsystem *s);
void nt_fuse(struct nt_request *first, struct nt_request *second);

/* peer.c */
bool nt_peer_discovers(struct nt_queue *q); /* it is to see the discovery log; false: there are too many of these */
bool nt_peer_in(struct nt_queue *q, const char *hostnqn); /* it has authenticated; false: its host has too many */

bool nt_peer_tries(
        struct nt_queue *q); /* what costs milliseconds of everybody's time; false: it has been too often in vain */
void nt_peer_succeeds(struct nt_queue *q);
void nt_peers_forget(struct nt_target *t); /* all queues are gone */

/* controller.c */
struct nt_controller *nt_controller_open(struct nt_subsystem *s, struct nt_queue *q);
void nt_controller_end(struct nt_controller *c);                    /* all its connections are to go */
void nt_controller_detach(struct nt_queue *q);                      /* the queue is gone */
void nt_controller_configure(struct nt_controller *c, uint32_t cc); /* CC is written */
struct nt_controller *nt_controller_find(struct nt_target *t, uint16_t id);
uint64_t nt_controller_cap(void);
bool nt_controller_place(struct nt_queue *q); /* an I/O queue gets its place; false: that is taken */
void nt_controller_unproven(struct nt_queue *q);
void nt_auth_begin(struct nt_queue *q); /* from now on there is so long for it, if there was nothing before */

/* target.c */
struct nt_namespace *nt_ns_get(struct nt_subsystem *s, uint32_t nsid); /* NULL: none; else nt_ns_put */
void nt_ns_put(struct nt_namespace *ns);
void nt_subsystem_put(struct nt_subsystem *s); /* a controller has left */

#endif
