// nqn.h - NVMe qualified names and UUIDs
// follows: NVM Express Base 1.4, 7.9 (NVMe Qualified Names); RFC 4122, 3
// SPDX-License-Identifier: MIT
#ifndef NV_NQN_H
#define NV_NQN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NV_UUID_TEXT 37

/* True if the field (at most NV_NQN_SIZE bytes) contains a terminated name: "nqn.yyyy-mm.", no control characters, at
 * most 223 bytes. */
bool nv_nqn_valid(const char *field, size_t size);

void nv_uuid_format(const uint8_t uuid[16], char text[NV_UUID_TEXT]);
bool nv_uuid_parse(const char *text, uint8_t uuid[16]);

/* Derives a UUID that is always the same for the same name and number, for namespaces without a configured UUID. RFC
 * 9562, version 8. */
void nv_uuid_from(const char *name, uint64_t number, uint8_t uuid[16]);

#endif
