// text.h - text that grows: lines and JSON for answers
// follows: RFC 8259 (JSON)
// SPDX-License-Identifier: MIT
#ifndef VB_UTIL_TEXT_H
#define VB_UTIL_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Zeros are an empty text. A text that could not grow (no memory, or longer than VB_TEXT_MAX) has failed: it keeps what
 * it had, and takes no more. */
#define VB_TEXT_MAX ((size_t)4 << 20)
struct vb_text {
	char *at; /* ends with a zero byte, which is not counted; NULL: nothing was put yet */
	size_t len, room;
	bool failed;
};

void vb_text_free(struct vb_text *t); /* and makes it empty */
void vb_text_put(struct vb_text *t, const char *s);
void vb_text_format(struct vb_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Appends s as a JSON string, with quotes. Bytes that are not ASCII are escaped one by one, so the result is valid JSON
 * whatever s contains. */
void vb_text_quote(struct vb_text *t, const char *s);
/* Cuts the text back to its first len bytes. */
void vb_text_cut(struct vb_text *t, size_t len);

#endif
