// ring.h - the ring of captured frames in shared memory, between a program and the command that collects them
// see: docs/capture.md
// SPDX-License-Identifier: MIT
#ifndef VB_CAPTURE_RING_H
#define VB_CAPTURE_RING_H

#include <stdatomic.h>
#include <stdint.h>

/*
 * The program makes the ring, and passes it to the collector. It writes records and tail; the collector writes head,
 * sleeps and snaplen. Neither trusts the other: positions and lengths are checked on both sides. A record that does not
 * fit is dropped and counted, so that the program never waits.
 */
#define VB_CAPTURE_MAGIC 0x50434256u /* "VBCP" */
#define VB_CAPTURE_VERSION 1u
#define VB_CAPTURE_BYTES (16u << 20) /* of records; a power of two */
#define VB_CAPTURE_HEAD 4096u        /* bytes of struct vb_capture_ring; the records follow */
#define VB_CAPTURE_MAP ((size_t)VB_CAPTURE_HEAD + VB_CAPTURE_BYTES)
#define VB_CAPTURE_FRAME_MAX 65600u /* bytes: the longest IP packet with its Ethernet header */

struct vb_capture_ring {
	uint32_t magic, version;
	uint32_t bytes; /* VB_CAPTURE_BYTES */
	int32_t pid;    /* as the program sees itself */
	char comm[16];
	/* written by the program */
	_Alignas(64) _Atomic uint64_t tail; /* bytes written */
	_Atomic uint64_t dropped;           /* frames that did not fit */
	/* written by the collector */
	_Alignas(64) _Atomic uint64_t head; /* bytes taken */
	_Atomic uint32_t sleeps;            /* the collector waits for the eventfd */
	_Atomic uint32_t snaplen;           /* the most bytes of a frame that are wanted; 0: all */
	_Atomic uint32_t no_payload;        /* only headers are wanted */
};

enum vb_capture_direction { VB_CAPTURE_IN = 1, VB_CAPTURE_OUT = 2 };

enum vb_capture_kind {
	VB_CAPTURE_PAD,   /* no frame: the rest of the ring up to its end */
	VB_CAPTURE_LOCAL, /* made of a message between programs of this host */
	VB_CAPTURE_ROCE,  /* crossed a UDP socket, or the broker's queue pair 1 */
	VB_CAPTURE_IWARP, /* crossed a TCP socket */
	VB_CAPTURE_KINDS,
};

#define VB_CAPTURE_ALIGN 32u

/* In front of each frame. */
struct vb_capture_record {
	uint32_t size;     /* of record and frame; a multiple of VB_CAPTURE_ALIGN */
	uint32_t captured; /* bytes of the frame that follow */
	uint32_t length;   /* bytes of the whole frame */
	uint16_t headers;  /* bytes before the payload */
	uint8_t direction, kind;
	uint64_t time; /* CLOCK_REALTIME, ns */
	uint32_t qpn;  /* the program's queue pair; 0: unknown */
	uint32_t flags;
};
_Static_assert(sizeof(struct vb_capture_record) == VB_CAPTURE_ALIGN, "a pad record always fits");
_Static_assert(sizeof(struct vb_capture_ring) <= VB_CAPTURE_HEAD, "one page");

enum { VB_CAPTURE_BAD_ICRC = 1 }; /* flags */

/* The program's greeting on its socket to the collector, with the descriptors of ring and eventfd. */
struct vb_capture_hello {
	uint32_t magic, version;
};

#endif
