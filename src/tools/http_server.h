// http_server.h - a small HTTP server for one page
// follows: RFC 9112 (HTTP/1.1)
// SPDX-License-Identifier: MIT
#ifndef VB_TOOLS_HTTP_SERVER_H
#define VB_TOOLS_HTTP_SERVER_H

#include "tools/http_request.h"
#include "util/text.h"

/* Fills the body for a request with status 200, and sets *type. Returns the status. */
typedef int http_page(const struct http_request *r, struct vb_text *body, const char **type);

/*
 * Serves one connection after another until stop_fd is readable. A client has five seconds for its request and for
 * reading the answer; up to 32 are served at once. Returns 0, or an errno value if the sockets fail.
 */
int http_serve(int listener, int stop_fd, http_page *page);

#endif
