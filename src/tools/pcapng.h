// pcapng.h - writes capture files
// follows: draft-ietf-opsawg-pcapng
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_PCAPNG_H
#define VB_TOOLS_PCAPNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PCAPNG_BUFFER (256u << 10)

/* A file of one section. Times are ns since 1970. Only whole blocks are written; if the disk is full, the file ends
 * behind the last whole block. All functions after an error do nothing. */
struct pcapng {
	int fd;
	int err;          /* errno of the first error, or 0 */
	bool is_file;     /* it can be cut */
	uint64_t written; /* bytes of whole blocks, with those in the buffer */
	uint64_t flushed;
	size_t used;
	uint8_t buffer[PCAPNG_BUFFER];
};

/* Makes the file, or uses standard output for "-", and begins a section. Returns 0 or an errno value. */
int pcapng_open(struct pcapng *p, const char *path);
/* Adds an interface of Ethernet frames. Interfaces are numbered from 0, in this order. */
void pcapng_interface(struct pcapng *p, const char *name, uint32_t snaplen);
/* inbound, outbound: whichever is true. comment: text, or NULL. */
struct pcapng_packet {
	uint32_t interface;
	uint64_t time;
	const uint8_t *bytes;
	uint32_t captured, length;
	bool inbound;
	const char *comment;
};
void pcapng_packet(struct pcapng *p, const struct pcapng_packet *packet);
struct pcapng_statistics {
	uint32_t interface;
	uint64_t time, start;
	uint64_t received, dropped; /* frames */
};
void pcapng_statistics(struct pcapng *p, const struct pcapng_statistics *s);
/* Writes what is in the buffer. Returns p->err. */
int pcapng_flush(struct pcapng *p);
/* The same, and closes the file. */
int pcapng_close(struct pcapng *p);

#endif
