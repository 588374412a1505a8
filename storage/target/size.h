// size.h - reads numbers of bytes, as people write them
// SPDX-License-Identifier: MIT
#ifndef NT_SIZE_H
#define NT_SIZE_H

#include <stdbool.h>
#include <stdint.h>

/* 4096, 64K, 10M, 1G, 1T, 1P, with powers of 1024. False: something else, or too large. */
bool nt_size_parse(const char *text, uint64_t *size);

#endif
