// cursor.h - reads and writes bytes: bounds-checked, big-endian, with a sticky error
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_CURSOR_H
#define VB_FRAME_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * Decode everything, then test `failed` once. A read beyond the end returns zeros, and so does every read after it. The
 * caller owns the bytes. pos never exceeds len.
 */
struct vb_reader {
	const uint8_t *bytes;
	size_t len, pos;
	bool failed;
};

/* The same for writing: a write that does not fit writes nothing, and neither does any write after it. */
struct vb_writer {
	uint8_t *bytes;
	size_t len, pos;
	bool failed;
};

static inline struct vb_reader vb_reader(const void *bytes, size_t len)
{
	return (struct vb_reader){.bytes = bytes, .len = len};
}

static inline struct vb_writer vb_writer(void *bytes, size_t len)
{
	return (struct vb_writer){.bytes = bytes, .len = len};
}

static inline size_t vb_left(const struct vb_reader *r)
{
	return r->len - r->pos;
}

/* Returns the next n bytes, or NULL. */
static inline const uint8_t *vb_take(struct vb_reader *r, size_t n)
{
	if (r->failed || n > r->len - r->pos) {
		r->failed = true;
		return NULL;
	}
	const uint8_t *at = r->bytes + r->pos;

	r->pos += n;
	return at;
}

/* Returns room for the next n bytes, or NULL. */
static inline uint8_t *vb_make(struct vb_writer *w, size_t n)
{
	if (w->failed || n > w->len - w->pos) {
		w->failed = true;
		return NULL;
	}
	uint8_t *at = w->bytes + w->pos;

	w->pos += n;
	return at;
}

/* An integer of n bytes, 1 to 8. */
static inline uint64_t vb_get(struct vb_reader *r, size_t n)
{
	const uint8_t *at = vb_take(r, n);
	uint64_t v = 0;

	for (size_t i = 0; at && i < n; i++)
		v = v << 8 | at[i];
	return v;
}

static inline void vb_put(struct vb_writer *w, size_t n, uint64_t v)
{
	uint8_t *at = vb_make(w, n);

	for (size_t i = n; at && i > 0; i--, v >>= 8)
		at[i - 1] = (uint8_t)v;
}

static inline uint8_t vb_get8(struct vb_reader *r)
{
	return (uint8_t)vb_get(r, 1);
}

static inline void vb_put8(struct vb_writer *w, uint8_t v)
{
	vb_put(w, 1, v);
}

static inline uint16_t vb_get16(struct vb_reader *r)
{
	return (uint16_t)vb_get(r, 2);
}

static inline void vb_put16(struct vb_writer *w, uint16_t v)
{
	vb_put(w, 2, v);
}

static inline uint32_t vb_get24(struct vb_reader *r)
{
	return (uint32_t)vb_get(r, 3);
}

/* The high byte of v is ignored. */
static inline void vb_put24(struct vb_writer *w, uint32_t v)
{
	vb_put(w, 3, v);
}

static inline uint32_t vb_get32(struct vb_reader *r)
{
	return (uint32_t)vb_get(r, 4);
}

static inline void vb_put32(struct vb_writer *w, uint32_t v)
{
	vb_put(w, 4, v);
}

static inline uint64_t vb_get64(struct vb_reader *r)
{
	return vb_get(r, 8);
}

static inline void vb_put64(struct vb_writer *w, uint64_t v)
{
	vb_put(w, 8, v);
}

static inline void vb_put_bytes(struct vb_writer *w, const void *bytes, size_t n)
{
	uint8_t *at = vb_make(w, n);

	if (at && n)
		memcpy(at, bytes, n);
}

static inline void vb_put_zeros(struct vb_writer *w, size_t n)
{
	uint8_t *at = vb_make(w, n);

	if (at && n)
		memset(at, 0, n);
}

#endif
