// http_request.c - the head of an HTTP request: which page is wanted
// follows: RFC 9112 (HTTP/1.1), RFC 9110 §12.5.1 (Accept)
// SPDX-License-Identifier: MIT
#include "tools/http_request.h"

#include <string.h>
#include <strings.h>

bool http_head_ends(const char *bytes, size_t len)
{
	return memmem(bytes, len, "\r\n\r\n", 4) || memmem(bytes, len, "\n\n", 2);
}

/* Copies the next word of a line, up to a space. Returns what follows it, or NULL if it does not fit. */
static const char *next_word(const char *p, const char *end, char *word, size_t size)
{
	size_t n = 0;

	while (p < end && *p == ' ')
		p++;
	for (; p < end && *p != ' '; p++) {
		if (n + 1 == size || (unsigned char)*p <= 0x20 || (unsigned char)*p >= 0x7f)
			return NULL;
		word[n++] = *p;
	}
	word[n] = '\0';
	return n ? p : NULL;
}

static int request_line(const char *p, const char *end, struct http_request *r)
{
	char method[16], version[16], target[sizeof(r->path)];

	if (end > p && end[-1] == '\r')
		end--;
	p = next_word(p, end, method, sizeof(method));
	if (p)
		p = next_word(p, end, target, sizeof(target));
	if (p)
		p = next_word(p, end, version, sizeof(version));
	if (!p || p != end || target[0] != '/')
		return 400;
	target[strcspn(target, "?#")] = '\0';
	strcpy(r->path, target);
	if (strncmp(version, "HTTP/1.", 7) != 0)
		return strncmp(version, "HTTP/", 5) ? 400 : 505;
	r->head = !strcmp(method, "HEAD");
	return r->head || !strcmp(method, "GET") ? 200 : 405;
}

/* The value of a header line with this name, without blanks before it; or NULL. */
static const char *header_value(const char *p, const char *end, const char *name)
{
	size_t n = strlen(name);

	if ((size_t)(end - p) <= n || strncasecmp(p, name, n) != 0 || p[n] != ':')
		return NULL;
	for (p += n + 1; p < end && (*p == ' ' || *p == '\t'); p++)
		;
	return p;
}

void http_request_read(const char *bytes, size_t len, struct http_request *r)
{
	const char *end = bytes + len, *line = memchr(bytes, '\n', len), *next;

	*r = (struct http_request){.status = 400};
	if (!line || memchr(bytes, '\0', len))
		return;
	r->status = request_line(bytes, line, r);
	for (line++; line < end && *line != '\r' && *line != '\n'; line = next + 1) {
		next = memchr(line, '\n', (size_t)(end - line));
		if (!next)
			break;
		const char *accept = header_value(line, next, "Accept");
		if (accept && memmem(accept, (size_t)(next - accept), "application/openmetrics-text", 28))
			r->openmetrics = true;
	}
}
