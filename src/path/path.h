// path.h - the list of paths
// see: ARCHITECTURE.md, "The tree"
// SPDX-License-Identifier: MIT
#ifndef VB_PATH_PATH_H
#define VB_PATH_PATH_H

#include "node/io.h"

extern const struct vb_path_ops vb_local_path_ops; /* RC and UC through shared memory with a program of this host */
/* UD through shared memory if the receiver is on this host, otherwise over RoCEv2 */
extern const struct vb_path_ops vb_datagram_path_ops;
extern const struct vb_path_ops vb_roce_path_ops;  /* RC and UC over RoCEv2 */
extern const struct vb_path_ops vb_iwarp_path_ops; /* RC over a TCP connection */

extern const struct vb_transport_ops vb_roce_transport, vb_iwarp_transport;

#endif
