// ip_sums.h - the checksums of IPv4, TCP and UDP in an Ethernet frame: filled in, and verified
// follows: RFC 791, RFC 768, RFC 8200 §8.1, RFC 9293 §3.1; IEEE 802.1Q; ibv_post_send(3), IBV_SEND_IP_CSUM
// SPDX-License-Identifier: MIT
#ifndef VB_FRAME_IP_SUMS_H
#define VB_FRAME_IP_SUMS_H

#include <stdbool.h>
#include <stdint.h>

/* Writes the checksum of IPv4, and that of TCP or UDP over IPv4 or IPv6 (without extension headers). The transport
 * header of a fragment, or of a packet that is cut off, stays as it is. */
void vb_ip_sums_fill(uint8_t *frame, uint32_t len);

/* The same for a frame whose transport checksum alone is missing. A UDP datagram that has none stays without.
 * Returns what vb_ip_sums_right now says of the frame, without a second sum over its payload. */
bool vb_ip_sums_finish(uint8_t *frame, uint32_t len);

/* Are the checksum of IPv4 and that of TCP or UDP in it right? False for all other frames, and for fragments. */
bool vb_ip_sums_right(const uint8_t *frame, uint32_t len);

#endif
