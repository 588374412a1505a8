// announce.c - the device management agent on a port: receives and answers datagrams by libibumad
// follows: libibumad of rdma-core: umad_register(3), umad_recv(3), umad_send(3)
// SPDX-License-Identifier: MIT
#include "srp/announce.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/umad.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "target/program.h"

#define AT_ONCE 32 /* datagrams, before others are served */
#define QKEY 0x80010000u

/* X(name): the functions of libibumad. It is loaded, so that the target runs where it is not installed, and finds the
 * one of a simulated fabric. */
#define FUNCTIONS(X)         \
	X(umad_init)         \
	X(umad_open_port)    \
	X(umad_close_port)   \
	X(umad_get_fd)       \
	X(umad_register)     \
	X(umad_recv)         \
	X(umad_send)         \
	X(umad_set_addr_net) \
	X(umad_get_mad_addr) \
	X(umad_status)

struct library {
	void *handle;
#define X(name) __typeof__(&name) name;
	FUNCTIONS(X)
#undef X
};

struct sp_announce {
	struct nt_loop *loop;
	struct nt_watch watch;
	const struct sp_dm *target;
	struct library umad;
	int port, agent;
	bool watched;
	struct {
		struct ib_user_mad head;
		uint8_t mad[SP_DM_MAD];
	} datagram;
};

static bool load_umad(struct library *u)
{
	if (!(u->handle = dlopen("libibumad.so.3", RTLD_NOW | RTLD_LOCAL)))
		return false;
#define X(name)                                              \
	if (!(*(void **)&u->name = dlsym(u->handle, #name))) \
		return false;
	FUNCTIONS(X)
#undef X
	return true;
}

static void answer_one(struct sp_announce *a)
{
	const struct ib_mad_addr *from = a->umad.umad_get_mad_addr(&a->datagram);

	if (a->umad.umad_status(&a->datagram) || !sp_dm_answer(a->target, a->datagram.mad))
		return;
	/* the rest of the address is that of the sender, as it came */
	a->umad.umad_set_addr_net(&a->datagram, from->lid, from->qpn, from->sl, htonl(QKEY));
	a->umad.umad_send(a->port, a->agent, &a->datagram, SP_DM_MAD, 0, 0);
}

static void datagrams_ready(struct nt_watch *w, uint32_t events)
{
	struct sp_announce *a = (struct sp_announce *)(void *)((uint8_t *)w - offsetof(struct sp_announce, watch));

	for (int i = 0; i < AT_ONCE; i++) {
		int len = SP_DM_MAD, agent = a->umad.umad_recv(a->port, &a->datagram, &len, 0);

		if (agent >= 0 && agent == a->agent && len == SP_DM_MAD)
			answer_one(a);
		else if (agent < 0) {
			/* a port that has gone stays readable */
			if (agent != -EWOULDBLOCK && agent != -ETIMEDOUT && agent != -EINTR && agent != -ENOSPC &&
			    a->watched) {
				a->watched = false;
				nt_loop_remove(a->loop, &a->watch);
			}
			return;
		}
	}
}

static int open_agent(struct sp_announce *a, char *name, int number, const char **why)
{
	long methods[16 / sizeof(long)] = {SP_DM_METHODS};

	*why = "libibumad.so.3 cannot be loaded";
	if (!load_umad(&a->umad))
		return ENOSYS;
	*why = "there is no such port";
	if (a->umad.umad_init() || (a->port = a->umad.umad_open_port(name, number)) < 0)
		return ENODEV;
	*why = "another program serves device management there";
	if ((a->agent = a->umad.umad_register(a->port, SP_DM_CLASS, 1, 0, methods)) < 0)
		return EBUSY;
	a->watch = (struct nt_watch){.fd = a->umad.umad_get_fd(a->port), .events = EPOLLIN, .ready = datagrams_ready};
	*why = "the loop";
	int error = nt_loop_add(a->loop, &a->watch);

	a->watched = !error;
	return error;
}

/* CA:PORT, CA, or nothing; number 0: the first port */
static bool parse_port(const char *text, char name[UMAD_CA_NAME_LEN], int *number)
{
	size_t len = strcspn(text, ":");
	uint64_t n = 0;

	if (len >= UMAD_CA_NAME_LEN || (text[len] && !nt_number_parse(text + len + 1, 10, 255, &n)))
		return false;
	memcpy(name, text, len);
	name[len] = '\0';
	*number = (int)n;
	return true;
}

int sp_announce_open(struct nt_loop *l, const char *port, const struct sp_dm *t, struct sp_announce **out,
                     const char **why)
{
	char name[UMAD_CA_NAME_LEN];
	struct sp_announce *a;
	int number;

	*why = "it is not CA:PORT";
	if (!parse_port(port, name, &number))
		return EINVAL;
	*why = "memory";
	a = calloc(1, sizeof(*a));
	if (!a)
		return ENOMEM;
	a->loop = l;
	a->target = t;
	a->port = -1;
	int error = open_agent(a, *name ? name : NULL, number, why);

	if (error)
		sp_announce_close(a);
	else
		*out = a;
	return error;
}

void sp_announce_close(struct sp_announce *a)
{
	if (!a)
		return;
	if (a->watched)
		nt_loop_remove(a->loop, &a->watch);
	if (a->port >= 0)
		a->umad.umad_close_port(a->port);
	if (a->umad.handle)
		dlclose(a->umad.handle);
	free(a);
}
