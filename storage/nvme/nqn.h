// nqn.h - NVMe qualified names and UUIDs
// follows: NVM Express Base 1.4, 7.9 (NVMe Qualified Names); RFC 4122, 3
// SPDX-License-Identifier: MIT
#ifndef NV_NQN_H
#define NV_NQN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NV_UUID_TEXT 37

/* Whether the field (of NV_NQN_SIZE bytes at most) holds a name that ends in it: "nqn.yyyy-mm.", no control characters,
 * 223 at most. */
bool nv_nqn_valid(const char *field, size_t size);

void nv_uuid_format(const uint8_t uuid[16], char text[NV_UUID_TEXT]);
bool nv_uuid_parse(const char *text, uint8_t uuid[16]);

/* The same UUID for the same name and number, ever: what a namespace is called whose owner has not named it. RFC 9562
 * version 8. */
void nv_uuid_from(const char *name, uint64_t number, uint8_t uuid[16]);

#endif
