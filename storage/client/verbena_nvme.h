// verbena_nvme.h - disks over NVMe over Fabrics, by TCP or RDMA: the whole public interface of libverbena-nvme
// follows: NVM Express Base 1.4, 6 (NVM commands); NVMe over Fabrics 1.1; NVMe/TCP transport specification 1.0
// SPDX-License-Identifier: MIT
#ifndef VERBENA_NVME_H
#define VERBENA_NVME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VN_API __attribute__((visibility("default")))

/*
 * Threads. Everything that takes a struct vn_disk may be called by any thread at any time, but for vn_close, which must
 * be the last call on it. One lock serves a disk: threads that want to run side by side at full speed open one disk
 * each. Callbacks run inside vn_poll, vn_close and the synchronous calls, in the thread that made that call, and may be
 * those of requests of other threads; no lock is held. They may make any call but, on the same disk, vn_poll, vn_close
 * and the synchronous ones.
 *
 * Each disk has one thread of the library's own, which keeps the connection alive and makes a new one when it breaks.
 * It never runs callbacks. A process that forks must not use a disk in the child.
 *
 * Errors. Functions return 0 (or a count), or a negative errno value; out-parameters are untouched then. Requests end
 * in their callback with 0 or one of
 *
 *   -EIO         the target reports an error that has no better name here, or data that could not be read or written
 *   -EILSEQ      the data of a compare differ
 *   -ENOSPC      beyond the end of the disk as the target now sees it, or its capacity is used up
 *   -EROFS       the disk is write protected
 *   -EOPNOTSUPP  the target does not know this command
 *   -ENODEV      the namespace is gone
 *   -ENOTCONN    the connection broke, and could not be made again in reconnect_ms
 *   -ECANCELED   vn_close came first
 *   -ENOMEM      no memory, or none that could be registered for RDMA
 */

struct vn_disk;

/* ---- opening ---- */

/*
 * An address is nvme+tcp://HOST[:PORT][/NQN][?nsid=N], nvme+tls://… (the same, and there must be a key), nvme+rdma://…
 * or nvme+auto://…. HOST is a name, an IPv4 address or an IPv6 address in brackets; PORT is 4420 where none is named;
 * the namespace is the first one in the target's list where none is named, and stays that one.
 *
 * auto: RDMA if both ends can do it, else TCP. PORT is the one for TCP: the discovery log there says which port takes
 * RDMA; where it names none, PORT itself is tried by rdma_cm, for half of the time that RDMA is given. That is rdma_ms;
 * where an interface has two adapters, RoCE and iWARP, half of it for each. A target that rdma_cm has reached then has
 * 4 s more for its answers, within connect_ms: it may hold the first one back for a while. A connection that could not
 * be made with RDMA, or breaks and cannot be made again with it, is made with TCP. When that breaks, too, and
 * rdma_again_ms have passed, RDMA is tried again; where that is in vain, not before twice that time, and so on.
 *
 * rdma: where an interface has two adapters, RoCE is tried first, iWARP if that fails; each has half of connect_ms.
 */

struct vn_options {
	size_t size;           /* of this struct, as vn_options_init left it */
	unsigned queue_depth;  /* outstanding commands per I/O queue; 1 to 1023, limited by the target. 128 */
	unsigned queues;       /* I/O queues, each with its own connection; 1 to 64, limited by the target. 1 */
	unsigned max_transfer; /* bytes of the largest command; more are split. The target's limit counts, too. 2 MiB */
	const char *host_nqn;  /* NULL: /etc/nvme/hostnqn, or one made from /etc/machine-id */
	const unsigned char *host_id; /* 16 bytes. NULL: /etc/nvme/hostid, or one made from the host NQN */
	unsigned keep_alive_ms; /* the target may forget us after so long without a sign of life. 15,000; 0: never */
	unsigned connect_ms;    /* for one attempt to connect, with all its queues. 10,000 */
	unsigned rdma_ms; /* … for the part of it that rdma_cm may take when TCP is the alternative (auto). 3,000 */
	unsigned rdma_again_ms; /* auto: RDMA that has failed is not tried again before. 60,000 */
	/* a command not answered in this time, nor any other, or too many others: the connection counts as broken.
	 * 30,000; 0: never */
	unsigned io_ms;
	unsigned reconnect_ms;       /* for how long to try, once a connection has broken. 600,000; 0: not at all */
	unsigned reconnect_pause_ms; /* between two attempts, at most (it begins with a tenth of it). 1,000 */
	unsigned spin_us; /* with RDMA, who waits looks for so long before sleeping, with much data under way for up to
	                            * eight times as long, but not longer than it waits; seldom where that is in vain. 200 */
	unsigned retries; /* retries of a command that the target failed without DNR. 5 */
	unsigned char header_digest, data_digest; /* CRC32C of TCP's PDUs and data; used if the target agrees. 0, 0 */
	unsigned char require_digest;             /* … and no connection if it does not. 0 */
	unsigned char numeric;                    /* HOST is an address: no name is looked up. 0 */
	/*
	 * Secrets of DH-HMAC-CHAP as `nvme gen-dhchap-key` prints them, "DHHC-1:0N:BASE64:"; copied, and wiped with the
	 * disk. The first is ours, for targets that ask for it. With the second one the target has to prove on every
	 * connection that it has it; there is no disk (-EACCES) if it cannot. NULL, NULL
	 */
	const char *secret, *controller_secret;
	/*
	 * The key of TLS, "NVMeTLSkey-1:0N:BASE64:"; copied and wiped in the same way. With it TCP is only spoken
	 * inside of TLS 1.3, and RDMA, which has nothing like it, is not used (auto), or refused (-EOPNOTSUPP). NULL
	 */
	const char *tls_key;
};

/* Fills in the values that are named above. */
VN_API void vn_options_init(struct vn_options *o);

/*
 * Connects, and returns when requests can be made: after connect_ms at the latest, but for what looking up a name
 * takes. options: NULL for the default; copied. why: NULL, or room for a sentence (at most why_len bytes) that says
 * what went wrong. -EINVAL: the address or an option is invalid. -ENXIO: no such subsystem or namespace there.
 * -EACCES: the target does not want this host, or one of the two could not prove who it is. -EBUSY: it says to come
 * again later, all the time. -EPROTO: it does not speak NVMe/TCP, or not correctly. -ENODEV: no RDMA device reaches it.
 * -EOPNOTSUPP: a library built without RDMA, or without OpenSSL for secrets and keys; a namespace with metadata;
 * digests that were required. Else what connect(2) and rdma_cm say.
 */
VN_API int vn_open(const char *url, const struct vn_options *options, struct vn_disk **disk, char *why, size_t why_len);

/* Outstanding requests end with -ECANCELED; a target may still execute them. The caller must flush before. */
VN_API void vn_close(struct vn_disk *disk);

/*
 * What the target says about the disk; belongs to it. Does not change while it is open, but for the size: that is the
 * new one as soon as the target has told of it, or after a reconnect.
 */
struct vn_info {
	uint64_t size;         /* bytes */
	uint32_t block_size;   /* bytes: all offsets and lengths are multiples of it */
	uint32_t max_transfer; /* bytes of one command: MDTS and options together */
	uint32_t optimal_io;   /* bytes: the namespace's preferred write size, 0 if it reports none */
	uint32_t nsid;
	uint16_t queues; /* I/O queues in use when it was opened */
	uint16_t queue_depth;
	uint16_t controller;                          /* its id, when it was opened */
	unsigned char volatile_cache;                 /* a flush does something */
	unsigned char compare, discard, write_zeroes; /* the command is there */
	unsigned char readonly; /* it was write protected when it was opened: writes fail with -EROFS */
	char model[41], serial[21], firmware[9];
	char nqn[224]; /* of the subsystem */
	char uuid[37]; /* of the namespace, "" if it has none */
};
VN_API const struct vn_info *vn_info(const struct vn_disk *disk);

/* "tcp" or "rdma": the transport of the present or last connection. */
VN_API const char *vn_transport_name(struct vn_disk *disk);

/* ---- memory ---- */

struct vn_memory;

/*
 * Says that requests will use this memory; until vn_unregister, nothing else need be said with them. With RDMA the
 * target then reads and writes it by itself. Registered memory is open to a target that is connected by RDMA as a
 * whole, for as long as the connection lasts, not only while a request is under way. Regions may not overlap (-EEXIST).
 * With TCP this costs nothing, and gains nothing until the disk should move to RDMA.
 *
 * Requests may also use memory that is not registered: with RDMA 32 KiB or less are then copied by this library, and
 * more are registered for the one request.
 */
VN_API int vn_register(struct vn_disk *disk, void *address, size_t length, struct vn_memory **memory);

/*
 * The same with memory that the library makes: zeros, and page-aligned. What is read into it takes the shortest way
 * there is: a target on this host that uses Verbena, too, and may look into this process, maps it and needs no system
 * call to reach it. vn_unregister gives it back.
 */
VN_API int vn_allocate(struct vn_disk *disk, size_t length, void **address, struct vn_memory **memory);

/* -EBUSY: requests still use it. vn_close unregisters the rest. The caller keeps the memory itself. */
VN_API int vn_unregister(struct vn_disk *disk, struct vn_memory *memory);

/* ---- requests ---- */

typedef void vn_done(void *arg, int error);

#define VN_FUA 0x1u     /* writes and zeroes: on stable storage before they are done */
#define VN_DISCARD 0x2u /* zeroes: the target may free the space */
#define VN_MORE 0x4u    /* another request follows at once: this one need not go out before that, or vn_poll */

/*
 * Each begins a request and returns 0, and its callback will be called exactly once; or a negative errno value, and it
 * will not: -EINVAL where offset or length is not a multiple of block_size, the length is 0, the range is not on the
 * disk, or flags are unknown; -ESHUTDOWN when the connection is given up; -ENOMEM. The buffer belongs to the library
 * until then. Any number may be begun: those that find no room at the target wait here, in order.
 *
 * Order. Requests run side by side and in any order, those that are split in themselves, too. Who needs an order waits
 * for the first before beginning the second. A flush makes stable what was done (its callback called) when the flush
 * was begun.
 *
 * Reconnects. A connection is made again to the namespace that it was, by number and by names (UUID, NGUID, EUI-64):
 * where another one has taken its place, requests wait, and end with -ENOTCONN after reconnect_ms. What had not been
 * answered when a connection broke is sent again, and may so be executed twice: the same data to the same place. Nobody
 * else can have been told of another write there in between unless the caller itself lets two requests for one place be
 * under way at a time, which has no defined result anyway. A compare has no such effect. What was answered is not sent
 * again: a target that lost power has lost what it had not flushed, as any disk does, and a flush after that cannot
 * bring it back; use VN_FUA where that matters. A broken connection is reset: what the target has not received of it by
 * then it never will. What it has received it may still be executing. verbena-target, if the reset has come to it, lets
 * the same host connect again when that is over; other targets may do so at once (before NVMe 2.1 nothing is said about
 * it), and what they execute only then undoes what was written there meanwhile.
 *
 * A program that is killed. By TCP and RoCE nothing more of it goes out. By iWARP the kernel goes on sending what it
 * has taken: where the network holds that up, a write of 8 KiB or less may come to the target behind those of another
 * program that has taken the place of this one. A target knows that it is over when it hears of the end of any of its
 * connections, or has heard nothing for keep_alive_ms: a program that takes over what another one wrote by iWARP waits
 * for so long.
 */
VN_API int vn_read(struct vn_disk *disk, void *buffer, size_t length, uint64_t offset, unsigned flags, vn_done *done,
                   void *arg);
VN_API int vn_write(struct vn_disk *disk, const void *buffer, size_t length, uint64_t offset, unsigned flags,
                    vn_done *done, void *arg);
VN_API int vn_compare(struct vn_disk *disk, const void *buffer, size_t length, uint64_t offset, unsigned flags,
                      vn_done *done, void *arg);
VN_API int vn_write_zeroes(struct vn_disk *disk, uint64_t length, uint64_t offset, unsigned flags, vn_done *done,
                           void *arg);
/* The contents are undefined afterwards. Where the target cannot do it (info says so) nothing happens, and it
 * succeeds. */
VN_API int vn_discard(struct vn_disk *disk, uint64_t length, uint64_t offset, unsigned flags, vn_done *done, void *arg);
VN_API int vn_flush(struct vn_disk *disk, unsigned flags, vn_done *done, void *arg);

/*
 * Does the work that is to be done, runs callbacks, and returns how many. Waits for the first of them up to timeout_ms;
 * 0: not at all, -1: for ever. Returns 0 when nobody's callback ran in that time.
 */
VN_API int vn_poll(struct vn_disk *disk, int timeout_ms);

/*
 * A descriptor for poll, select and epoll that becomes readable when vn_poll has something to do, and belongs to the
 * disk. Call vn_poll(disk, 0) until it returns 0, then wait. It may become readable for nothing.
 */
VN_API int vn_fd(struct vn_disk *disk);

/* The same, done when they return: 0 or what the callback would have got. Any number of threads at once. */
VN_API int vn_read_wait(struct vn_disk *disk, void *buffer, size_t length, uint64_t offset);
VN_API int vn_write_wait(struct vn_disk *disk, const void *buffer, size_t length, uint64_t offset, unsigned flags);
VN_API int vn_compare_wait(struct vn_disk *disk, const void *buffer, size_t length, uint64_t offset);
VN_API int vn_write_zeroes_wait(struct vn_disk *disk, uint64_t length, uint64_t offset, unsigned flags);
VN_API int vn_discard_wait(struct vn_disk *disk, uint64_t length, uint64_t offset);
VN_API int vn_flush_wait(struct vn_disk *disk);

/* ---- statistics ---- */

struct vn_statistics {
	uint64_t commands;                  /* sent, with those that were sent again */
	uint64_t bytes_read, bytes_written; /* of requests that succeeded */
	uint64_t bytes_copied;              /* by this library in memory; the kernel's own copies are not known here */
	uint64_t retries;       /* commands sent again, after a reconnect or because the target asked for it */
	uint64_t reconnects;    /* that succeeded */
	uint64_t keep_alives;   /* answered */
	uint64_t digest_errors; /* in data that came */
};
VN_API void vn_statistics(struct vn_disk *disk, struct vn_statistics *s);

/* ---- discovery ---- */

struct vn_found {
	char transport[8]; /* "tcp", "tls", "rdma", or "" for one this library does not know */
	char address[257], service[33];
	char nqn[224];
	unsigned char referral;  /* another discovery service, not a subsystem */
	unsigned char discovery; /* the discovery subsystem itself */
	uint16_t port_id;
};

/*
 * Asks the discovery service at this address (an NQN in it is passed over; 4420 and not 8009 where no port is named).
 * *found: an array of the *count answered, which the caller frees with free(3). Errors are those of vn_open.
 */
VN_API int vn_discover(const char *url, const struct vn_options *options, struct vn_found **found, size_t *count,
                       char *why, size_t why_len);

#ifdef __cplusplus
}
#endif
#endif
