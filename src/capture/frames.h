// frames.h - what the files of this folder share
// see: docs/capture.md
// SPDX-License-Identifier: MIT
#ifndef VB_CAPTURE_FRAMES_H
#define VB_CAPTURE_FRAMES_H

#include "capture/capture.h"

/* Records a TCP segment: a head, then len bytes at offset off of the pieces. */
void vb_capture_segment(const struct vb_capture_of *of, const uint8_t *head, uint32_t head_len, const struct iovec *iov,
                        int n, size_t off, uint32_t len);

#endif
