// capture.c - who captures this program's frames, and since when
// follows: unix(7); docs/capture.md, docs/control.md
// SPDX-License-Identifier: MIT
#include "node/capture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "capture/capture.h"
#include "engine/local/local.h"
#include "node/control.h"
#include "node/io.h"
#include "node/walk.h"
#include "util/env.h"
#include "util/log.h"

/* The socket to the collector, which is watched for its end. Of the progress thread, or of the thread that starts the
 * node before it or frees it after it. */
static struct vb_watch collector = {.fd = -1};
static struct vb_node *captured;

static void show_one(struct vb_qp *qp, void *arg)
{
	unsigned state = atomic_load_explicit(&qp->state, memory_order_relaxed);

	if (!vb_capturing())
		vb_local_frames_close(qp);
	else if (qp->path->ring && (state == IBV_QPS_RTS || state == IBV_QPS_SQD))
		vb_local_frames_open(qp);
}

/* Begins or ends to show the traffic of all queue pairs on this host. Under progress. */
static void show_all(struct vb_node *node, void *arg)
{
	vb_node_each_qp(node, show_one, NULL);
}

static void end_capture(void)
{
	int sock = collector.fd;

	vb_capture_detach();
	collector.fd = -1; /* before its number can be another file's: a child of fork() closes what stands here */
	captured = NULL;
	close(sock);
}

/* The collector has closed its end, or it says something, which it has no reason to. */
static void on_collector(struct vb_watch *w, uint32_t events)
{
	struct vb_node *node = captured;

	vb_watch_remove(node, w);
	end_capture();
	vb_walk(node, show_all, NULL);
}

/* Takes the socket if it returns 0. */
static int begin_capture(struct vb_node *node, int sock)
{
	if (captured)
		return EBUSY;
	collector = (struct vb_watch){.fd = sock, .fn = on_collector};
	int err = vb_capture_attach(sock);
	if (!err) {
		captured = node;
		err = vb_watch_add(node, &collector, EPOLLIN | EPOLLRDHUP);
		if (!err)
			return 0;
		vb_capture_detach();
	}
	collector.fd = -1;
	captured = NULL;
	return err;
}

static int serve_capture(struct vb_control_call *call)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);

	if (call->fd < 0 || getsockname(call->fd, (struct sockaddr *)&sa, &len) || sa.ss_family != AF_UNIX)
		return EINVAL;
	int err = begin_capture(call->node, call->fd);
	if (err)
		return err;
	call->fd = -1;
	vb_walk(call->node, show_all, NULL);
	return 0;
}

static bool is_trusted(int sock)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return !getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) && (cred.uid == 0 || cred.uid == geteuid());
}

static int connect_collector(const char *path, int *sock)
{
	struct sockaddr_un sun = {.sun_family = AF_UNIX};

	if (strlen(path) >= sizeof(sun.sun_path))
		return ENAMETOOLONG;
	memcpy(sun.sun_path, path, strlen(path));
	*sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (*sock < 0)
		return errno;
	if (connect(*sock, (struct sockaddr *)&sun, sizeof(sun)))
		return errno;
	return is_trusted(*sock) ? 0 : EPERM;
}

void vb_node_capture_start(struct vb_node *node)
{
	const char *path = vb_env("VERBENA_CAPTURE");
	int sock = -1;

	vb_control_add("capture", serve_capture);
	if (!path || !*path)
		return;
	int err = connect_collector(path, &sock);
	if (!err)
		err = begin_capture(node, sock);
	if (!err)
		return;
	if (sock >= 0)
		close(sock);
	vb_log(VB_LOG_ERROR, "VERBENA_CAPTURE=%s: %s; this program is not captured", path, strerror(err));
}

void vb_node_capture_stop(struct vb_node *node)
{
	if (captured == node)
		end_capture();
}

void vb_node_capture_in_child(void)
{
	/* without captured: fork() came while a capture began. The collector sees the end when all copies are closed */
	if (collector.fd >= 0)
		close(collector.fd);
	collector.fd = -1;
	captured = NULL;
	vb_capture_in_child();
}
