// http_request.h - the head of an HTTP request: which page is wanted
// follows: RFC 9112 (HTTP/1.1)
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_HTTP_REQUEST_H
#define VB_TOOLS_HTTP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

#define HTTP_HEAD_MAX 8192u

struct http_request {
	int status;       /* 200, or why the request fails: 400, 405, 505 */
	bool head;        /* HEAD: the answer has no body */
	bool openmetrics; /* the client accepts OpenMetrics */
	char path[256];   /* without a query */
};

/* True if the bytes contain a whole head, up to an empty line. */
bool http_head_ends(const char *bytes, size_t len);
/* Reads the head. Bodies are not read: the connection is closed after the answer. */
void http_request_read(const char *bytes, size_t len, struct http_request *r);

#endif
