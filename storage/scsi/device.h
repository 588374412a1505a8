// device.h - a SCSI target device with its logical units, nexuses, tasks and task management. It knows no transport and
// does no I/O but the backend's, and that of kept reservations
// follows: SAM-5; SPC-4; SBC-3
// SPDX-License-Identifier: MIT
#ifndef SC_DEVICE_H
#define SC_DEVICE_H

#include "backend/backend.h"
#include "scsi/be.h"
#include "scsi/scsi.h"

#define SC_LUNS 64u
#define SC_CDB_MAX 16u
#define SC_SENSE_LEN 18u           /* fixed format */
#define SC_SENSE_MAX 20u           /* descriptor format, with one descriptor */
#define SC_REPLY_MAX 4096u         /* the longest data that is not read from the medium */
#define SC_TRANSFER_MAX (1u << 20) /* bytes of one command */
#define SC_MEMORY_MAX (2u << 20)   /* bytes of memory that one command needs */
#define SC_SAME_MAX (1ull << 30)   /* bytes of one WRITE SAME */
#define SC_UNMAP_RANGES 64u        /* descriptors of one UNMAP */
#define SC_PORT_ID 16u             /* an initiator port: 16 bytes, as SRP has them */
#define SC_REGISTRATIONS 64u       /* persistent reservations: registrants of a logical unit */

struct sc_lu;
struct sc_task;
struct sc_row;

/* An initiator port that is logged in. The transport owns it, and keeps it until its tasks are done. */
struct sc_nexus {
	struct sc_nexus *next;
	struct sc_target *target;
	uint8_t port[SC_PORT_ID];
	uint32_t attention[SC_LUNS]; /* bits 1 << enum sc_attention */
};

struct sc_registration {
	uint8_t port[SC_PORT_ID];
	uint64_t key; /* 0: a free entry */
};

/* What MODE SELECT has changed. All zeros: the defaults. */
struct sc_mode {
	bool write_through;     /* WCE is 0: each write is durable when it ends */
	bool protected;         /* SWP */
	bool sense_descriptors; /* D_SENSE */
};

struct sc_lu {
	struct sc_target *target;
	struct nb_backend *backend; /* owned */
	uint16_t number;
	bool stopped, starting; /* starting: tasks that may begin are looked for later */
	struct sc_mode mode;
	struct sc_lu *next;              /* of those that are removed */
	uint64_t id;                     /* the same for the same medium; identifies it in pages 80h and 83h */
	struct sc_task *first, *last;    /* the task set, the oldest first */
	uint32_t barriers;               /* tasks that younger ones wait for */
	const struct sc_nexus *reserved; /* by RESERVE */
	/* persistent reservations. SPC-4, 5.13 */
	struct sc_registration registrations[SC_REGISTRATIONS];
	uint32_t generation;
	uint8_t type;                       /* 0: no reservation */
	const struct sc_registration *held; /* the holder; with all registrants, any */
	char *kept;                         /* the file that keeps them, or NULL */
	bool aptpl;                         /* they are to be kept */
};

struct sc_target {
	struct sc_lu *lus[SC_LUNS];
	struct sc_lu *removed; /* their last tasks still run */
	struct sc_nexus *nexuses;
	uint8_t port[SC_PORT_ID]; /* the target port identifier */
};

enum sc_attr { SC_SIMPLE, SC_HEAD, SC_ORDERED };

enum sc_state {
	SC_IDLE,
	SC_WAITING, /* the transport has not called sc_task_run yet */
	SC_READY,   /* waits for older tasks */
	SC_RUNNING, /* a request of the backend is in progress */
};

enum sc_function { SC_ABORT_TASK, SC_ABORT_TASK_SET, SC_CLEAR_TASK_SET, SC_LUN_RESET, SC_CLEAR_ACA };
enum sc_manage_result { SC_COMPLETE, SC_NOT_SUPPORTED, SC_INCORRECT_LUN };

/* Task management. The transport owns it until done. */
struct sc_manage {
	struct sc_nexus *nexus;
	uint8_t lun[8], function; /* enum sc_function */
	uint64_t tag;             /* SC_ABORT_TASK: of the task */
	void (*done)(struct sc_manage *m, enum sc_manage_result result);
	/* internal */
	uint32_t pending;       /* aborted tasks that still run */
	struct sc_manage *then; /* a later one, which waits for this one */
};

/*
 * One command. Its memory belongs to the transport. The transport fills the first part and calls sc_task_start, which
 * may call done at once, if the command is refused. Otherwise it provides the memory, fetches the data that the command
 * needs, and calls sc_task_run. done is called exactly once, possibly from within these calls or from those of other
 * tasks. If aborted is set then, no response is sent.
 */
struct sc_task {
	struct sc_nexus *nexus;
	uint8_t lun[8], cdb[SC_CDB_MAX];
	enum sc_attr attr;
	uint64_t tag;
	uint32_t offered; /* bytes that the initiator has for data-out */
	void (*done)(struct sc_task *t);
	/* set by sc_task_start */
	uint32_t length; /* bytes of memory that the command needs; 0: none */
	uint32_t fetch;  /* … of which these first bytes are the data-out */
	/* set by the transport before sc_task_run; best aligned to NB_ALIGN */
	uint8_t *data;
	/* the result */
	uint8_t status;
	bool aborted;
	uint8_t sense[SC_SENSE_MAX], sense_len;
	uint8_t *reply; /* the data-in, within data */
	uint32_t given;
	/* internal */
	struct sc_lu *lu;
	const struct sc_row *row;
	struct sc_task *next, *prev;
	struct sc_manage *manage;  /* the first that aborts it */
	struct sc_manage aborting; /* PREEMPT AND ABORT waits for tasks itself */
	struct nb_request request;
	enum sc_state state;
	bool barrier, exclusive, fua, punch;
	void (*io_done)(struct sc_task *t, int error);
	unsigned step;
	uint64_t lba, blocks, at;
};

/* Makes a logical unit of the backend, and owns it then. seed: identifies a medium that has no identity. 0 or errno. */
int sc_lu_add(struct sc_target *t, unsigned number, struct nb_backend *b, const char *seed);
/* Takes the persistent reservations that are kept in the directory, and keeps there those that ask for it. 0 or errno;
 * EINVAL: what is kept cannot be understood; EPERM: others own the directory, or may write to it; EEXIST: another unit
 * keeps those of the same medium there. */
int sc_keep(struct sc_lu *lu, const char *directory);
void sc_target_close(struct sc_target *t); /* when all nexuses have gone */
/*
 * Ends the waiting tasks of a unit, and takes it from the target. It is freed by a later sc_target_sweep, which the
 * owner calls from time to time: when its running tasks have ended.
 */
void sc_lu_remove(struct sc_lu *lu);
void sc_target_sweep(struct sc_target *t);
/* Reads the medium's size again. 0 or errno; *changed: initiators will be told. */
int sc_lu_resize(struct sc_lu *lu, bool *changed);
void sc_luns_changed(struct sc_target *t); /* tells the initiators that units were added or removed */

/* port is filled in. */
void sc_nexus_open(struct sc_target *t, struct sc_nexus *n);
void sc_nexus_close(struct sc_nexus *n); /* when all its tasks are done */

void sc_task_start(struct sc_task *t);
void sc_task_run(struct sc_task *t);
/* The transport could not move the data, or the channel of the task ends. done may come later. */
void sc_task_abort(struct sc_task *t);
void sc_manage(struct sc_manage *m);

#endif
