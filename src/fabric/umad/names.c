// names.c - names of classes, methods, attributes and states, as libibumad prints them
// follows: umad_class_str(3), umad_attribute_str(3)
// SPDX-License-Identifier: MIT
#include <endian.h>
#include <infiniband/umad_str.h>
#include <stdbool.h>
#include <stddef.h>

struct name {
	unsigned value;
	const char *text;
};

#define NAME_IN(table, value, otherwise) find_name(table, sizeof(table) / sizeof(*(table)), value, otherwise)

static const char *find_name(const struct name *table, size_t n, unsigned value, const char *otherwise)
{
	for (size_t i = 0; i < n; i++)
		if (table[i].value == value)
			return table[i].text;
	return otherwise;
}

static const struct name classes[] = {{0x01, "Subn"},    {0x81, "Subn"}, {0x03, "SubnAdm"},
                                      {0x04, "Perf"},    {0x05, "BM"},   {0x06, "DevMgt"},
                                      {0x07, "ComMgt"},  {0x08, "SNMP"}, {0x10, "DevAdm"},
                                      {0x11, "BootMgt"}, {0x12, "BIS"},  {0x21, "CongestionManagment"}};

const char *umad_class_str(uint8_t mgmt_class)
{
	bool vendor = (mgmt_class >= 0x09 && mgmt_class <= 0x0f) || (mgmt_class >= 0x30 && mgmt_class <= 0x4f);

	return NAME_IN(classes, mgmt_class,
	               vendor                                     ? "Vendor"
	               : mgmt_class >= 0x10 && mgmt_class <= 0x2f ? "Application"
	                                                          : "<unknown>");
}

static const struct name methods[] = {{0x01, "Get"},  {0x02, "Set"},    {0x81, "GetResp"},    {0x03, "Send"},
                                      {0x05, "Trap"}, {0x06, "Report"}, {0x86, "ReportResp"}, {0x07, "TrapRepress"}};
static const struct name sa_methods[] = {{0x12, "GetTable"},     {0x92, "GetTableResp"}, {0x15, "Delete"},
                                         {0x95, "DeleteResp"},   {0x14, "GetMulti"},     {0x94, "GetMultiResp"},
                                         {0x13, "GetTraceTable"}};

const char *umad_method_str(uint8_t mgmt_class, uint8_t method)
{
	const char *common = NAME_IN(methods, method, "<unknown");

	return mgmt_class == 0x03 ? NAME_IN(sa_methods, method, common) : common;
}

static const struct name states[] = {{0x04, "Bad Version"},
                                     {0x08, "Method not supported"},
                                     {0x0c, "Method/Attribute combo not supported"},
                                     {0x1c, "Invalid attribute/modifier field"}};

const char *umad_common_mad_status_str(__be16 status)
{
	unsigned s = be16toh(status);

	return s & 1 ? "Busy" : s & 2 ? "Redirection required" : NAME_IN(states, s & 0x1c, "Success");
}

static const struct name sa_states[] = {
        {0, "Success"},           {1, "No Resources"}, {2, "Request Invalid"},         {3, "No Records"},
        {4, "Too Many Records"},  {5, "Invalid GID"},  {6, "Insufficient Components"}, {7, "Request Denied"},
        {8, "Priority Suggested"}};

const char *umad_sa_mad_status_str(__be16 status)
{
	return NAME_IN(sa_states, be16toh(status) >> 8, "Undefined Error");
}

static const struct name attributes[] = {{0x01, "Class Port Info"}, {0x02, "Notice"}, {0x03, "Inform Info"}};
static const struct name sm_attributes[] = {{0x10, "NodeDescription"},
                                            {0x11, "NodeInfo"},
                                            {0x12, "SwitchInfo"},
                                            {0x14, "GUIDInfo"},
                                            {0x15, "PortInfo"},
                                            {0x16, "P_KeyTable"},
                                            {0x17, "SLtoVLMappingTable"},
                                            {0x18, "VLArbitrationTable"},
                                            {0x19, "LinearForwardingTable"},
                                            {0x1a, "RandomForwardingTable"},
                                            {0x1b, "MulticastForwardingTable"},
                                            {0x1c, "LinkSpeedWidthPairsTable"},
                                            {0x1d, "VendorSpecificMadsTable"},
                                            {0x1e, "HierarchyInfo"},
                                            {0x20, "SMInfo"},
                                            {0x30, "VendorDiag"},
                                            {0x31, "LedInfo"},
                                            {0x32, "CableInfo"},
                                            {0x33, "PortInfoExtended"}};
static const struct name sa_attributes[] = {{0x11, "NodeRecord"},
                                            {0x12, "PortInfoRecord"},
                                            {0x13, "SLtoVLMappingTableRecord"},
                                            {0x14, "SwitchInfoRecord"},
                                            {0x15, "LinearForwardingTableRecord"},
                                            {0x16, "RandomForwardingTableRecord"},
                                            {0x17, "MulticastForwardingTableRecord"},
                                            {0x18, "SMInfoRecord"},
                                            {0x19, "LinkSpeedWidthPairsTableRecord"},
                                            {0xf3, "InformInfoRecord"},
                                            {0x20, "LinkRecord"},
                                            {0x30, "GuidInfoRecord"},
                                            {0x31, "ServiceRecord"},
                                            {0x33, "P_KeyTableRecord"},
                                            {0x35, "PathRecord"},
                                            {0x36, "VLArbitrationTableRecord"},
                                            {0x38, "MCMemberRecord"},
                                            {0x39, "TraceRecord"},
                                            {0x3a, "MultiPathRecord"},
                                            {0x3b, "ServiceAssociationRecord"},
                                            {0x3c, "HierarchyInfoRecord"},
                                            {0x3d, "CableInfoRecord"},
                                            {0x3e, "PortInfoExtendedRecord"}};
static const struct name cm_attributes[] = {{0x10, "ConnectRequest"},
                                            {0x11, "MsgRcptAck"},
                                            {0x12, "ConnectReject"},
                                            {0x13, "ConnectReply"},
                                            {0x14, "ReadyToUse"},
                                            {0x15, "DisconnectRequest"},
                                            {0x16, "DisconnectReply"},
                                            {0x17, "ServiceIDResReq"},
                                            {0x18, "ServiceIDResReqResp"},
                                            {0x19, "LoadAlternatePath"},
                                            {0x1a, "AlternatePathResponse"},
                                            {0x1b, "SuggestAlternatePath"},
                                            {0x1c, "SuggestPathResponse"}};

const char *umad_attribute_str(uint8_t mgmt_class, __be16 attr_id)
{
	unsigned id = be16toh(attr_id);
	const char *common = NAME_IN(attributes, id, "<unknown>");

	switch (mgmt_class) {
	case 0x01:
	case 0x81:
		return NAME_IN(sm_attributes, id, common);
	case 0x03:
		return NAME_IN(sa_attributes, id, common);
	case 0x07:
		return NAME_IN(cm_attributes, id, common);
	default:
		return common;
	}
}
