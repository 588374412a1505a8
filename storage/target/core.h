// core.h - functions shared by the files of the protocol core
// SPDX-License-Identifier: MIT
#ifndef NT_CORE_H
#define NT_CORE_H

#include "target/target.h"

enum nt_way { NT_NO_DATA, NT_FROM_HOST, NT_TO_HOST };

/* One row for each command. */
struct nt_command_info {
	uint8_t opcode;
	uint8_t way;                             /* enum nt_way */
	bool two_buffers;                        /* needs a second buffer of the same length */
	bool zeroed;                             /* the buffer for the host's data is zeroed first */
	uint16_t (*check)(struct nt_request *r); /* returns 0 and sets r->length, or returns a status */
	void (*run)(struct nt_request *r);       /* has the host's data, or a buffer for it; ends with nt_complete */
};

#define NT_INVALID(r, at) ((r)->error_at = (at), (uint16_t)(NV_INVALID_FIELD | NV_DNR))

/* queue.c */
void nt_fail(struct nt_request *r, uint16_t status); /* completes it as soon as the core owns it */
void nt_hold(struct nt_request *r);                  /* sets the state NT_HELD */
void nt_lend(struct nt_request *r);                  /* sets the state NT_BACKEND */
void nt_admit(struct nt_request *r);                 /* it has passed the limits: memory, then the start */
void nt_start(struct nt_request *r);                 /* it has its memory, or needs none */
bool nt_queue_ready(struct nt_queue *q, uint16_t entries);

/* memory.c */
bool nt_memory_get(struct nt_request *r);    /* false: it waits */
void nt_memory_unwait(struct nt_request *r); /* it does not wait any more */
void nt_memory_give(struct nt_request *r);
void nt_memory_leave(struct nt_request *r, struct nb_late *l); /* its buffers go to l, and are freed with it */
void nt_memory_serve(struct nt_target *t);                     /* gives free memory to those who wait */
void nt_memory_pace(struct nt_request *r, enum nt_pace pace);  /* it counts there from now on, or waits there */
uint32_t nt_memory_of_slow(const struct nt_target *t);         /* limit of the memory that counts as NT_SLOW */
void nt_queue_recount(struct nt_queue *q, struct nt_peer *to); /* charges its requests to another peer */
/* A command with its data in the capsule waits for a limit: fetches the data, so that its connection goes on. False:
 * too many have done so. */
bool nt_memory_park(struct nt_request *r);

/* slow.c */
uint64_t nt_slow_tick(struct nt_target *t); /* returns when to call again */

/* qos.c */
bool nt_qos_pass(struct nt_request *r); /* true: it may go on; false: it waits, and nt_admit will be called */
void nt_qos_leave(struct nt_request *r);
uint64_t nt_qos_due(const struct nt_target *t);
void nt_turn(struct nt_request *r);      /* calls nt_launch as soon as the medium of its namespace has room */
void nt_turn_done(struct nt_request *r); /* its answer has come, or it will not be sent to the medium */
void nt_gate_open(struct nt_gate *g, struct nt_target *t);
void nt_gate_lift(struct nt_gate *g); /* lets everything go that waits there, and all that comes */
struct nt_account *nt_account_join(struct nt_target *t, const char *hostnqn); /* NULL: no memory */
void nt_account_leave(struct nt_target *t, struct nt_account *a);
void nt_accounts_forget(struct nt_target *t);

void nt_connects_again(struct nt_target *t); /* fabrics.c: to be called when a queue has gone */

/* fabrics.c, admin.c, io.c: the row of a command, or NULL and *status */
const struct nt_command_info *nt_fabrics_info(struct nt_request *r, uint16_t *status);
const struct nt_command_info *nt_admin_info(struct nt_request *r, uint16_t *status);
const struct nt_command_info *nt_io_info(struct nt_request *r, uint16_t *status);

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
void nt_event(struct nt_controller *c, uint32_t info);
void nt_event_read(struct nt_controller *c, uint32_t info); /* the host has read its log page */
void nt_event_ns(struct nt_subsystem *s, uint32_t nsid);
void nt_event_discovery(struct nt_target *t);                              /* the discovery log has changed */
bool nt_event_forget(struct nt_controller *c, const struct nt_request *r); /* true: it was waiting */
bool nt_event_drop(struct nt_controller *c, uint16_t cid); /* … with this command id, without an answer */

/* reserve.c */
uint16_t nt_reserve_check(const struct nt_request *r); /* 0, or what a reservation makes of it */
void nt_reserve_admit(struct nt_request *r);           /* it goes to the medium */
void nt_reserve_leave(struct nt_request *r);           /* … and is done there */
void nt_reserve_open(struct nt_namespace *ns);
/* What the backend shares has changed. joins: the namespace's reservations were the target's own before. */
void nt_reserve_changed(struct nt_namespace *ns, bool joins);
uint16_t nt_reserve_register_check(struct nt_request *r);
void nt_reserve_register(struct nt_request *r);
uint16_t nt_reserve_acquire_check(struct nt_request *r);
void nt_reserve_acquire(struct nt_request *r);
uint16_t nt_reserve_release_check(struct nt_request *r);
void nt_reserve_release(struct nt_request *r);
uint16_t nt_reserve_report_check(struct nt_request *r);
void nt_reserve_report(struct nt_request *r);
void nt_reserve_persist(struct nt_request *r, bool persists); /* r->ns is set */

/* notice.c */
void nt_notices(struct nt_namespace *ns, const struct nr_state *next); /* the reservation changes to next */
uint8_t *nt_notice_log(struct nt_request *r, size_t *len);
void nt_notice_read(struct nt_controller *c);

/* io.c */
uint16_t nt_check_ns(struct nt_request *r);                   /* sets r->ns, and checks its path */
void nt_launch(struct nt_request *r);                         /* executes it at the medium */
uint16_t nt_io_status(const struct nt_request *r, int error); /* for the medium's answer to r->io */
void nt_fuse(struct nt_request *first, struct nt_request *second);

/* order.c */
void nt_write_turn(struct nt_request *r); /* calls nt_turn when no fused pair forbids it */
void nt_write_done(struct nt_request *r);
void nt_waiting_remove(struct nt_request *r); /* to be followed by nt_waiting_go */
void nt_waiting_go(struct nt_namespace *ns);  /* starts writes that need not wait any more */

/* losses.c */
void nt_lost(struct nt_namespace *ns); /* the medium has lost data that hosts wrote and did not flush */
void nt_flush_comes(struct nt_controller *c,
                    const struct nt_namespace *ns); /* a flush arrives: earlier answers were received */
bool nt_tell_loss(struct nt_controller *c,
                  const struct nt_namespace *ns); /* true: there is a loss that its host has not been told of */
void nt_losses_begin(struct nt_controller *c);    /* when it is enabled: its host has authenticated */
void nt_losses_end(struct nt_controller *c);
void nt_losses_forget(const struct nt_subsystem *s);

/* peer.c */
bool nt_peer_discovers(struct nt_queue *q); /* the queue is for the discovery log; false: there are too many of these */
bool nt_peer_in(struct nt_queue *q, const char *hostnqn); /* the queue was admitted; false: its host has too many */

bool nt_peer_tries(struct nt_queue *q); /* a computation that takes milliseconds; false: too many failures */
void nt_peer_succeeds(struct nt_queue *q);
void nt_peers_forget(struct nt_target *t); /* all queues have gone */

/* controller.c */
struct nt_controller *nt_controller_open(struct nt_subsystem *s, struct nt_queue *q, const char *hostnqn);
bool nt_is_of_host(const struct nt_controller *c, const char *hostnqn, const uint8_t *hostid);
void nt_controller_end(struct nt_controller *c);                    /* ends all its connections */
void nt_controller_detach(struct nt_queue *q);                      /* the queue has gone */
void nt_controller_configure(struct nt_controller *c, uint32_t cc); /* the host has written CC */
struct nt_controller *nt_controller_find(struct nt_target *t, uint16_t id);
uint64_t nt_controller_cap(void);
bool nt_controller_place(struct nt_queue *q); /* gives an I/O queue its place; false: the place is taken */
void nt_controller_unproven(struct nt_queue *q);
void nt_auth_begin(struct nt_queue *q); /* starts the time limit, if it does not run yet */

/* target.c */
struct nt_namespace *nt_ns_get(struct nt_subsystem *s, uint32_t nsid); /* NULL: none; release with nt_ns_put */
void nt_ns_put(struct nt_namespace *ns);
void nt_subsystem_put(struct nt_subsystem *s); /* a controller has left */

#endif
