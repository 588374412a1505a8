// ports.h - a target of NVMe/TCP in this process, with several ports to one disk in memory, that can be told how to fail
// follows: NVMe/TCP transport specification 1.0; NVM Express Base 1.4, 8.20 (asymmetric namespace access)
// SPDX-License-Identifier: MIT
#ifndef VB_TEST_STORAGE_PORTS_H
#define VB_TEST_STORAGE_PORTS_H

#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include "../../support/check.h"

#define PORTS 3u
#define PORTS_NQN "nqn.2026-01.test:ports"
#define PORTS_BLOCKS 512u
#define ENDLESS 60000 /* ms: longer than anything in these tests takes */

/* Waits until it is so. */
#define UNTIL(condition)                                               \
	do {                                                           \
		for (unsigned tries = 0; !(condition); tries++) {      \
			if (tries > ENDLESS / 5)                       \
				CHECK_FAILED("never: %s", #condition); \
			usleep(5000);                                  \
		}                                                      \
	} while (0)

struct port {
	unsigned number;
	_Atomic uint8_t lists; /* the ports in its discovery log: a bit for each; port_list changes it with an event */
	_Atomic bool mute;     /* its discovery service has no events */
	_Atomic bool slow;     /* … does not answer who wants to read its log */
	_Atomic unsigned
	        restless;       /* its discovery log is another one with each of the next so many looks at its head */
	_Atomic unsigned asked; /* reads of the log that got no answer because it is slow */
	/* to be set before it is connected */
	uint8_t name; /* last byte of the NGUID; 0: there is none */
	uint64_t blocks;
	uint16_t more_groups; /* groups of the log before that of the namespace */
	/* at any time */
	_Atomic uint16_t refusal; /* status of commands of I/O queues; 0: they are executed */
	_Atomic bool holds;       /* commands of I/O queues get no answer */
	_Atomic unsigned served, refused, connects;
	_Atomic unsigned unanswered; /* commands of admin queues that came after port_halt */
};
extern struct port ports[PORTS];

void port_open(struct port *p);
void port_kill(struct port *p);                  /* its connections are reset; nothing is executed any more */
void port_halt(struct port *p);                  /* it does nothing any more, until port_kill */
void port_cut(struct port *p);                   /* its I/O queues are reset, and the admin queues stay */
void port_access(struct port *p, uint8_t state); /* enum nv_ana_state, and an event */
void port_lie(struct port *p, uint8_t state);    /* without an event */
void port_list(struct port *p, uint8_t ports);
void ports_url(char *url, unsigned size);

#endif
