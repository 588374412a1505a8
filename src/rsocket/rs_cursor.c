// rs_cursor.c - the position of a call in its vector of buffers
// SPDX-License-Identifier: MIT
#include "rsocket/rs.h"

#include <limits.h>
#include <string.h>

__attribute__((hot)) bool rs_cursor_init(struct rs_cursor *c, const struct iovec *iov, size_t count)
{
	*c = (struct rs_cursor){.iov = iov, .count = count};
	for (size_t i = 0; i < count; i++) {
		if (iov[i].iov_len > SSIZE_MAX - c->left)
			return false;
		c->left += iov[i].iov_len;
	}
	return true;
}

/* Returns the next contiguous range of at most n bytes, and advances. */
static __attribute__((hot)) void *cursor_advance(struct rs_cursor *c, size_t *n)
{
	char *p;

	while (c->at == c->iov->iov_len) {
		c->iov++;
		c->at = 0;
	}
	p = (char *)c->iov->iov_base + c->at;
	if (*n > c->iov->iov_len - c->at)
		*n = c->iov->iov_len - c->at;
	c->at += *n;
	c->left -= *n;
	return p;
}

__attribute__((hot)) void rs_cursor_get(struct rs_cursor *c, void *to, size_t n)
{
	for (size_t part; n; n -= part, to = (char *)to + part) {
		void *from = cursor_advance(c, (part = n, &part));

		memcpy(to, from, part);
	}
}

__attribute__((hot)) void rs_cursor_put(struct rs_cursor *c, const void *from, size_t n)
{
	for (size_t part; n; n -= part, from = (const char *)from + part) {
		void *to = cursor_advance(c, (part = n, &part));

		memcpy(to, from, part);
	}
}
