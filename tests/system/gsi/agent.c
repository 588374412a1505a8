// agent.c - programs that use queue pair 1 and follow the test's orders
// see: src/node/gsi.h
// SPDX-License-Identifier: MIT
#include "agent.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "node/gsi.h"

enum op { OPEN, CLOSE, BIND, LISTEN, UNBIND, SEND, TAKE, COUNT, TIMER, FORK, CONNECTED, FOUND, END };

struct order {
	enum op op;
	struct wanted want;
	uint32_t id, remote_id, remote_qpn;
	struct arrived m;
	unsigned times;
	uint64_t ns;
	int ms;
};

struct result {
	int err;
	uint16_t port;
	uint32_t id;
	struct arrived m;
};

/* ---- inside an agent ---- */

#define KEPT 8192 /* more than any test sends at once */
#define CONNS 8

static struct {
	pthread_mutex_t lock;
	pthread_cond_t came;
	struct arrived mads[KEPT];
	unsigned first, n;
	int timeouts;
	bool early;
	uint64_t at;
	struct order conns[CONNS]; /* CONNECTED */
	unsigned nconns, found;
	struct vb_gsi_client *q;
} us = {.lock = PTHREAD_MUTEX_INITIALIZER, .came = PTHREAD_COND_INITIALIZER};

static void on_mad(void *own, const uint8_t local[16], const uint8_t remote[16], uint32_t ifindex, const uint8_t *mad,
                   size_t len)
{
	pthread_mutex_lock(&us.lock);
	if (us.n < KEPT && len == VB_MAD_LEN && own == &us) {
		struct arrived *m = &us.mads[(us.first + us.n++) % KEPT];

		memcpy(m->local, local, 16);
		memcpy(m->remote, remote, 16);
		memcpy(m->mad, mad, VB_MAD_LEN);
		m->ifindex = ifindex;
	}
	pthread_cond_signal(&us.came);
	pthread_mutex_unlock(&us.lock);
}

static void on_timeout(void *own, uint64_t now)
{
	pthread_mutex_lock(&us.lock);
	us.timeouts++;
	us.early |= now < us.at;
	pthread_mutex_unlock(&us.lock);
}

static void on_again(void *own)
{
	pthread_mutex_lock(&us.lock);
	for (unsigned i = 0; i < us.nconns; i++) {
		const struct order *o = &us.conns[i];

		vb_gsi_client_at_death(us.q, o->m.local, o->m.remote, o->m.ifindex, o->id, o->remote_id, o->remote_qpn);
	}
	us.found++;
	pthread_cond_signal(&us.came);
	pthread_mutex_unlock(&us.lock);
}

static const struct vb_gsi_client_ops ops = {on_mad, on_timeout, on_again};

static struct timespec after(int ms)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += ms / 1000;
	until.tv_nsec += ms % 1000 * 1000000L;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	return until;
}

static int await_found(unsigned times)
{
	struct timespec until = after(LONG_MS);
	int err = 0;

	pthread_mutex_lock(&us.lock);
	while (us.found < times && !err)
		err = pthread_cond_timedwait(&us.came, &us.lock, &until);
	pthread_mutex_unlock(&us.lock);
	return err;
}

static int take(struct arrived *m, int ms)
{
	struct timespec until = after(ms);
	int err = 0;

	pthread_mutex_lock(&us.lock);
	while (!us.n && !err)
		err = pthread_cond_timedwait(&us.came, &us.lock, &until);
	if (us.n) {
		*m = us.mads[us.first];
		us.first = (us.first + 1) % KEPT;
		us.n--;
		err = 0;
	}
	pthread_mutex_unlock(&us.lock);
	return err;
}

static int set_timer(uint64_t ns, int ms)
{
	pthread_mutex_lock(&us.lock);
	us.timeouts = 0;
	us.early = false;
	us.at = vb_gsi_client_now() + ns;
	pthread_mutex_unlock(&us.lock);
	vb_gsi_client_timer(us.q, ns ? us.at : 0);
	sleep_ms(ms);
	pthread_mutex_lock(&us.lock);
	int n = us.early ? -1 : us.timeouts;
	pthread_mutex_unlock(&us.lock);
	return n;
}

static int in_a_child(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct vb_gsi_client *mine;
		uint8_t nothing[VB_MAD_LEN] = {0};

		vb_gsi_client_send(us.q, nothing, nothing, 0, nothing); /* nothing of the parent works */
		vb_gsi_client_close(us.q);
		if (vb_gsi_client_open(&ops, &us, &mine))
			_exit(0);
		uint32_t lane = vb_gsi_client_lane(mine);
		vb_gsi_client_close(mine);
		_exit(lane % 251 + 1);
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

static void obey(const struct order *o, struct result *r)
{
	switch (o->op) {
	case OPEN:
		r->err = vb_gsi_client_open(&ops, &us, &us.q);
		r->id = r->err ? 0 : vb_gsi_client_lane(us.q);
		break;
	case CLOSE:
		vb_gsi_client_close(us.q);
		us.q = NULL;
		break;
	case BIND:
		r->port = o->want.port;
		r->err = vb_gsi_client_bind(us.q, o->want.ps, o->want.local, o->want.v4_only, o->want.v6_only,
		                            o->want.ifindex, &r->port, o->want.reuse, &r->id);
		break;
	case LISTEN:
		r->err = vb_gsi_client_listen(us.q, o->id);
		break;
	case UNBIND:
		vb_gsi_client_unbind(us.q, o->id);
		break;
	case SEND:
		for (unsigned i = 0; i < o->times; i++)
			vb_gsi_client_send(us.q, o->m.local, o->m.remote, o->m.ifindex, o->m.mad);
		break;
	case TAKE:
		r->err = take(&r->m, o->ms);
		break;
	case COUNT:
		pthread_mutex_lock(&us.lock);
		r->id = us.n;
		us.n = 0;
		pthread_mutex_unlock(&us.lock);
		break;
	case TIMER:
		r->err = set_timer(o->ns, o->ms);
		break;
	case FORK:
		r->id = (uint32_t)in_a_child();
		break;
	case CONNECTED:
		pthread_mutex_lock(&us.lock);
		us.conns[us.nconns++ % CONNS] = *o;
		pthread_mutex_unlock(&us.lock);
		break;
	case FOUND:
		r->err = await_found(o->times);
		break;
	case END:
		if (us.q)
			vb_gsi_client_close(us.q);
		break;
	}
}

__attribute__((noreturn)) static void live(int sock)
{
	struct order o;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (recv(sock, &o, sizeof(o), 0) == sizeof(o)) {
		struct result r = {0};

		obey(&o, &r);
		send(sock, &r, sizeof(r), MSG_NOSIGNAL);
		if (o.op == END)
			exit(0);
	}
	exit(1);
}

/* ---- in the test ---- */

static struct result tell(struct agent *a, const struct order *o)
{
	struct result r;

	CHECK(send(a->sock, o, sizeof(*o), MSG_NOSIGNAL) == sizeof(*o));
	CHECK(recv(a->sock, &r, sizeof(r), 0) == sizeof(r));
	return r;
}

static void enter_network(pid_t of)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)of);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && setns(fd, CLONE_NEWNET) == 0);
	close(fd);
}

void agent_start_at(struct agent *a, pid_t net_of, const char *runtime)
{
	int pair[2];

	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	a->pid = fork();
	if (a->pid == 0) {
		if (net_of)
			enter_network(net_of);
		if (runtime)
			setenv("VERBENA_RUNTIME", runtime, 1);
		live(pair[1]);
	}
	close(pair[1]);
	a->sock = pair[0];
	int err;

	for (int64_t until = now_ms() + LONG_MS; (err = agent_open(a)) == ETIMEDOUT && now_ms() < until;)
		; /* the broker may get no processor time for longer than a program waits for it */
	SAME(err, 0);
}

void agent_start(struct agent *a)
{
	agent_start_at(a, 0, NULL);
}

void agent_end(struct agent *a)
{
	int status;

	tell(a, &(struct order){.op = END});
	CHECK(waitpid(a->pid, &status, 0) == a->pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	close(a->sock);
}

void agent_kill(struct agent *a)
{
	kill(a->pid, SIGKILL);
	CHECK(waitpid(a->pid, NULL, 0) == a->pid);
	close(a->sock);
}

int agent_open(struct agent *a)
{
	struct result r = tell(a, &(struct order){.op = OPEN});

	if (!r.err)
		a->lane = r.id;
	return r.err;
}

void agent_close(struct agent *a)
{
	tell(a, &(struct order){.op = CLOSE});
}

int agent_bind(struct agent *a, const struct wanted *w, uint16_t *port, uint32_t *id)
{
	struct result r = tell(a, &(struct order){.op = BIND, .want = *w});

	if (port)
		*port = r.port;
	if (id)
		*id = r.id;
	return r.err;
}

int agent_listen(struct agent *a, uint32_t id)
{
	return tell(a, &(struct order){.op = LISTEN, .id = id}).err;
}

void agent_unbind(struct agent *a, uint32_t id)
{
	tell(a, &(struct order){.op = UNBIND, .id = id});
}

void agent_send(struct agent *a, const uint8_t local[16], const uint8_t remote[16], uint32_t ifindex,
                const uint8_t mad[VB_MAD_LEN], unsigned times)
{
	struct order o = {.op = SEND, .times = times, .m.ifindex = ifindex};

	memcpy(o.m.local, local, 16);
	memcpy(o.m.remote, remote, 16);
	memcpy(o.m.mad, mad, VB_MAD_LEN);
	tell(a, &o);
}

bool agent_take(struct agent *a, struct arrived *m, int ms)
{
	struct result r = tell(a, &(struct order){.op = TAKE, .ms = ms});

	if (!r.err && m)
		*m = r.m;
	return !r.err;
}

unsigned agent_count(struct agent *a)
{
	return tell(a, &(struct order){.op = COUNT}).id;
}

int agent_timer(struct agent *a, uint64_t ns, int ms)
{
	return tell(a, &(struct order){.op = TIMER, .ns = ns, .ms = ms}).err;
}

void agent_connected(struct agent *a, const uint8_t local[16], const uint8_t remote[16], uint32_t local_id,
                     uint32_t remote_id, uint32_t remote_qpn)
{
	struct order o = {.op = CONNECTED, .id = local_id, .remote_id = remote_id, .remote_qpn = remote_qpn};

	memcpy(o.m.local, local, 16);
	memcpy(o.m.remote, remote, 16);
	tell(a, &o);
}

bool agent_found(struct agent *a, int times)
{
	bool found = !tell(a, &(struct order){.op = FOUND, .times = (unsigned)times}).err;

	/* answers come after it */
	return found && !agent_bind(a, &(struct wanted){.ps = VB_PS_IB}, NULL, NULL);
}

uint32_t agent_fork(struct agent *a)
{
	return tell(a, &(struct order){.op = FORK}).id;
}

uint32_t serve(struct agent *a, uint16_t ps, uint16_t port)
{
	uint32_t id;

	SAME(agent_bind(a, &(struct wanted){.ps = ps, .port = port}, NULL, &id), 0);
	SAME(agent_listen(a, id), 0);
	return id;
}

void v4(uint8_t gid[16], const char *text)
{
	memset(gid, 0, 10);
	gid[10] = gid[11] = 0xff;
	CHECK(inet_pton(AF_INET, text, gid + 12) == 1);
}

void v6(uint8_t gid[16], const char *text)
{
	CHECK(inet_pton(AF_INET6, text, gid) == 1);
}

void make_req(uint8_t mad[VB_MAD_LEN], uint16_t ps, uint16_t port, uint32_t comm_id, uint64_t tag)
{
	struct vb_cm_msg m = {.attr = VB_CM_REQ,
	                      .tid = tag,
	                      .req = {.local_comm_id = comm_id, .service_id = vb_cm_service_id(ps, port)}};

	vb_cm_encode(mad, &m);
}

void make_rep(uint8_t mad[VB_MAD_LEN], const struct agent *from, uint32_t to_comm_id, uint64_t tag)
{
	struct vb_cm_msg m = {.attr = VB_CM_REP,
	                      .tid = tag,
	                      .rep = {.local_comm_id = comm_id_of(from, 77), .remote_comm_id = to_comm_id}};

	vb_cm_encode(mad, &m);
}

void make_dreq(uint8_t mad[VB_MAD_LEN], uint32_t to_comm_id, uint32_t comm_id)
{
	struct vb_cm_msg m = {.attr = VB_CM_DREQ, .dreq = {.local_comm_id = comm_id, .remote_comm_id = to_comm_id}};

	vb_cm_encode(mad, &m);
}

void make_sidr_req(uint8_t mad[VB_MAD_LEN], uint16_t port, uint32_t request_id)
{
	struct vb_cm_msg m = {.attr = VB_CM_SIDR_REQ,
	                      .sidr_req = {.request_id = request_id, .service_id = vb_cm_service_id(VB_PS_UDP, port)}};

	vb_cm_encode(mad, &m);
}

void make_timeout(uint8_t mad[VB_MAD_LEN], uint32_t comm_id)
{
	struct vb_cm_msg m = {.attr = VB_CM_REJ, .rej = {.local_comm_id = comm_id, .reason = VB_CM_REJ_TIMEOUT}};

	vb_cm_encode(mad, &m);
}

uint32_t comm_id_of(const struct agent *a, uint32_t rest)
{
	return a->lane << 22 | rest;
}

struct vb_cm_msg cm_of(const uint8_t mad[VB_MAD_LEN])
{
	struct vb_cm_msg m;

	CHECK(vb_cm_decode(&m, mad, VB_MAD_LEN));
	return m;
}

uint64_t packets_of(const char *interface)
{
	unsigned long long bytes, packets = 0;
	char line[512];
	FILE *f = fopen("/proc/thread-self/net/dev", "re");

	CHECK(f != NULL);
	while (fgets(line, sizeof(line), f)) {
		char *name = line + strspn(line, " "), *colon = strchr(name, ':');

		if (!colon)
			continue;
		*colon = 0;
		if (!strcmp(name, interface) && sscanf(colon + 1, "%llu %llu", &bytes, &packets) != 2)
			packets = 0;
	}
	fclose(f);
	return packets;
}
