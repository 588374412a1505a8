// text.c - text that grows: lines and JSON for answers
// follows: RFC 8259 (JSON)
// SPDX-License-Identifier: MIT
#include "util/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 4096u

void vb_text_free(struct vb_text *t)
{
	free(t->at);
	*t = (struct vb_text){0};
}

/* Makes room for n more bytes and the zero byte. */
static bool text_grow(struct vb_text *t, size_t n)
{
	size_t room = t->room ? t->room : FIRST_ROOM;

	if (t->failed || n > VB_TEXT_MAX - t->len) {
		t->failed = true;
		return false;
	}
	while (room <= t->len + n)
		room *= 2;
	if (room == t->room)
		return true;
	char *more = realloc(t->at, room);
	if (!more) {
		t->failed = true;
		return false;
	}
	t->at = more;
	t->room = room;
	return true;
}

static void text_append(struct vb_text *t, const char *s, size_t n)
{
	if (!text_grow(t, n))
		return;
	memcpy(t->at + t->len, s, n);
	t->len += n;
	t->at[t->len] = '\0';
}

void vb_text_put(struct vb_text *t, const char *s)
{
	text_append(t, s, strlen(s));
}

void vb_text_format(struct vb_text *t, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	int n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0 || !text_grow(t, (size_t)n))
		return;
	va_start(ap, fmt);
	vsnprintf(t->at + t->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	t->len += (size_t)n;
}

void vb_text_quote(struct vb_text *t, const char *s)
{
	text_append(t, "\"", 1);
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;

		if (c < 0x20 || c >= 0x7f)
			vb_text_format(t, "\\u%04x", c);
		else if (c == '"' || c == '\\')
			vb_text_format(t, "\\%c", c);
		else
			text_append(t, s, 1);
	}
	text_append(t, "\"", 1);
}

void vb_text_cut(struct vb_text *t, size_t len)
{
	if (len >= t->len)
		return;
	t->len = len;
	t->at[len] = '\0';
}
