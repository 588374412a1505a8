// collect.h - collects the frames of captured programs, and writes them to a file
// see: docs/capture.md
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_COLLECT_H
#define VB_TOOLS_COLLECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "capture/ring.h"

/* Prefix of these files: cap_. */

struct cap_options {
	const char *command;    /* for messages: "run", "capture" */
	const char *file;       /* "-": standard output; NULL: none */
	const char *device;     /* NULL: all */
	const char *filter;     /* of pcap-filter(7), or NULL */
	uint32_t qpn;           /* 0: all */
	uint32_t snaplen;       /* 0: whole frames */
	uint64_t rotate_size;   /* bytes; 0: one file */
	uint32_t rotate_files;  /* the most files that are kept; 0: all */
	uint64_t count;         /* 0: without limit */
	bool no_payload, stats; /* stats: a table of opcodes at the end */
	bool json;              /* what was captured is an object on standard output */
	bool quiet;             /* nothing was captured, which the caller has explained */
};

/* A frame, and who has recorded it. */
struct cap_frame {
	struct vb_capture_record rec;
	uint64_t turn; /* frames of equal times keep their order */
	int pid;
	char comm[16];
	uint8_t bytes[];
};

/* --- collect_files.c: filters and files --- */

struct cap_files;

/* Opens the first file. Complains and returns NULL if that fails, or if the filter is wrong. */
struct cap_files *cap_files_open(const struct cap_options *o);
/* Writes the frame, unless it is filtered out or known already from its sender. False: no more frames are wanted. */
bool cap_files_put(struct cap_files *f, const struct cap_frame *frame);
/* Writes what is buffered. False: no more frames can be written. */
bool cap_files_flush(struct cap_files *f);
/* How many frames it has taken, and how many programs could not record. */
void cap_files_counts(const struct cap_files *f, uint64_t *frames, uint64_t *dropped);
/* Frames that a program could not record. */
void cap_files_dropped(struct cap_files *f, uint64_t n);
/* Ends the file, and reports what was captured. Complains and returns false if frames are missing in it because it could
 * not be written. */
bool cap_files_close(struct cap_files *f);

/* --- collect_filter.c --- */

struct cap_filter;

/* Compiles an expression of pcap-filter(7). Complains and returns NULL if that fails. */
struct cap_filter *cap_filter_new(const char *command, const char *text);
bool cap_filter_match(const struct cap_filter *f, const uint8_t *bytes, uint32_t captured, uint32_t length);
void cap_filter_free(struct cap_filter *f);

/* --- collect.c: programs and their rings --- */

struct cap_collector;

struct cap_collector *cap_new(const struct cap_options *o);
/* Makes a socket to which programs connect. Returns its name, which lasts as long as the collector; or NULL, with a
 * complaint. */
const char *cap_listen(struct cap_collector *c);
/* Takes over a socket whose other end is a program's. */
void cap_add(struct cap_collector *c, int sock, int pid);
/* Waits at most this long for frames, and takes those that are there. False: no more frames are wanted, or possible. */
bool cap_step(struct cap_collector *c, int timeout_ms);
/* Shows on a terminal how far it is (tools/progress.h). */
void cap_show_progress(const struct cap_collector *c);
/* How many programs are being captured. */
size_t cap_sources(const struct cap_collector *c);
/* Takes what is left, ends the file, and frees everything. False: the file is not complete. */
bool cap_end(struct cap_collector *c);

/* The signals that end a capture: SIGINT, SIGTERM, SIGHUP. */
void cap_catch_signals(void);
bool cap_is_stopped(void);

#endif
