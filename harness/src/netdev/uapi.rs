//! Numbers by their names in linux/rtnetlink.h, linux/if_addr.h, linux/if_link.h,
//! linux/fib_rules.h, linux/neighbour.h and rdma/rdma_netlink.h. Those of type `usize` are the places
//! of fields in the structure before the attributes.

pub(crate) const RTM_NEWLINK: u16 = 16;
pub(crate) const RTM_GETLINK: u16 = 18;
pub(crate) const RTM_SETLINK: u16 = 19;
pub(crate) const RTM_NEWADDR: u16 = 20;
pub(crate) const RTM_DELADDR: u16 = 21;
pub(crate) const RTM_GETADDR: u16 = 22;
pub(crate) const RTM_NEWROUTE: u16 = 24;
pub(crate) const RTM_GETROUTE: u16 = 26;
pub(crate) const RTM_NEWNEIGH: u16 = 28;
pub(crate) const RTM_GETNEIGH: u16 = 30;
pub(crate) const RTM_NEWRULE: u16 = 32;
pub(crate) const RTM_DELRULE: u16 = 33;
pub(crate) const RTM_GETRULE: u16 = 34;

pub(crate) const AF_INET: u8 = 2;
pub(crate) const AF_INET6: u8 = 10;

// ifinfomsg
pub(crate) const IFI_INDEX: usize = 4;
pub(crate) const IFI_FLAGS: usize = 8;
pub(crate) const IFI_CHANGE: usize = 12;
pub(crate) const IFF_UP: u32 = 1;
pub(crate) const IFF_RUNNING: u32 = 0x40;
pub(crate) const IFLA_ADDRESS: u16 = 1;
pub(crate) const IFLA_IFNAME: u16 = 3;
pub(crate) const IFLA_MTU: u16 = 4;
pub(crate) const IFLA_LINK: u16 = 5;
pub(crate) const IFLA_MASTER: u16 = 10;
pub(crate) const IFLA_TXQLEN: u16 = 13;
pub(crate) const IFLA_LINKINFO: u16 = 18;
pub(crate) const IFLA_INFO_KIND: u16 = 1;
pub(crate) const IFLA_IFALIAS: u16 = 20;
pub(crate) const IFLA_NET_NS_FD: u16 = 28;
pub(crate) const IFLA_LINK_NETNSID: u16 = 37;
pub(crate) const IFLA_PROP_LIST: u16 = 52;
pub(crate) const IFLA_ALT_IFNAME: u16 = 53;
pub(crate) const IFLA_PERM_ADDRESS: u16 = 54;

// ifaddrmsg
pub(crate) const IFA_PREFIXLEN: usize = 1;
pub(crate) const IFA_HEADER_FLAGS: usize = 2;
pub(crate) const IFA_SCOPE: usize = 3;
pub(crate) const IFA_INDEX: usize = 4;
pub(crate) const IFA_ADDRESS: u16 = 1;
pub(crate) const IFA_LOCAL: u16 = 2;
pub(crate) const IFA_LABEL: u16 = 3;
pub(crate) const IFA_CACHEINFO: u16 = 6;
pub(crate) const IFA_FLAGS: u16 = 8;
pub(crate) const IFA_PROTO: u16 = 11;
pub(crate) const IFAPROT_KERNEL_RA: u8 = 2;
pub(crate) const IFAPROT_KERNEL_LL: u8 = 3;
pub(crate) const IFA_F_TEMPORARY: u32 = 0x01;
pub(crate) const IFA_F_NODAD: u32 = 0x02;
pub(crate) const IFA_F_HOMEADDRESS: u32 = 0x10;
pub(crate) const IFA_F_MANAGETEMPADDR: u32 = 0x100;
pub(crate) const IFA_F_NOPREFIXROUTE: u32 = 0x200;
pub(crate) const IFA_F_MCAUTOJOIN: u32 = 0x400;

// rtmsg
pub(crate) const RTM_DST_LEN: usize = 1;
pub(crate) const RTM_SRC_LEN: usize = 2;
pub(crate) const RTM_TABLE: usize = 4;
pub(crate) const RTM_PROTOCOL: usize = 5;
pub(crate) const RTM_SCOPE: usize = 6;
pub(crate) const RTM_TYPE: usize = 7;
pub(crate) const RTM_FLAGS: usize = 8;
pub(crate) const RTA_DST: u16 = 1;
pub(crate) const RTA_OIF: u16 = 4;
pub(crate) const RTA_GATEWAY: u16 = 5;
pub(crate) const RTA_SRC: u16 = 2;
pub(crate) const RTA_PREFSRC: u16 = 7;
pub(crate) const RTA_MULTIPATH: u16 = 9;
pub(crate) const RTA_CACHEINFO: u16 = 12;
pub(crate) const RTA_TABLE: u16 = 15;
pub(crate) const RTA_NH_ID: u16 = 30;
pub(crate) const RTA_EXPIRES: u16 = 23;
pub(crate) const RTA_VIA: u16 = 18;
pub(crate) const RTN_UNICAST: u8 = 1;
pub(crate) const RT_SCOPE_LINK: u8 = 253;
pub(crate) const RT_TABLE_MAIN: u8 = 254;
pub(crate) const RTPROT_REDIRECT: u8 = 1;
pub(crate) const RTPROT_KERNEL: u8 = 2;
pub(crate) const RTPROT_STATIC: u8 = 4;
pub(crate) const RTPROT_RA: u8 = 9;
pub(crate) const RTNH_F_DEAD: u8 = 1;
pub(crate) const RTNH_F_PERVASIVE: u8 = 2;
pub(crate) const RTNH_F_ONLINK: u8 = 4;

// ndmsg
pub(crate) const NDM_IFINDEX: usize = 4;
pub(crate) const NDM_STATE: usize = 8;
pub(crate) const NUD_PERMANENT: u8 = 0x80;
pub(crate) const NDA_DST: u16 = 1;
pub(crate) const NDA_LLADDR: u16 = 2;
pub(crate) const NDA_CACHEINFO: u16 = 3;
pub(crate) const NDA_PROBES: u16 = 4;

// fib_rule_hdr
pub(crate) const FRA_SRC: u16 = 2;
pub(crate) const FRA_DST: u16 = 1;
pub(crate) const FRA_IIFNAME: u16 = 3;
pub(crate) const FRA_PRIORITY: u16 = 6;
pub(crate) const FRA_TABLE: u16 = 15;
pub(crate) const FRA_OIFNAME: u16 = 17;
pub(crate) const FRA_PROTOCOL: u16 = 21;
pub(crate) const RULE_SRC_LEN: usize = 2;
pub(crate) const RULE_ACTION: usize = 7;
pub(crate) const RULE_FLAGS: usize = 8;
pub(crate) const FIB_RULE_INVERT: u32 = 2;
pub(crate) const FR_ACT_TO_TBL: u8 = 1;

// RDMA netlink: RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, op)
pub(crate) const RDMA_NLDEV_CMD_GET: u16 = 0x1401;
pub(crate) const RDMA_NLDEV_CMD_SET: u16 = 0x1402;
pub(crate) const RDMA_NLDEV_CMD_SYS_GET: u16 = 0x1406;
pub(crate) const RDMA_NLDEV_CMD_RES_QP_GET: u16 = 0x140a;
pub(crate) const RDMA_NLDEV_CMD_STAT_GET: u16 = 0x1411;
pub(crate) const RDMA_NLDEV_ATTR_DEV_INDEX: u16 = 1;
pub(crate) const RDMA_NLDEV_ATTR_DEV_NAME: u16 = 2;
pub(crate) const RDMA_NLDEV_ATTR_PORT_INDEX: u16 = 3;
pub(crate) const RDMA_NLDEV_ATTR_RES_QP: u16 = 19;
pub(crate) const RDMA_NLDEV_ATTR_RES_QP_ENTRY: u16 = 20;
pub(crate) const RDMA_NLDEV_ATTR_RES_PID: u16 = 28;
pub(crate) const RDMA_NLDEV_ATTR_STAT_HWCOUNTERS: u16 = 80;
pub(crate) const RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY: u16 = 81;
pub(crate) const RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME: u16 = 82;
pub(crate) const RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE: u16 = 83;
pub(crate) const RDMA_NLDEV_SYS_ATTR_NETNS_MODE: u16 = 66;
pub(crate) const RDMA_NLDEV_NET_NS_FD: u16 = 68;

// linkprop
pub(crate) const RTM_NEWLINKPROP: u16 = 108;
pub(crate) const NLA_F_NESTED: u16 = 0x8000;
pub(crate) const IFA_F_TENTATIVE: u32 = 0x40;
