// doctor.h - the parts of `verbena doctor`: the report, and one function for each group of checks
// follows: verbena-doctor(1)
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_DOCTOR_DOCTOR_H
#define VB_TOOLS_DOCTOR_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Prefixes in this folder: doc_ all of it. */

/* In order: the exit status is the highest value of a finding. */
enum doc_mark { DOC_OK, DOC_WARN, DOC_FAIL };

/* --- report.c --- */

void doc_report_open(bool json);

/* Adds a finding of the check `about`. mend is the command or step that mends it, or NULL. The text may contain words
 * from other processes and from the network: control characters are replaced. */
void doc_find(enum doc_mark mark, const char *about, const char *mend, const char *fmt, ...)
        __attribute__((format(printf, 4, 5)));

/* A mend with values in it, valid until the next call. */
const char *doc_mend(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Ends the report. Returns the exit status. */
int doc_report_close(void);

/* --- procfs.c: what the kernel says in files --- */

/* Reads the first line of a file, without its newline. False if it cannot be read. */
bool doc_read_line(const char *path, char *buf, size_t size);
/* Reads a number from a file. */
bool doc_read_number(const char *path, long long *value);
/* Finds the value of a line "KEY: value" of a file such as /proc/self/status. */
bool doc_read_field(const char *path, const char *key, char *buf, size_t size);

struct doc_socket {
	uint64_t inode;
	uid_t uid;
	bool v6;
};

/* Reads the sockets with this local UDP port in this network namespace. Returns their number, at most max, or -1 if the
 * tables cannot be read. */
int doc_udp_sockets(uint16_t port, struct doc_socket *list, int max);

/* Finds a process that has a socket of the list open: one of Verbena if there is one. False if there is none that we
 * may look at. */
struct doc_owner {
	pid_t pid;
	char comm[32];
	bool ours; /* keeper, broker, or a program on Verbena */
};
bool doc_find_owner(const struct doc_socket *list, int n, struct doc_owner *owner);

/* --- child.c: a check in a process of its own, with a limit of time --- */

/* Runs fn(arg) in a child. Its text for us goes to the descriptor `out`, and its standard error is collected. Returns
 * the child's exit status, 128 + the signal that ended it, or -1 if it did not end within ms and was killed. what is
 * shown on a terminal after two seconds. */
struct doc_child {
	pid_t pid;
	int out, err; /* pipes that we read */
	char said[512], complaint[512];
	size_t n_said, n_complaint;
	int status;
};
bool doc_child_start(struct doc_child *c, int (*fn)(int out, void *arg), void *arg);
/* Waits for n children together. */
void doc_children_end(struct doc_child *c, int n, int ms, const char *what);
int doc_child_run(struct doc_child *c, int (*fn)(int out, void *arg), void *arg, int ms, const char *what);
/* The first line of the child's standard error, without "verbena: ", or "". */
const char *doc_child_complaint(struct doc_child *c);

/* Runs a program (the first path that can be executed) and returns its output, which the caller frees. NULL if there is
 * no such program, or it failed. */
char *doc_output_of(const char *const paths[], const char *const argv[]);

int64_t doc_now_us(void);

/* --- the checks --- */

void doc_check_system(void);           /* system.c: kernel, libc, seccomp, system calls */
void doc_check_loader(void);           /* loader.c: which libibverbs.so.1 a program gets */
void doc_check_limits(void);           /* limits.c: memory, descriptors, socket buffers */
void doc_check_copies(void);           /* copies.c: process_vm_readv between processes */
void doc_check_interfaces(void);       /* interfaces.c */
void doc_check_port(void);             /* port.c: who has UDP port 4791 */
void doc_check_firewall(void);         /* firewall.c */
bool doc_check_broker(void);           /* broker.c; false if it does not answer, so that no program can start */
void doc_check_hardware(void);         /* hardware.c */
void doc_check_paths(void);            /* selftest.c: messages by each path */
void doc_check_peer(const char *host); /* peer.c: the way to another host */

/* --- peer.c and its parts --- */

struct sockaddr;
/* probe.c: N requests to a service without a listener; the findings say what came back. reachable: whether the host
 * answers otherwise. */
void doc_probe_roce(const struct sockaddr *to, const char *name, bool reachable, const char *device);
/* kind.c: what the port of a peer that does not answer, and the hardware address of one that does, say. */
enum doc_port { DOC_PORT_SILENT, DOC_PORT_CLOSED, DOC_PORT_FORBIDDEN };
enum doc_port doc_roce_port(const struct sockaddr *to);
/* The maker of the peer's network card in words, by its MAC address, or NULL: not on this network, or not known. */
const char *doc_maker_of(const struct sockaddr *to);
/* path_mtu.c: which RoCE packets reach the host. */
void doc_probe_mtu(const struct sockaddr *to, const char *name, unsigned interface_mtu, const char *interface);

#endif
