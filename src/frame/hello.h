// hello.h - how one Verbena learns that its peer is Verbena too: private data of a REQ that nobody accepts, and of its REJ
// follows: IBA volume 1, 12.6.5 (REQ), 12.6.7 (REJ): private data is the consumer's, and others pass it on or ignore it
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_HELLO_H
#define VB_FRAME_HELLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define VB_HELLO_LEN 16         /* the question: in a REQ, behind the addresses of rdma_cm */
#define VB_HELLO_VERSION_LEN 32 /* the answer has these bytes behind its own 16: the version, filled up with zeros */
#define VB_HELLO_ASK "Verbena: who is?"
#define VB_HELLO_SAY "Verbena: this is"

static inline bool vb_hello_is_asked(const uint8_t question[VB_HELLO_LEN])
{
	return !memcmp(question, VB_HELLO_ASK, VB_HELLO_LEN);
}

/* answer: at least VB_HELLO_LEN + VB_HELLO_VERSION_LEN bytes of zeros. */
static inline void vb_hello_answer(uint8_t *answer, const char *version)
{
	memcpy(answer, VB_HELLO_SAY, VB_HELLO_LEN);
	for (size_t i = 0; version[i] && i < VB_HELLO_VERSION_LEN - 1; i++)
		answer[VB_HELLO_LEN + i] = (uint8_t)version[i];
}

/* Reads the version from the answer of a peer, who may write anything: letters, digits, . - + ~ only. False if it is no
 * such answer. */
static inline bool vb_hello_read(const uint8_t *answer, size_t len, char version[VB_HELLO_VERSION_LEN])
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-+~";

	if (len < VB_HELLO_LEN + VB_HELLO_VERSION_LEN || memcmp(answer, VB_HELLO_SAY, VB_HELLO_LEN) != 0 ||
	    answer[VB_HELLO_LEN + VB_HELLO_VERSION_LEN - 1])
		return false;
	memcpy(version, answer + VB_HELLO_LEN, VB_HELLO_VERSION_LEN);
	return *version && strspn(version, allowed) == strlen(version);
}

#endif
