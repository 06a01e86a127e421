//! Constants by their names in linux/rtnetlink.h, linux/if_addr.h, linux/if_link.h,
//! linux/fib_rules.h, linux/neighbour.h, linux/dcbnl.h and rdma/rdma_netlink.h. Constants of type `usize` are
//! offsets of fields in the structure before the attributes.

pub const RTM_NEWLINK: u16 = 16;
pub const RTM_DELLINK: u16 = 17;
pub const RTM_GETLINK: u16 = 18;
pub const RTM_SETLINK: u16 = 19;
pub const RTM_NEWADDR: u16 = 20;
pub const RTM_DELADDR: u16 = 21;
pub const RTM_GETADDR: u16 = 22;
pub const RTM_NEWROUTE: u16 = 24;
pub const RTM_GETROUTE: u16 = 26;
pub const RTM_NEWNEIGH: u16 = 28;
pub const RTM_GETNEIGH: u16 = 30;
pub const RTM_NEWRULE: u16 = 32;
pub const RTM_DELRULE: u16 = 33;
pub const RTM_GETRULE: u16 = 34;

pub const AF_INET: u8 = 2;
pub const AF_INET6: u8 = 10;

// ifinfomsg
pub const IFI_INDEX: usize = 4;
pub const IFI_FLAGS: usize = 8;
pub const IFI_CHANGE: usize = 12;
pub const IFF_UP: u32 = 1;
pub const IFF_RUNNING: u32 = 0x40;
pub const IFLA_ADDRESS: u16 = 1;
pub const IFLA_IFNAME: u16 = 3;
pub const IFLA_MTU: u16 = 4;
pub const IFLA_LINK: u16 = 5;
pub const IFLA_MASTER: u16 = 10;
pub const IFLA_TXQLEN: u16 = 13;
pub const IFLA_LINKINFO: u16 = 18;
pub const IFLA_INFO_KIND: u16 = 1;
pub const IFLA_INFO_DATA: u16 = 2;
pub const IFLA_MACVLAN_MODE: u16 = 1;
pub const MACVLAN_MODE_BRIDGE: u32 = 4;
pub const IFLA_IPVLAN_MODE: u16 = 1;
pub const IPVLAN_MODE_L2: u16 = 0;
pub const IFLA_CARRIER_CHANGES: u16 = 35;
pub const IFLA_IFALIAS: u16 = 20;
pub const IFLA_NET_NS_FD: u16 = 28;
pub const IFLA_LINK_NETNSID: u16 = 37;
pub const IFLA_PROP_LIST: u16 = 52;
pub const IFLA_ALT_IFNAME: u16 = 53;
pub const IFLA_PERM_ADDRESS: u16 = 54;

// ifaddrmsg
pub const IFA_PREFIXLEN: usize = 1;
pub const IFA_HEADER_FLAGS: usize = 2;
pub const IFA_SCOPE: usize = 3;
pub const IFA_INDEX: usize = 4;
pub const IFA_ADDRESS: u16 = 1;
pub const IFA_LOCAL: u16 = 2;
pub const IFA_LABEL: u16 = 3;
pub const IFA_CACHEINFO: u16 = 6;
pub const IFA_FLAGS: u16 = 8;
pub const IFA_PROTO: u16 = 11;
pub const IFAPROT_KERNEL_RA: u8 = 2;
pub const IFAPROT_KERNEL_LL: u8 = 3;
pub const IFA_F_TEMPORARY: u32 = 0x01;
pub const IFA_F_NODAD: u32 = 0x02;
pub const IFA_F_HOMEADDRESS: u32 = 0x10;
pub const IFA_F_MANAGETEMPADDR: u32 = 0x100;
pub const IFA_F_NOPREFIXROUTE: u32 = 0x200;
pub const IFA_F_MCAUTOJOIN: u32 = 0x400;

// rtmsg
pub const RTM_DST_LEN: usize = 1;
pub const RTM_SRC_LEN: usize = 2;
pub const RTM_TABLE: usize = 4;
pub const RTM_PROTOCOL: usize = 5;
pub const RTM_SCOPE: usize = 6;
pub const RTM_TYPE: usize = 7;
pub const RTM_FLAGS: usize = 8;
pub const RTA_DST: u16 = 1;
pub const RTA_OIF: u16 = 4;
pub const RTA_GATEWAY: u16 = 5;
pub const RTA_SRC: u16 = 2;
pub const RTA_PREFSRC: u16 = 7;
pub const RTA_MULTIPATH: u16 = 9;
pub const RTA_CACHEINFO: u16 = 12;
pub const RTA_TABLE: u16 = 15;
pub const RTA_NH_ID: u16 = 30;
pub const RTA_EXPIRES: u16 = 23;
pub const RTA_VIA: u16 = 18;
pub const RTN_UNICAST: u8 = 1;
pub const RT_SCOPE_LINK: u8 = 253;
pub const RT_TABLE_MAIN: u8 = 254;
pub const RTPROT_REDIRECT: u8 = 1;
pub const RTPROT_KERNEL: u8 = 2;
pub const RTPROT_STATIC: u8 = 4;
pub const RTPROT_RA: u8 = 9;
pub const RTNH_F_DEAD: u8 = 1;
pub const RTNH_F_PERVASIVE: u8 = 2;
pub const RTNH_F_ONLINK: u8 = 4;

// ndmsg
pub const NDM_IFINDEX: usize = 4;
pub const NDM_STATE: usize = 8;
pub const NDM_FLAGS: usize = 10;
pub const NUD_REACHABLE: u8 = 0x02;
pub const NUD_STALE: u8 = 0x04;
pub const NUD_DELAY: u8 = 0x08;
pub const NUD_PROBE: u8 = 0x10;
pub const NUD_NOARP: u8 = 0x40;
pub const NUD_PERMANENT: u8 = 0x80;
pub const NTF_ROUTER: u8 = 0x80;
pub const NDA_DST: u16 = 1;
pub const NDA_LLADDR: u16 = 2;
pub const NDA_CACHEINFO: u16 = 3;
pub const NDA_PROBES: u16 = 4;

// fib_rule_hdr
pub const FRA_SRC: u16 = 2;
pub const FRA_DST: u16 = 1;
pub const FRA_IIFNAME: u16 = 3;
pub const FRA_PRIORITY: u16 = 6;
pub const FRA_TABLE: u16 = 15;
pub const FRA_OIFNAME: u16 = 17;
pub const FRA_PROTOCOL: u16 = 21;
pub const RULE_SRC_LEN: usize = 2;
pub const RULE_ACTION: usize = 7;
pub const RULE_FLAGS: usize = 8;
pub const FIB_RULE_INVERT: u32 = 2;
pub const FR_ACT_TO_TBL: u8 = 1;

// RDMA netlink: RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, op)
pub const RDMA_NLDEV_CMD_GET: u16 = 0x1401;
pub const RDMA_NLDEV_CMD_SET: u16 = 0x1402;
pub const RDMA_NLDEV_CMD_SYS_GET: u16 = 0x1406;
pub const RDMA_NLDEV_CMD_RES_QP_GET: u16 = 0x140a;
pub const RDMA_NLDEV_CMD_STAT_GET: u16 = 0x1411;
pub const RDMA_NLDEV_ATTR_DEV_INDEX: u16 = 1;
pub const RDMA_NLDEV_ATTR_DEV_NAME: u16 = 2;
pub const RDMA_NLDEV_ATTR_PORT_INDEX: u16 = 3;
pub const RDMA_NLDEV_ATTR_RES_QP: u16 = 19;
pub const RDMA_NLDEV_ATTR_RES_QP_ENTRY: u16 = 20;
pub const RDMA_NLDEV_ATTR_RES_PID: u16 = 28;
pub const RDMA_NLDEV_ATTR_STAT_HWCOUNTERS: u16 = 80;
pub const RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY: u16 = 81;
pub const RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME: u16 = 82;
pub const RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE: u16 = 83;
pub const RDMA_NLDEV_SYS_ATTR_NETNS_MODE: u16 = 66;
pub const RDMA_NLDEV_NET_NS_FD: u16 = 68;

// linkprop
pub const RTM_NEWLINKPROP: u16 = 108;
pub const NLA_F_NESTED: u16 = 0x8000;
pub const IFA_F_TENTATIVE: u32 = 0x40;

// dcbmsg
pub const RTM_GETDCB: u16 = 78;
pub const DCB_COMMAND: usize = 1;
pub const DCB_CMD_IEEE_GET: u8 = 21;
pub const DCB_ATTR_IFNAME: u16 = 1;
pub const DCB_ATTR_IEEE: u16 = 13;
pub const DCB_ATTR_IEEE_PFC: u16 = 2;
pub const DCB_ATTR_IEEE_APP_TABLE: u16 = 3;
pub const DCB_ATTR_IEEE_APP: u16 = 1;
pub const IEEE_8021QAZ_APP_SEL_DSCP: u8 = 5;
