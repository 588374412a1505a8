// http_server.c - a small HTTP server for one page
// follows: RFC 9112 (HTTP/1.1)
// SPDX-License-Identifier: MIT
#include "tools/http_server.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS 32
#define PATIENCE_MS 5000
#define EMFILE_PAUSE_MS 100

struct connection {
	int fd; /* -1: unused */
	int64_t until;
	size_t got, sent;
	struct vb_text answer; /* empty while the request is incomplete */
	char head[HTTP_HEAD_MAX];
};

static int64_t clock_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void hang_up(struct connection *c)
{
	close(c->fd);
	vb_text_free(&c->answer);
	c->fd = -1;
}

static const char *reason_of(int status)
{
	switch (status) {
	case 200:
		return "OK";
	case 400:
		return "Bad Request";
	case 404:
		return "Not Found";
	case 405:
		return "Method Not Allowed";
	case 431:
		return "Request Header Fields Too Large";
	case 505:
		return "HTTP Version Not Supported";
	default:
		return "Internal Server Error";
	}
}

static void prepare_answer(struct connection *c, const struct http_request *r, http_page *page)
{
	struct vb_text body = {0};
	const char *type = "text/plain; charset=utf-8";
	int status = r->status == 200 ? page(r, &body, &type) : r->status;

	if (status != 200 || body.failed) {
		status = status == 200 ? 500 : status;
		vb_text_free(&body);
		vb_text_format(&body, "%d %s\n", status, reason_of(status));
		type = "text/plain; charset=utf-8";
	}
	vb_text_format(&c->answer,
	               "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%sConnection: close\r\n\r\n",
	               status, reason_of(status), type, body.len, status == 405 ? "Allow: GET, HEAD\r\n" : "");
	if (!r->head && body.at)
		vb_text_put(&c->answer, body.at);
	vb_text_free(&body);
}

static void send_rest(struct connection *c)
{
	ssize_t n = send(c->fd, c->answer.at + c->sent, c->answer.len - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0)
		c->sent += (size_t)n;
	if (n <= 0 || c->sent == c->answer.len) {
		shutdown(c->fd, SHUT_WR);
		hang_up(c);
	}
}

static void receive_some(struct connection *c, http_page *page)
{
	ssize_t n = recv(c->fd, c->head + c->got, sizeof(c->head) - c->got, MSG_DONTWAIT);
	struct http_request r;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		hang_up(c);
		return;
	}
	c->got += (size_t)n;
	if (http_head_ends(c->head, c->got))
		http_request_read(c->head, c->got, &r);
	else if (c->got == sizeof(c->head))
		r = (struct http_request){.status = 431};
	else
		return;
	prepare_answer(c, &r, page);
	send_rest(c);
}

/* Should a go before b, to make room? Connections whose request is not complete go first, and of these the oldest. */
static bool goes_before(const struct connection *a, const struct connection *b)
{
	if (!a->answer.len != !b->answer.len)
		return !a->answer.len;
	return a->until < b->until;
}

/* A connection that is not used. If all are used, one is ended, so that silent ones keep nobody out. */
static struct connection *free_connection(struct connection *all)
{
	struct connection *oldest = &all[0];

	for (int i = 0; i < CONNECTIONS; i++) {
		if (all[i].fd < 0)
			return &all[i];
		if (goes_before(&all[i], oldest))
			oldest = &all[i];
	}
	hang_up(oldest);
	return oldest;
}

/* Returns 0 or the errno value of a socket that does not work any more. */
static int accept_one(struct connection *all, int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0 && (errno == EBADF || errno == EINVAL || errno == ENOTSOCK))
		return errno;
	if (fd < 0 && (errno == EMFILE || errno == ENFILE))
		poll(NULL, 0, EMFILE_PAUSE_MS);
	if (fd < 0)
		return 0;
	struct connection *c = free_connection(all);

	c->fd = fd;
	c->got = c->sent = 0;
	c->until = clock_ms() + PATIENCE_MS;
	return 0;
}

/* Ends connections whose time is over. Returns the time until the next one's, in ms; -1: none. */
static int hang_up_late(struct connection *all)
{
	int64_t now = clock_ms(), first = INT64_MAX;

	for (int i = 0; i < CONNECTIONS; i++) {
		if (all[i].fd >= 0 && all[i].until <= now)
			hang_up(&all[i]);
		if (all[i].fd >= 0 && all[i].until < first)
			first = all[i].until;
	}
	return first == INT64_MAX ? -1 : (int)(first - now);
}

int http_serve(int listener, int stop_fd, http_page *page)
{
	static struct connection all[CONNECTIONS];
	struct pollfd pfd[CONNECTIONS + 2];
	int err = 0;

	for (int i = 0; i < CONNECTIONS; i++)
		all[i].fd = -1;
	while (!err) {
		int timeout = hang_up_late(all);

		for (int i = 0; i < CONNECTIONS; i++)
			pfd[i] = (struct pollfd){all[i].fd, all[i].answer.len ? POLLOUT : POLLIN, 0};
		pfd[CONNECTIONS] = (struct pollfd){listener, POLLIN, 0};
		pfd[CONNECTIONS + 1] = (struct pollfd){stop_fd, POLLIN, 0};
		if (poll(pfd, CONNECTIONS + 2, timeout) < 0 && errno != EINTR)
			err = errno;
		else if (pfd[CONNECTIONS + 1].revents)
			break;
		for (int i = 0; !err && i < CONNECTIONS; i++)
			if (all[i].fd >= 0 && pfd[i].revents)
				all[i].answer.len ? send_rest(&all[i]) : receive_some(&all[i], page);
		if (!err && pfd[CONNECTIONS].revents)
			err = accept_one(all, listener);
	}
	for (int i = 0; i < CONNECTIONS; i++)
		if (all[i].fd >= 0)
			hang_up(&all[i]);
	return err;
}
