// input.h - the bytes of a fuzzer's input, taken one after the other; zeros behind its end
// SPDX-License-Identifier: MIT
#ifndef VB_FUZZ_INPUT_H
#define VB_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>

struct input {
	const uint8_t *at;
	size_t left;
};

static inline uint8_t byte(struct input *in)
{
	if (!in->left)
		return 0;
	in->left--;
	return *in->at++;
}

static inline void bytes(struct input *in, uint8_t *out, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out[i] = byte(in);
}

#endif
