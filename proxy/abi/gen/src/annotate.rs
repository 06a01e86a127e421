//! Annotations: facts that the JSON says in prose only. Sources are functions of
//! `drivers/infiniband/core` (7.2).

/// A condition in words of the generator: field path in the request, operator, value.
pub(crate) type Test = (&'static str, &'static str, u64);

/// `IB_QPT_XRC_INI`, `IB_QPT_XRC_TGT` (`enum ib_uverbs_qp_type`).
const XRC_INI: u64 = 9;
const XRC_TGT: u64 = 10;
/// `IB_UVERBS_CREATE_QP_MASK_IND_TABLE`.
const IND_TABLE: u64 = 1;
/// `IB_UVERBS_SRQT_XRC`, `IB_UVERBS_SRQT_TM`.
const SRQT_XRC: u64 = 1;
const SRQT_TM: u64 = 2;
/// `IB_MR_REREG_TRANS`, `IB_MR_REREG_PD`.
const REREG_TRANS: u64 = 1;
const REREG_PD: u64 = 2;

/// One alternative: the type of the object, and when the kernel looks it up. Several alternatives
/// of one field exclude each other.
pub(crate) type Alternative<'a> = (&'a str, &'static [Test]);

/// How the kernel really uses a handle field of a legacy request, where that depends on other
/// fields. None: always, as the JSON says.
pub(crate) fn handle_when(command: &str, field: &str) -> Option<&'static [Alternative<'static>]> {
    // create_qp (uverbs_cmd.c): XRC_TGT looks up only the XRC domain, in pd_handle. XRC_INI has no
    // receive side. With an indirection table there is no receive CQ, and no send CQ either unless
    // max_send_wr asks for a send queue. The plain form has no table.
    Some(match (command, field) {
        ("IB_USER_VERBS_CMD_CREATE_QP" | "IB_USER_VERBS_EX_CMD_CREATE_QP", "pd_handle") => {
            &[("XRCD", &[("qp_type", "Eq", XRC_TGT)]), ("PD", &[("qp_type", "Ne", XRC_TGT)])]
        }
        ("IB_USER_VERBS_CMD_CREATE_QP" | "IB_USER_VERBS_EX_CMD_CREATE_QP", "srq_handle") => &[(
            "SRQ",
            &[("qp_type", "Ne", XRC_TGT), ("qp_type", "Ne", XRC_INI), ("is_srq", "Ne", 0)],
        )],
        ("IB_USER_VERBS_CMD_CREATE_QP", "send_cq_handle") => {
            &[("CQ", &[("qp_type", "Ne", XRC_TGT)])]
        }
        ("IB_USER_VERBS_CMD_CREATE_QP", "recv_cq_handle") => {
            &[("CQ", &[("qp_type", "Ne", XRC_TGT), ("qp_type", "Ne", XRC_INI)])]
        }
        ("IB_USER_VERBS_EX_CMD_CREATE_QP", "send_cq_handle") => &[
            ("CQ", &[("qp_type", "Ne", XRC_TGT), ("comp_mask", "NoBit", IND_TABLE)]),
            (
                "CQ",
                &[
                    ("qp_type", "Ne", XRC_TGT),
                    ("comp_mask", "AnyBit", IND_TABLE),
                    ("max_send_wr", "Ne", 0),
                ],
            ),
        ],
        ("IB_USER_VERBS_EX_CMD_CREATE_QP", "recv_cq_handle") => &[(
            "CQ",
            &[
                ("qp_type", "Ne", XRC_TGT),
                ("qp_type", "Ne", XRC_INI),
                ("comp_mask", "NoBit", IND_TABLE),
            ],
        )],
        ("IB_USER_VERBS_EX_CMD_CREATE_QP", "rwq_ind_tbl_handle") => {
            &[("RWQ_IND_TBL", &[("comp_mask", "AnyBit", IND_TABLE)])]
        }
        // ib_uverbs_rereg_mr
        ("IB_USER_VERBS_CMD_REREG_MR", "pd_handle") => &[("PD", &[("flags", "AnyBit", REREG_PD)])],
        // __uverbs_create_xsrq; ib_srq_has_cq
        ("IB_USER_VERBS_CMD_CREATE_XSRQ", "xrcd_handle") => {
            &[("XRCD", &[("srq_type", "Eq", SRQT_XRC)])]
        }
        ("IB_USER_VERBS_CMD_CREATE_XSRQ", "cq_handle") => {
            &[("CQ", &[("srq_type", "Eq", SRQT_XRC)]), ("CQ", &[("srq_type", "Eq", SRQT_TM)])]
        }
        _ => return None,
    })
}

/// When the kernel pins the memory that a legacy request names. None: always.
pub(crate) fn va_when(command: &str, field: &str) -> Option<&'static [Test]> {
    match (command, field) {
        // ib_uverbs_rereg_mr
        ("IB_USER_VERBS_CMD_REREG_MR", "start") => Some(&[("flags", "AnyBit", REREG_TRANS)]),
        _ => None,
    }
}

/// What follows the request structure (`trailing_in`).
pub(crate) fn trailing(command: &str) -> Option<&'static str> {
    Some(match command {
        "IB_USER_VERBS_CMD_POST_SEND" => "SendWrs",
        "IB_USER_VERBS_CMD_POST_RECV" | "IB_USER_VERBS_CMD_POST_SRQ_RECV" => "RecvWrs",
        "IB_USER_VERBS_EX_CMD_CREATE_FLOW" => "FlowSpecs",
        "IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL" => "WqHandles",
        _ => return None,
    })
}

/// Payloads of attributes that carry descriptors although the kind does not say so: the JSON's
/// `fd_carrying_attrs`, in which this is prose.
pub(crate) fn fd_payload(attr: &str, kind: &str) -> &'static str {
    match (attr, kind) {
        // UVERBS_METHOD_REG_DMABUF_MR: ib_umem_dmabuf_get(fd)
        ("UVERBS_ATTR_REG_DMABUF_MR_FD", "PTR_IN") => "One",
        // MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT: eventfd_ctx_fdget(redirect_fd)
        ("MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM", "PTR_IN") => "One",
        // UVERBS_METHOD_GET_CONTEXT: ib_get_ucaps(fds)
        ("UVERBS_ATTR_GET_CONTEXT_FD_ARR", "PTR_IN") => "Array",
        // ib_umem_get_desc: dma_buf_get(desc.fd) when desc.type is a dma-buf
        (_, "UMEM") => "BufferDesc",
        _ => "None",
    }
}

/// The drivers that a `driver` of `driver_uhw` stands for, as constants of `DriverId`.
pub(crate) fn uhw_drivers(driver: &str) -> Vec<String> {
    match driver {
        "rdmavt (hfi1,qib)" | "hfi1/rdmavt" => vec!["HFI1".into(), "QIB".into()],
        name => vec![name.to_uppercase()],
    }
}

/// The role of a private input's field, from its description.
pub(crate) fn uhw_role(role: &str) -> &'static str {
    match role {
        _ if role.starts_with("va_pin_page") => "VaPinPage",
        _ if role.starts_with("va_pin") => "VaPin",
        _ if role.starts_with("len_input") => "Len",
        _ if role.starts_with("va_lookup_key") => "VaKey",
        _ if role.starts_with("nested_user_pointer_read") => "NestedIn",
        _ if role.starts_with("nested_user_pointer_WRITTEN") => "NestedOut",
        _ if role.starts_with("FD NUMBER") => "Fd",
        _ => "Other",
    }
}
