// ca.c - the CA of the fabric, as libibumad shows it
// follows: umad_get_ca(3), umad_get_cas_names(3), umad_get_port(3), umad_get_issm_path(3)
// SPDX-License-Identifier: MIT
#include <endian.h>
#include <errno.h>
#include <infiniband/umad.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/umad/umad.h"

int umad_init(void)
{
	return 0;
}

int umad_done(void)
{
	return 0;
}

/* False, with errno, if there is no fabric or it has no such CA. */
static bool ask_ca(struct vb_fabric_ca *ca)
{
	long n = vb_fabric_ask(VB_FABRIC_CA, 0, "", ca, sizeof(*ca));

	if (n == sizeof(*ca) && !ca->error && ca->ports <= VB_FABRIC_PORTS && ca->ports)
		return true;
	if (n < 0 && vb_fabric_socket())
		umad_complain("%s: %s", vb_fabric_socket(), strerror(errno));
	else if (n == sizeof(*ca))
		umad_complain("the fabric has no channel adapter \"%s\" (VERBENA_NODE)", vb_fabric_node_name());
	errno = ENODEV;
	return false;
}

static bool is_ours(const char *ca_name)
{
	return !ca_name || !strncmp(ca_name, VB_FABRIC_DEVICE, UMAD_CA_NAME_LEN);
}

/* As rdma-core: an Active port, or one that is Up, or the first. */
static unsigned choose_port(const struct vb_fabric_ca *ca)
{
	enum { ACTIVE = 4, LINK_UP = 5 };

	for (unsigned k = 1; k <= ca->ports; k++)
		if (ca->port[k].state == ACTIVE)
			return k;
	for (unsigned k = 1; k <= ca->ports; k++)
		if (ca->port[k].phys == LINK_UP)
			return k;
	return 1;
}

int umad_find_port(const char *ca_name, int portnum, struct vb_fabric_ca *ca)
{
	if (!is_ours(ca_name) || !ask_ca(ca) || portnum < 0 || (unsigned)portnum > ca->ports)
		return -ENODEV;
	return portnum ? portnum : (int)choose_port(ca);
}

int umad_get_cas_names(char cas[][UMAD_CA_NAME_LEN], int max)
{
	struct vb_fabric_ca ca;

	if (max < 1 || !ask_ca(&ca))
		return 0;
	snprintf(cas[0], UMAD_CA_NAME_LEN, "%s", VB_FABRIC_DEVICE);
	return 1;
}

static int fill_port(umad_port_t *p, const struct vb_fabric_ca *ca, unsigned num)
{
	const struct vb_fabric_ca_port *o = &ca->port[num];
	unsigned pkeys = o->pkeys <= sizeof(o->pkey) / sizeof(*o->pkey) ? o->pkeys : 0;

	memset(p, 0, sizeof(*p));
	p->pkeys = calloc(pkeys ? pkeys : 1, sizeof(*p->pkeys));
	if (!p->pkeys)
		return -ENOMEM;
	memcpy(p->pkeys, o->pkey, pkeys * sizeof(*p->pkeys));
	snprintf(p->ca_name, sizeof(p->ca_name), "%s", VB_FABRIC_DEVICE);
	snprintf(p->link_layer, sizeof(p->link_layer), "InfiniBand");
	p->portnum = (int)num;
	p->base_lid = o->lid;
	p->lmc = o->lmc;
	p->sm_lid = o->sm_lid;
	p->sm_sl = o->sm_sl;
	p->state = o->state;
	p->phys_state = o->phys;
	p->rate = o->rate;
	p->capmask = htobe32(o->cap_mask);
	p->gid_prefix = htobe64(o->prefix);
	p->port_guid = htobe64(o->guid);
	p->pkeys_size = pkeys;
	return 0;
}

int umad_get_port(const char *ca_name, int portnum, umad_port_t *port)
{
	struct vb_fabric_ca ca;
	int num = umad_find_port(ca_name, portnum, &ca);

	return num < 0 ? num : fill_port(port, &ca, (unsigned)num);
}

int umad_release_port(umad_port_t *port)
{
	free(port->pkeys);
	port->pkeys = NULL;
	port->pkeys_size = 0;
	return 0;
}

int umad_release_ca(umad_ca_t *ca)
{
	for (int i = 0; i < UMAD_CA_MAX_PORTS; i++)
		if (ca->ports[i]) {
			umad_release_port(ca->ports[i]);
			free(ca->ports[i]);
			ca->ports[i] = NULL;
		}
	return 0;
}

int umad_get_ca(const char *ca_name, umad_ca_t *out)
{
	struct vb_fabric_ca ca;
	int rc = umad_find_port(ca_name, 0, &ca);

	if (rc < 0)
		return rc;
	memset(out, 0, sizeof(*out));
	snprintf(out->ca_name, sizeof(out->ca_name), "%s", VB_FABRIC_DEVICE);
	snprintf(out->fw_ver, sizeof(out->fw_ver), "%.19s", ca.fw_ver);
	snprintf(out->ca_type, sizeof(out->ca_type), "%.39s", ca.hca_type);
	snprintf(out->hw_ver, sizeof(out->hw_ver), "%.19s", ca.hw_rev);
	out->node_type = ca.type;
	out->numports = (int)ca.ports;
	out->node_guid = htobe64(ca.guid);
	out->system_guid = htobe64(ca.system_guid);
	for (unsigned k = 1; k <= ca.ports; k++) {
		out->ports[k] = malloc(sizeof(*out->ports[k]));
		if (out->ports[k] && !fill_port(out->ports[k], &ca, k))
			continue;
		free(out->ports[k]);
		out->ports[k] = NULL;
		umad_release_ca(out);
		return -ENOMEM;
	}
	return 0;
}

int umad_get_ca_portguids(const char *ca_name, __be64 *portguids, int max)
{
	struct vb_fabric_ca ca;
	int rc = umad_find_port(ca_name, 0, &ca);

	if (rc < 0)
		return rc;
	if (portguids && (int)ca.ports + 1 > max)
		return -ENOMEM;
	for (unsigned k = 0; portguids && k <= ca.ports; k++)
		portguids[k] = k ? htobe64(ca.port[k].guid) : 0;
	return portguids ? (int)ca.ports + 1 : 0;
}

int umad_get_issm_path(const char *ca_name, int portnum, char path[], int max)
{
	struct vb_fabric_ca ca;
	char found[4352];
	int num = umad_find_port(ca_name, portnum, &ca);
	long n = num < 0 ? -1 : vb_fabric_ask(VB_FABRIC_ISSM, (unsigned)num, "", found, sizeof(found) - 1);

	if (num < 0)
		return num;
	if (n < 2)
		return -EINVAL;
	found[n] = '\0';
	snprintf(path, (size_t)max, "%s", found);
	return 0;
}

/* --- lists --- */

struct umad_device_node *umad_get_ca_device_list(void)
{
	struct vb_fabric_ca ca;
	struct umad_device_node *node = ask_ca(&ca) ? malloc(sizeof(*node)) : NULL;

	if (!node)
		return NULL;
	*node = (struct umad_device_node){.ca_name = strdup(VB_FABRIC_DEVICE)};
	if (!node->ca_name) {
		free(node);
		return NULL;
	}
	errno = 0;
	return node;
}

void umad_free_ca_device_list(struct umad_device_node *head)
{
	while (head) {
		struct umad_device_node *next = head->next;

		free((char *)head->ca_name);
		free(head);
		head = next;
	}
}

/* The caller may have joined lists of its own. size 0: the whole list. */
int umad_sort_ca_device_list(struct umad_device_node **head, size_t size)
{
	size_t n = 0;

	for (struct umad_device_node *i = *head; i; i = i->next)
		n++;
	if (size && size != n)
		return EINVAL;
	struct umad_device_node *sorted = NULL;
	while (*head) {
		struct umad_device_node *one = *head, **at = &sorted;

		*head = one->next;
		while (*at && strcmp((*at)->ca_name, one->ca_name) <= 0)
			at = &(*at)->next;
		one->next = *at;
		*at = one;
	}
	*head = sorted;
	return 0;
}

/* --- of later libraries: a CA has subnet and general management on the same port --- */

int vb_umad_get_smi_gsi_pair_by_ca_name(const char *devname, uint8_t portnum, struct vb_umad_pair *pair,
                                        unsigned enforce_smi)
{
	struct vb_fabric_ca ca;
	int num = umad_find_port(devname, portnum, &ca);

	if (num < 0) {
		errno = ENODEV;
		return -ENODEV;
	}
	memset(pair, 0, sizeof(*pair));
	snprintf(pair->smi_name, sizeof(pair->smi_name), "%s", VB_FABRIC_DEVICE);
	snprintf(pair->gsi_name, sizeof(pair->gsi_name), "%s", VB_FABRIC_DEVICE);
	pair->smi_port = pair->gsi_port = (uint32_t)num;
	return 0;
}

int vb_umad_get_smi_gsi_pairs(struct vb_umad_pair *pairs, size_t max)
{
	return max && !vb_umad_get_smi_gsi_pair_by_ca_name(NULL, 0, pairs, 0);
}
