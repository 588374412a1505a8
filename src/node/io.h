// io.h - the part of a node that core/ does not use: descriptors, the progress thread, the polled rings
// see: docs/same-host.md
// SPDX-License-Identifier: MIT
#ifndef VB_NODE_IO_H
#define VB_NODE_IO_H

#include "engine/local/local.h"
#include "broker/client/client.h"
#include "net/netdev.h"
#include "node/transport.h"

#define VB_HOT_MAX 8

struct vb_io {
	int seg_fd, doorbell_fd, wake_fd, epoll_fd;
	struct vb_broker_client *broker;
	struct vb_netmon *netmon;
	struct vb_roce_sockets *roce;
	struct vb_roce_sockets *link; /* packets through an InfiniBand fabric. NULL: none yet; then constant */
	struct vb_watches *watches;
	struct vb_control *control;   /* or NULL */
	struct vb_xrc_owner *xrc;     /* or NULL; set under node->ctx_lock */
	struct vb_walk *_Atomic walk; /* that the owner of progress shall do; or NULL */
	struct vb_iwarp_host *iwarp;
	struct vb_raw_host *raw;
	struct vb_ib_host *ib;    /* NULL: there is no fabric */
	union ibv_gid ib_address; /* by which others on the fabric find this program; zeros: none. Constant */
	struct vb_transport transport[VB_TRANSPORTS];
	pthread_t thread;
	atomic_bool stop;
	bool lacks_pwait2; /* the kernel has no epoll_pwait2; of the thread */

	/* under node->progress */
	struct vb_peer *hot[VB_HOT_MAX];
	unsigned nhot;
	struct vb_peer *dirty[16]; /* peers whose consumed position is not published yet */
	unsigned ndirty;
	unsigned timer_turn;
	unsigned looks, records; /* polls that found nothing in the hot rings, and polls that found records */
	_Atomic uint32_t owing;  /* acknowledgements or consumed positions wait for vb_node_publish; a hint */

	/* path/unresolved.c */
	unsigned unresolved;         /* the number of queue pairs without a path; under progress */
	uint64_t resolve_pause;      /* ns between two tries; under progress */
	_Atomic uint64_t resolve_at; /* when path resolution is retried; 0: never */
	atomic_bool resolve_news;    /* a message of the broker has arrived */

	/* Guards questions to the broker, and its answers. Questions may be noted under any lock. A thread that holds
	 * no spin lock sends them. */
	struct vb_lock questions_lock;
	struct vb_meeting *meetings;              /* under questions_lock */
	struct vb_meeting *_Atomic spare_meeting; /* for the next question */
	uint64_t meet_tag;                        /* under questions_lock */
	atomic_bool questions;                    /* some questions are not sent yet */
	/* pushed under questions_lock, read without it: a peer's struct exists as long as the node */
	struct vb_peer *_Atomic all;
	atomic_bool maps_noted; /* a peer's region is to be mapped, or unmapped: path/local/shared_map.c */
	atomic_uint scanning;   /* threads that are reading hazards: nothing is unmapped meanwhile */

	pthread_mutex_t meet_lock; /* of meet_cond, which signals an answer */
	pthread_cond_t meet_cond;

	struct vb_gsi_client *gsi; /* under meet_lock */
	bool gsi_calling;          /* the progress thread is in a callback of gsi; meet_cond signals its end */
	_Atomic uint64_t gsi_at;   /* when gsi's timeout is due; 0: never */
};

/* path/local/peer.c */
struct vb_peer *vb_peer_self(struct vb_node *node);
void vb_peer_on_introduced(struct vb_node *node, const struct vb_peer_info *info); /* takes the descriptors */
void vb_peer_pidfd(struct vb_node *node, struct vb_peer *peer);                    /* its pidfd became readable */
/* Unmaps the dead peers that no queue pair refers to and no thread holds. Progress thread, no lock held. */
void vb_peers_reap(struct vb_node *node);
void vb_peers_free(struct vb_node *node);
void vb_peers_in_child(struct vb_node *node); /* in a child of fork(): maps private memory in place of peers' memory */

/* Its ring is read again soon, as if it had rung the doorbell. Under progress. */
void vb_peer_look_again(struct vb_node *node, struct vb_peer *p);
/* Keeps the peer's memory mapped until vb_peer_release, even if the peer ends. Returns false if it is not mapped. */
bool vb_peer_hold(struct vb_peer *p);
void vb_peer_release(struct vb_peer *p);

/* path/local/meeting.c */
void vb_peer_on_meet_reply(struct vb_node *node, uint64_t tag, int err, const struct vb_peer_info *info);
void vb_questions_on_reattached(struct vb_node *node); /* sends open questions to a new broker */
void vb_questions_note(struct vb_node *node);          /* the progress thread will send them. Any lock may be held */
void vb_questions_send(struct vb_node *node);          /* those that are not sent yet. No spin lock held */

/* The process of a QP number, if the broker has told it before. Does not ask the broker. NULL with EAGAIN: a question
 * is open, or none was asked. Any lock may be held. */
struct vb_peer *vb_peer_known(struct vb_node *node, uint32_t qpn, const union ibv_gid *dgid, int *err);

/* Finds out whether the address is one of this host, for vb_peer_find. No lock held. */
void vb_peer_address(struct vb_node *node, const union ibv_gid *dgid);

/* path/local/announce.c */
void vb_announce_gids(struct vb_node *node);
void vb_await_broker(struct vb_node *node);

/* path/faulty.c: the rules of fault injection have changed. No lock held. */
void vb_path_arm(struct vb_node *node);
void vb_path_faulty_in_child(void); /* in a child of fork(); so too the next */
void vb_path_limited_in_child(void);

/* path/local/shared_map.c */
void vb_maps_work(struct vb_node *node); /* maps and unmaps what was noted; progress thread */

/* path/roce/sockets.c; progress thread, no lock held */
/* Another program was introduced, or this one. Who shares our socket may have joined or left a group. */
void vb_roce_introduced(struct vb_node *node);
void vb_roce_answered(struct vb_node *node, const struct vb_roce_grant *g); /* takes ownership of the descriptors */
void vb_roce_reattached(struct vb_node *node); /* a new broker: asks an open question again, joins our groups again */

/* path/unresolved.c */

/* Called at the end of vb_path_connect: if the QP has no path, path resolution will be retried. No lock held. */
void vb_unresolved_check(struct vb_qp *qp);
void vb_unresolved_drop(struct vb_qp *qp);      /* Stops retrying for this QP. Under progress. */
void vb_unresolved_again(struct vb_node *node); /* A new broker is attached: retries at once. No lock held. */
void vb_unresolved_look(struct vb_node *node);  /* Retries if due, or after a message of the broker. Progress thread. */

/* path/roce/sockets.c. Asks the broker for our lane, unless we have it, and waits up to wait_ms for the answer. Returns 0
 * or an errno value. The caller holds no spin lock if wait_ms > 0; otherwise it may hold any lock. A refusal is logged
 * once, as an error. */
int vb_roce_bring_up(struct vb_node *node, unsigned wait_ms);

/* progress.c */
/* finish: leaves no work, because the caller may not come back soon. Otherwise does a part, and may skip locked queue
 * pairs. */
unsigned vb_progress_locked(struct vb_node *node, struct vb_cq *cq, unsigned want, bool finish);
bool vb_work_waiting(struct vb_node *node); /* under progress */
bool vb_awaits_network(struct vb_io *io);   /* a queue pair receives by a transport */
void vb_node_publish(struct vb_node *node);
void vb_thread_takes_over(struct vb_node *node); /* for the progress thread; under progress */
/* Called after the progress thread has said that it sleeps, and before its last look. If anybody may write records for this
 * process, it is vb_fence_all, which interrupts each core where such a program runs. */
void vb_fence_for_records(struct vb_node *node);
void vb_hot_drop(struct vb_node *node, struct vb_peer *peer);

/* broker_events.c */
void vb_broker_events(struct vb_node *node); /* handles the broker's messages; progress thread */

/* gsi.c; progress thread */
void vb_gsi_on_mad(struct vb_node *node, const struct vb_msg_cm_mad *m);
void vb_gsi_on_service_reply(struct vb_node *node, const struct vb_msg_service_reply *m);
void vb_gsi_on_reattached(struct vb_node *node);
void vb_gsi_on_time(struct vb_node *node); /* calls its timeout if due */

/* thread.c */
void vb_network_changed(struct vb_node *node); /* a port has changed: raises its events. No lock held */
int vb_progress_start(struct vb_node *node);
void vb_progress_stop(struct vb_node *node);
void vb_progress_wake(struct vb_node *node); /* any thread, under any lock; keeps errno */

/* watch.c */

/* A descriptor that the progress thread watches, even while a poller owns progress; level-triggered. fn runs in that
 * thread with no lock held. It must not block, and may remove or change any watch. */
struct vb_watch {
	int fd;
	void (*fn)(struct vb_watch *w, uint32_t events); /* EPOLL* */
	uint32_t slot;                                   /* private to watch.c */
};
int vb_watch_add(struct vb_node *node, struct vb_watch *w, uint32_t events); /* 0 or an errno. Any thread */
int vb_watch_change(struct vb_node *node, struct vb_watch *w, uint32_t events);
/* fn does not run after it returns, unless it is called from within that fn. The caller keeps the descriptor. */
void vb_watch_remove(struct vb_node *node, struct vb_watch *w);

struct vb_watches *vb_watches_new(struct vb_node *node);
void vb_watches_free(struct vb_watches *s);
void vb_watches_in_child(struct vb_node *node);
void vb_watches_dispatch(struct vb_node *node); /* calls fn of watches with events; progress thread */

#endif
