// global.c - objects of the process: its client of queue pair 1, the table of connections, the lock
// follows: rdma_cm(7); fork(2)
// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <sys/random.h>

#include "rdmacm/fabric.h"
#include "util/calls.h"
#include "util/lock.h"
#include "util/units.h"

/* Serialises opening; taken before rcm.lock. */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
struct rcm rcm = {.lock = PTHREAD_MUTEX_INITIALIZER, .acked = PTHREAD_COND_INITIALIZER, .generation = 1};

void rcm_lock(void)
{
	int old;

	/* A thread cancelled while it sends would keep the lock. */
	vb_cancel_defer(&old);
	vb_mutex_lock(&rcm.lock, VB_RANK_RCM);
	rcm.cancel_state = old;
}

void rcm_unlock(void)
{
	int old = rcm.cancel_state;

	vb_mutex_unlock(&rcm.lock);
	vb_cancel_restore(old);
}

void rcm_wait(void)
{
	int old = rcm.cancel_state;

	VB_MAY_WAIT();
	pthread_cond_wait(&rcm.acked, &rcm.lock);
	rcm.cancel_state = old;
}

/* The earlier time; 0 means never. */
static uint64_t sooner_of(uint64_t a, uint64_t b)
{
	return a && (!b || a < b) ? a : b;
}

void rcm_rearm(void)
{
	uint64_t cm = vb_cm_deadline(&rcm.cm), iw = rcm.iwcm ? vb_iwcm_deadline(rcm.iwcm) : 0;

	vb_gsi_client_timer(rcm.gsi, sooner_of(sooner_of(cm, rcm_late_due()), sooner_of(iw, rcm_resolve_due())));
}

bool rcm_ours(const struct rcm_id *id)
{
	if (id && id->generation == rcm.generation && id->id.channel)
		return true;
	errno = EINVAL;
	return false;
}

void rcm_random(void *buf, size_t len)
{
	size_t have = 0;

	while (have < len) {
		ssize_t n = getrandom((char *)buf + have, len - have, 0);

		if (n < 0 && errno != EINTR)
			abort();
		have += n > 0 ? (size_t)n : 0;
	}
}

static void on_mad(void *own, const uint8_t local[16], const uint8_t remote[16], uint32_t ifindex, const uint8_t *mad,
                   size_t len)
{
	struct vb_cm_addr from = {.ifindex = ifindex};

	memcpy(from.local, local, sizeof(from.local));
	memcpy(from.remote, remote, sizeof(from.remote));
	rcm_lock();
	if (rcm.gsi) {
		rcm_trace_mad(false, &from, mad, len);
		rcm_input_mad(&from, mad, len, vb_gsi_client_now());
		rcm_rearm();
	}
	rcm_unlock();
}

static void on_timeout(void *own, uint64_t now)
{
	rcm_lock();
	if (rcm.gsi) {
		vb_cm_timeout(&rcm.cm, now);
		rcm_late_timeout(now);
		rcm_resolve_timeout(now);
		if (rcm.iwcm)
			vb_iwcm_timeout(rcm.iwcm, now);
		rcm_rearm();
	}
	rcm_unlock();
}

static void send_mad(void *own, const struct vb_cm_addr *to, const uint8_t mad[VB_MAD_LEN])
{
	rcm_trace_mad(true, to, mad, VB_MAD_LEN);
	if (rcm_fabric_is_from(to))
		rcm_fabric_send(to, mad);
	else
		vb_gsi_client_send(rcm.gsi, to->local, to->remote, to->ifindex, mad);
}

/* The fabric process notices the end of its programs by itself. */
static void say_at_death(void *own, const struct vb_cm_conn *conn)
{
	if (!rcm_fabric_is_from(&conn->addr))
		vb_gsi_client_at_death(rcm.gsi, conn->addr.local, conn->addr.remote, conn->addr.ifindex,
		                       conn->local_comm_id, conn->remote_comm_id, conn->remote_qpn);
}

static void on_again(void *own)
{
	rcm_lock();
	if (rcm.gsi)
		vb_cm_again(&rcm.cm, say_at_death);
	rcm_unlock();
}

static const struct vb_gsi_client_ops gsi_ops = {.mad = on_mad, .timeout = on_timeout, .again = on_again};
static const struct vb_cm_ops cm_ops = {.admit = rcm_admit, .send = send_mad, .event = rcm_on_event};

/* The client of queue pair 1 from before fork(), to be closed when the child first needs its own. */
static struct vb_gsi_client *parents;

static void before_fork(void)
{
	vb_mutex_lock(&rcm.lock, VB_RANK_RCM);
}

static void after_fork(void)
{
	vb_mutex_unlock(&rcm.lock);
}

/* The ids, the table and the devices are the parent's; their memory stays. */
static void in_child(void)
{
	int cancel;

	vb_cancel_defer(&cancel);
	vb_rank_forget();
	pthread_mutex_init(&opening, NULL);
	pthread_mutex_init(&rcm.lock, NULL);
	pthread_cond_init(&rcm.acked, NULL);
	rcm.generation++;
	if (rcm.gsi)
		parents = rcm.gsi;
	rcm.gsi = NULL;
	rcm.ids = rcm.listeners = NULL;
	rcm_iw_in_child();
	rcm_fabric_in_child();
	rcm_late_forget();
	rcm_resolve_forget();
	rcm_devices_forget();
	vb_cancel_restore(cancel);
}

static int start_cm(void)
{
	struct vb_cm_config cfg = {0};
	struct vb_gsi_client *gsi;

	free(rcm.conns); /* the parent's, in a child of fork() */
	rcm.conns = calloc(RCM_CONNS, sizeof(*rcm.conns));
	if (!rcm.conns)
		return ENOMEM;
	int err = vb_gsi_client_open(&gsi_ops, NULL, &gsi);

	if (err)
		return err;
	cfg.lane = vb_gsi_client_lane(gsi);
	rcm_random(cfg.key, sizeof(cfg.key));
	rcm_lock();
	vb_cm_init(&rcm.cm, &cfg, &cm_ops, NULL, rcm.conns, RCM_CONNS);
	rcm.gsi = gsi;
	rcm_unlock();
	rcm_fabric_open(cfg.lane);
	rcm_show_start();
	return 0;
}

int rcm_open(void)
{
	static bool watching;
	int err = 0, cancel;

	if (__atomic_load_n(&rcm.gsi, __ATOMIC_ACQUIRE))
		return 0;
	vb_cancel_defer(&cancel);
	vb_mutex_lock(&opening, VB_RANK_RCM_OPENING);
	if (!watching)
		err = pthread_atfork(before_fork, after_fork, in_child);
	watching = !err;
	if (parents) {
		vb_gsi_client_close(parents);
		parents = NULL;
	}
	if (!err && !rcm.gsi)
		err = start_cm();
	vb_mutex_unlock(&opening);
	vb_cancel_restore(cancel);
	return err;
}

/* Takes the lock for exit(). A signal handler may call exit() while its own thread holds the lock, so this gives up
 * after a while. */
static bool take_over(void)
{
	const struct timespec ts = {.tv_nsec = VB_US(100)};

	VB_MAY_WAIT();
	for (int i = 0; i < 200; i++) {
		if (!vb_mutex_trylock(&rcm.lock, VB_RANK_RCM))
			return true;
		nanosleep(&ts, NULL);
	}
	return false;
}

/* When a program ends without closing its connections, their peers are notified, as the kernel does. The priority
 * makes this run after destructors without one, which may need the connections: rsockets. */
__attribute__((destructor(60000))) static void at_exit(void)
{
	if (!take_over())
		return;
	for (struct rcm_id *id = rcm.gsi ? rcm.ids : NULL; id; id = id->next) {
		if (id->conn)
			vb_cm_destroy(&rcm.cm, id->conn, vb_gsi_client_now());
		id->conn = NULL;
		rcm_iw_end(id);
		id->delivers_events = false;
	}
	vb_mutex_unlock(&rcm.lock);
}
