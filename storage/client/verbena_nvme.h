// verbena_nvme.h - the public interface of libverbena-nvme: disks over NVMe over Fabrics, with TCP or RDMA, and SRP
// follows: NVM Express Base 1.4, 6 (NVM commands); NVMe over Fabrics 1.1; NVMe/TCP transport specification 1.0; SRP
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
 * Threads. Any thread may call any function on a struct vn_disk at any time. Only vn_close must be the last call. Each
 * disk has one lock, so threads that need full speed in parallel open one disk each. Callbacks run inside vn_poll,
 * vn_close and the synchronous calls, in the calling thread, without a lock. They may belong to requests of other
 * threads. A callback may make any call except vn_poll, vn_close and the synchronous calls on the same disk.
 *
 * The library has one thread for each path of a disk, which keeps the connection alive and reconnects when it breaks, and
 * one more for paths by discovery. They never run callbacks. After fork() the child must not use the disk.
 *
 * Errors. Functions return 0 (or a count), or a negative errno value. On failure they leave out-parameters untouched.
 * Callbacks get 0 or one of
 *
 *   -EIO         the target could not read or write the data, or reports an error that is not listed here
 *   -EILSEQ      compare: the data differs
 *   -ENOSPC      the range is beyond the end of the disk as the target now sees it, or the target has no space left
 *   -EROFS       the disk is write protected
 *   -EOPNOTSUPP  the target does not support the command
 *   -ENODEV      the namespace does not exist any more
 *   -ENOTCONN    the connection broke, and reconnecting failed for reconnect_ms
 *   -ECANCELED   vn_close was called
 *   -ENOMEM      out of memory, or no memory could be registered for RDMA
 */

struct vn_disk;

/* ---- opening ---- */

/*
 * An NVMe disk has an address nvme+tcp://HOST[:PORT][/NQN][?nsid=N][?discover], nvme+tls://… (TCP with TLS, which requires a key),
 * nvme+rdma://… or nvme+auto://…. HOST is a name, an IPv4 address, or an IPv6 address in brackets. The default for PORT
 * is 4420. The default namespace is the first one in the target's list when the disk is opened.
 *
 * Several paths. Instead of HOST[:PORT] there may be a list of up to 8 of these, separated by commas: ports of one target,
 * or several targets that serve the same disk, such as Ceph gateways. The scheme and the NQN hold for all. The disk opens
 * when one path is connected; others that do not follow within half a second connect later. All must lead to the same
 * namespace: number, identifiers (UUID, NGUID, EUI-64; there must be one) and size are the same. Commands go by an
 * optimized path (asymmetric namespace access, ANA), or else by a non-optimized one. While the target changes the access, or
 * denies it, on all paths, requests wait. A path on which a change takes longer than the target has announced is connected
 * again. If a path breaks, or cannot execute a command, its commands are sent again by
 * another. Paths that broke are connected again in the background. reconnect_ms counts from when no path was usable
 * (with paths that deny access at least 10 s; then requests end with -EIO). vn_paths says what is used and why.
 *
 * Paths by discovery. With ?discover (or ?nsid=N&discover) HOST[:PORT] is a discovery service, as every port of
 * verbena-target is. The paths are those to the NQN that its discovery log lists for the scheme's transport, up to 8. With
 * auto they are the ports for TCP, and those for RDMA at addresses that have none for TCP. Entries whose address is not a
 * number are ignored. The library stays connected to the service, and reads the log again when the service reports a
 * change, and when a path breaks. A path that is listed is added. One that is not listed any more is used until it
 * breaks, and then ends. If the service breaks or lists nothing, the next one is asked: the others of the address, then
 * those at the addresses of all paths so far. So is one after the other while no path is usable. A service without events
 * is asked again after ten times reconnect_pause_ms. Referrals are not followed.
 *
 * auto uses RDMA if both ends support it, and TCP otherwise. PORT is the port for TCP. The discovery log at that port
 * lists the ports for RDMA. If it lists none, PORT itself is tried with rdma_cm, for half of the time for RDMA. The
 * time for RDMA is rdma_ms. If an interface has two adapters, RoCE and iWARP, each gets half of it. Once rdma_cm has
 * reached a target, the target has 4 s more to answer, within connect_ms, because it may delay its first answer. If
 * connecting or reconnecting with RDMA fails, TCP is used. After rdma_again_ms RDMA is tried again, beside the TCP
 * connection or when that breaks. Each failure doubles the time to the next attempt, up to an hour. If it works, the
 * disk moves to RDMA when no command is outstanding: for up to a second new ones are held back. Nothing is sent twice.
 * Of two adapters the one that worked last is tried first. A disk that goes by iWARP because RoCE failed returns to RoCE
 * in the same way.
 *
 * rdma: if an interface has two adapters, RoCE is tried first, then iWARP. Each gets half of connect_ms. A disk that goes
 * by iWARP returns to RoCE as with auto.
 *
 * A SCSI disk has an address srp://HOST[:PORT]/ID_EXT[:IOC_GUID][?lun=N]: SRP by RDMA, which finds its adapter as rdma
 * does. ID_EXT and IOC_GUID are hexadecimal numbers, the halves of the target port's identifier. Without IOC_GUID both
 * are the same. The default for PORT is 5555, for N 0. What is said of a namespace holds for the logical unit. What
 * differs:
 *
 *   host_id         the identifier of our port; NULL: a random one. A login ends earlier ones of its port, so two disks
 *                   of one target must not have the same host_id, nor vn_discover that of an open disk
 *   host_nqn        is not used, nor are secret and the digests
 *   tls_key         vn_open fails with -EOPNOTSUPP, as with controller_secret: SRP has no encryption, and no
 *                   authentication
 *   keep_alive_ms   the library sends TEST UNIT READY twice in this time. The target does not know it
 *   io_ms           the target is asked to abort the command, which has then failed once and may be repeated (retries).
 *                   The connection counts as broken if the target does not answer that for io_ms either
 *   struct vn_info  nqn is ID_EXT:IOC_GUID, nsid is the number of the unit; controller, compare and uuid are empty
 *   vn_compare      fails with -EOPNOTSUPP
 */

struct vn_options {
	size_t size;                  /* of this struct, as set by vn_options_init */
	unsigned queue_depth;         /* outstanding commands per I/O queue; 1 to 1023, limited by the target. 128 */
	unsigned queues;              /* I/O queues, each with its own connection; 1 to 64, limited by the target. 1 */
	unsigned max_transfer;        /* bytes of the largest command; more is split. Limited by the target. 2 MiB */
	const char *host_nqn;         /* NULL: /etc/nvme/hostnqn, or one made from /etc/machine-id */
	const unsigned char *host_id; /* 16 bytes. NULL: /etc/nvme/hostid, or one made from the host NQN */
	unsigned keep_alive_ms;       /* the target may drop an idle connection after this time. 15,000; 0: never */
	unsigned connect_ms;          /* for one attempt to connect, with all its queues. 10,000 */
	unsigned rdma_ms;             /* auto: the part of connect_ms that rdma_cm may take. 3,000 */
	unsigned rdma_again_ms;       /* auto: pause before RDMA is tried again after a failure. 60,000 */
	/* A connection counts as broken if a command waits this long, and in this time the queue has had no other
	 * answers, or more than twice its depth. 30,000; 0: never */
	unsigned io_ms;
	unsigned reconnect_ms;       /* how long to try to reconnect. 600,000; 0: not at all */
	unsigned reconnect_pause_ms; /* largest pause between two attempts; the first is a tenth of it. 1,000 */
	/* With RDMA, a waiting thread polls for this time (µs) before it sleeps; with much data outstanding up to eight
	 * times as long, but never beyond its own timeout. After polls in vain it polls less often. 200; 0: never */
	unsigned spin_us;
	/* Several paths: the time for an answer to a keep alive and to other commands of the connection itself. Without
	 * it the path counts as broken. Requests without an answer for half a second cause a keep alive. 2,000 */
	unsigned path_ms;
	unsigned retries;                         /* retries of a command that failed without DNR. 5 */
	unsigned char header_digest, data_digest; /* CRC32C with TCP; used if the target agrees. 0, 0 */
	unsigned char require_digest;             /* … and required: otherwise connecting fails. 0 */
	unsigned char numeric;                    /* HOST is an address; names are not looked up. 0 */
	/*
	 * Secrets of DH-HMAC-CHAP as `nvme gen-dhchap-key` prints them, "DHHC-1:0N:BASE64:". They are copied, and wiped
	 * when the disk is closed. secret proves our identity to targets that require it. With controller_secret, the
	 * target must prove on each connection that it has this secret; otherwise vn_open fails with -EACCES. NULL,
	 * NULL
	 */
	const char *secret, *controller_secret;
	/*
	 * The key for TLS, "NVMeTLSkey-1:0N:BASE64:", copied and wiped in the same way. With a key, TCP uses TLS 1.3.
	 * RDMA has no encryption, so with a key auto does not use it, and nvme+rdma and srp fail with -EOPNOTSUPP. NULL
	 */
	const char *tls_key;
};

/* Sets the defaults, which are the last number of each comment above. */
VN_API void vn_options_init(struct vn_options *o);

/*
 * Connects, and returns when the disk is ready for requests. This takes connect_ms at most, without the time to look
 * up a name; with ?discover as long again for the discovery services. options: NULL for the defaults; copied. why: NULL, or a buffer of why_len bytes for a sentence that
 * describes the error. Errors: -EINVAL: the address or an option is invalid. -ENXIO: the target has no such subsystem
 * or namespace. -EACCES: the target rejects this host, or one side failed to authenticate. -EBUSY: the target kept
 * asking to retry later. -EPROTO: the target violates the protocol. -ENODEV: no RDMA device reaches the target.
 * -EOPNOTSUPP: the library was built without RDMA, or without OpenSSL for secrets and keys; the namespace has metadata;
 * the target does not support the required digests; or SRP has no such protection. Other errors are those of connect(2)
 * and rdma_cm.
 */
VN_API int vn_open(const char *url, const struct vn_options *options, struct vn_disk **disk, char *why, size_t why_len);

/* Outstanding requests end with -ECANCELED, although the target may still execute them. Does not flush. */
VN_API void vn_close(struct vn_disk *disk);

/*
 * The target's description of the disk. It belongs to the disk, and only the size changes while the disk is open: it
 * is updated when the target reports a change, or after a reconnect.
 */
struct vn_info {
	uint64_t size;         /* bytes */
	uint32_t block_size;   /* bytes: all offsets and lengths are multiples of it */
	uint32_t max_transfer; /* bytes of one command: the lower limit of MDTS and options */
	uint32_t optimal_io;   /* bytes: the namespace's preferred write size, 0 if it reports none */
	uint32_t nsid;
	uint16_t queues; /* I/O queues in use when it was opened */
	uint16_t queue_depth;
	uint16_t controller;                          /* id of the controller when the disk was opened */
	unsigned char volatile_cache;                 /* flushes are necessary */
	unsigned char compare, discard, write_zeroes; /* the command is supported */
	unsigned char readonly;                       /* write protected when opened: writes fail with -EROFS */
	char model[41], serial[21], firmware[9];
	char nqn[224]; /* NQN of the subsystem */
	char uuid[37]; /* UUID of the namespace, "" if it has none */
};
VN_API const struct vn_info *vn_info(const struct vn_disk *disk);

/* "tcp", "rdma" or "srp": the transport of the present or last connection. */
VN_API const char *vn_transport_name(struct vn_disk *disk);

/* Writes a sentence of up to `size` bytes for people: which way to the target is in use, by which adapter, and why. With
 * several paths it is about the one that commands use, or used last. */
VN_API void vn_way(struct vn_disk *disk, char *text, size_t size);

struct vn_path_info {
	char address[257], service[33]; /* of the disk's address */
	char transport[8]; /* "tcp", "rdma" or "srp": of the present or last connection; "": there was none */
	unsigned char connected, used; /* used: commands go by this path */
	char access[16];           /* "optimized", "non-optimized", "inaccessible", "persistent-loss", "change"; "" */
	char way[300];             /* as by vn_way */
	char why[160];             /* why it is used or not, for people */
	uint64_t commands, breaks; /* commands sent by it, including repetitions; connections that broke */
};

/* Fills in up to n descriptions of the disk's paths, in the order of its address; those by discovery are in no order.
 * Returns the number of paths. */
VN_API size_t vn_paths(struct vn_disk *disk, struct vn_path_info *paths, size_t n);

/* ---- memory ---- */

struct vn_memory;

/*
 * Registers memory for requests. Requests whose buffers lie in it then use it without further calls. With RDMA the
 * target reads and writes it directly: it can access all registered memory as long as the connection lasts, not only
 * during a request. Regions must not overlap (-EEXIST). With TCP registration has no effect until the disk switches to
 * RDMA.
 *
 * Requests may also use memory that is not registered. With RDMA the library then copies up to 32 KiB, and registers
 * larger buffers for the single request.
 */
VN_API int vn_register(struct vn_disk *disk, void *address, size_t length, struct vn_memory **memory);

/*
 * Allocates and registers memory, page-aligned and filled with zeros. Reads into it are the fastest: a target on this
 * host that also uses Verbena maps it if it may access this process's descriptors, and then needs no system call to
 * write to it. vn_unregister frees the memory.
 */
VN_API int vn_allocate(struct vn_disk *disk, size_t length, void **address, struct vn_memory **memory);

/* -EBUSY: requests still use the memory. vn_close unregisters the rest. Memory of vn_register remains the caller's. */
VN_API int vn_unregister(struct vn_disk *disk, struct vn_memory *memory);

/* ---- requests ---- */

typedef void vn_done(void *arg, int error);

#define VN_FUA 0x1u     /* writes and zeroes: on stable storage before they are done */
#define VN_DISCARD 0x2u /* zeroes: the target may free the space */
#define VN_MORE 0x4u    /* another request follows: this one may wait for it, or for vn_poll */

/*
 * Each call starts a request. It returns 0, and the callback will be called exactly once; or it returns a negative
 * errno value, and the callback will not be called. -EINVAL: offset or length is not a multiple of block_size, the
 * length is 0, the range is not on the disk, or flags are unknown. -ESHUTDOWN: reconnecting was given up. -ENOMEM. The
 * buffer belongs to the library until the callback. Any number of requests may be outstanding: requests beyond the
 * target's limit wait here, in order.
 *
 * Order. Requests are executed in parallel and in any order; so are the parts of a request that is split. A caller that
 * needs an order waits for the first request before it starts the second. A flush makes all requests durable whose
 * callbacks had been called when the flush was started.
 *
 * Reconnects. The library reconnects to the same namespace, by its number and its identifiers (UUID, NGUID, EUI-64). If
 * another namespace has taken its place, requests wait, and end with -ENOTCONN after reconnect_ms. Commands that were
 * not answered when the connection broke are sent again, so a write may be executed twice, with the same data in the
 * same place. This is visible only to a caller that has two requests for one place outstanding, whose result is
 * undefined anyway. Answered commands are not sent again. A target that loses power loses data that was not flushed,
 * as any disk does, and a later flush cannot bring it back; use VN_FUA where that matters.
 *
 * A broken connection is reset, so that the target receives no more of it. The target may still be executing what it
 * has received. verbena-target, once it has received the reset, lets the same host connect again only when that has
 * ended. Other targets may let it connect at once (before NVMe 2.1 the specification says nothing about it); a command
 * that they execute late may overwrite newer data. The same holds for a command that is sent again by another path, also
 * to another port of one verbena-target. Gateways of a Ceph image execute nothing late: the cluster has shut a gateway out
 * before another writes. The library sends no fused commands, so whatever it sends may be executed twice.
 *
 * Killed programs. With TCP and RoCE nothing more of a killed program is sent. With iWARP the kernel continues to send
 * what it has accepted. On a slow network a write of 8 KiB or less may therefore reach the target after writes of
 * another program that has taken over the disk. The target ends that host's commands when it notices the end of one of
 * its connections, or after keep_alive_ms of silence. So a program that takes over a disk written with iWARP waits for
 * keep_alive_ms.
 */
VN_API int vn_read(struct vn_disk *disk, void *buffer, size_t length, uint64_t offset, unsigned flags, vn_done *done,
                   void *arg);
VN_API int vn_write(struct vn_disk *disk, const void *buffer, size_t length, uint64_t offset, unsigned flags,
                    vn_done *done, void *arg);
VN_API int vn_compare(struct vn_disk *disk, const void *buffer, size_t length, uint64_t offset, unsigned flags,
                      vn_done *done, void *arg);
VN_API int vn_write_zeroes(struct vn_disk *disk, uint64_t length, uint64_t offset, unsigned flags, vn_done *done,
                           void *arg);
/* The contents are undefined afterwards. If the target does not support this (see vn_info), it succeeds without
 * effect. */
VN_API int vn_discard(struct vn_disk *disk, uint64_t length, uint64_t offset, unsigned flags, vn_done *done, void *arg);
VN_API int vn_flush(struct vn_disk *disk, unsigned flags, vn_done *done, void *arg);

/*
 * Handles input and output, runs callbacks, and returns their number. Waits up to timeout_ms for the first one (0: does
 * not wait; -1: without a limit). Returns 0 if no callback ran in that time.
 */
VN_API int vn_poll(struct vn_disk *disk, int timeout_ms);

/*
 * Returns a descriptor for poll, select and epoll that becomes readable when vn_poll has work. It belongs to the disk.
 * Call vn_poll(disk, 0) until it returns 0, then wait. Spurious wake-ups are possible.
 */
VN_API int vn_fd(struct vn_disk *disk);

/* Synchronous requests. They return what the callback would get. Any number of threads may wait at once. */
VN_API int vn_read_wait(struct vn_disk *disk, void *buffer, size_t length, uint64_t offset);
VN_API int vn_write_wait(struct vn_disk *disk, const void *buffer, size_t length, uint64_t offset, unsigned flags);
VN_API int vn_compare_wait(struct vn_disk *disk, const void *buffer, size_t length, uint64_t offset);
VN_API int vn_write_zeroes_wait(struct vn_disk *disk, uint64_t length, uint64_t offset, unsigned flags);
VN_API int vn_discard_wait(struct vn_disk *disk, uint64_t length, uint64_t offset);
VN_API int vn_flush_wait(struct vn_disk *disk);

/* ---- statistics ---- */

struct vn_statistics {
	uint64_t commands;                  /* sent, including repetitions */
	uint64_t bytes_read, bytes_written; /* by requests that succeeded */
	uint64_t bytes_copied;              /* copied in memory by this library, without the kernel's copies */
	uint64_t retries;                   /* commands sent again, after a reconnect or at the target's request */
	uint64_t reconnects;                /* successful ones */
	uint64_t keep_alives;               /* answered ones */
	uint64_t digest_errors;             /* in received data */
	uint64_t returns; /* from TCP to RDMA, from iWARP to RoCE, without a break of the connection */
	uint64_t moves;   /* from one path to another */
};
VN_API void vn_statistics(struct vn_disk *disk, struct vn_statistics *s);

/* ---- discovery ---- */

struct vn_found {
	char transport[8]; /* "tcp", "tls", "rdma", "srp", or "" for an unknown one */
	char address[257], service[33];
	char nqn[224];           /* srp: the rest of the address, ID_EXT:IOC_GUID?lun=N */
	unsigned char referral;  /* another discovery service, not a subsystem */
	unsigned char discovery; /* the discovery subsystem itself */
	uint16_t port_id;
};

/*
 * Asks the discovery service at this address. An NQN in the address is ignored, and the default port is 4420, not 8009.
 * At an address of SRP, it lists the logical units of the target, without asking what they are.
 * *found is an array of *count entries, which the caller frees with free(3). Errors are those of vn_open.
 */
VN_API int vn_discover(const char *url, const struct vn_options *options, struct vn_found **found, size_t *count,
                       char *why, size_t why_len);

#ifdef __cplusplus
}
#endif
#endif
