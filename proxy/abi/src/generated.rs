// Written by `cargo xtask abi` from proxy/abi/data. Do not edit.

use crate::legacy::FieldSpec;
use crate::legacy::FieldType as T;
use crate::legacy::FdField;
use crate::legacy::HandleField;
use crate::legacy::LegacySpec;
use crate::legacy::NoFd;
use crate::legacy::StructSpec;
use crate::legacy::Test;
use crate::legacy::TestOp;
use crate::legacy::Trailing;
use crate::legacy::UhwField;
use crate::legacy::UhwRole;
use crate::legacy::UhwSpec;
use crate::legacy::VaField;
use crate::table::Access;
use crate::table::AttrKind as K;
use crate::table::AttrSpec;
use crate::table::ElemSpec;
use crate::table::FdPayload;
use crate::table::MethodSpec;
use crate::table::ObjectClass;
use crate::table::ObjectRef;
use crate::table::ObjectSpec;
use crate::table::Provider;
use crate::wire::AttrId;
use crate::wire::DriverId;
use crate::wire::MethodId;


bitflags::bitflags! {
    /// Kernel trees that have an entry.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Kernels: u16 {
        /// Linux 6.1 (6.1.192).
        const V6_1 = 1 << 0;
        /// Linux 6.12 (6.12.107).
        const V6_12 = 1 << 1;
        /// Linux 7.2 (7.2.13).
        const V7_2 = 1 << 2;
    }
}

/// The kernels by their numbers, oldest first.
pub(crate) const KERNELS: &[(Kernels, &str)] = &[
    (Kernels::V6_1, "6.1"),
    (Kernels::V6_12, "6.12"),
    (Kernels::V7_2, "7.2"),
];

const ALL: Kernels = Kernels::all();
const SINCE_6_12: Kernels = Kernels::V6_12.union(Kernels::V7_2);
const SINCE_7_2: Kernels = Kernels::V7_2;
const CORE: Provider = Provider::Core;
const BNXT_RE: Provider = Provider::Driver(DriverId::BNXT_RE);
const EFA: Provider = Provider::Driver(DriverId::EFA);
const MLX5: Provider = Provider::Driver(DriverId::MLX5);

pub(crate) static OBJECTS: &[ObjectSpec] = &[
    ObjectSpec { name: "UVERBS_OBJECT_DEVICE", object: ids::UVERBS_OBJECT_DEVICE, class: ObjectClass::None, kernels: ALL },
    ObjectSpec { name: "UVERBS_OBJECT_PD", object: ids::UVERBS_OBJECT_PD, class: ObjectClass::Idr, kernels: ALL },
    ObjectSpec { name: "UVERBS_OBJECT_COMP_CHANNEL", object: ids::UVERBS_OBJECT_COMP_CHANNEL, class: ObjectClass::Fd, kernels: ALL },
    ObjectSpec { name: "UVERBS_OBJECT_CQ", object: ids::UVERBS_OBJECT_CQ, class: ObjectClass::Idr, kernels: ALL },
    ObjectSpec { name: "UVERBS_OBJECT_QP", object: ids::UVERBS_OBJECT_QP, class: ObjectClass::Idr, kernels: ALL },
    ObjectSpec { name: "UVERBS_OBJECT_SRQ", object: ids::UVERBS_OBJECT_SRQ, class: ObjectClass::Idr, kernels: ALL },
    ObjectSpec { name: "UVERBS_OBJECT_AH", object: ids::UVERBS_OBJECT_AH, class: ObjectClass::Idr, kernels: ALL },
    ObjectSpec { name: "UVERBS_OBJECT_MR", object: ids::UVERBS_OBJECT_MR, class: ObjectClass::Idr, kernels: ALL },
    ObjectSpec { name: "UVERBS_OBJECT_MW", object: ids::UVERBS_OBJECT_MW, class: ObjectClass::Idr, kernels: ALL },
    ObjectSpec { name: "UVERBS_OBJECT_FLOW", object: ids::UVERBS_OBJECT_FLOW, class: ObjectClass::Idr, kernels: ALL },
    ObjectSpec { name: "UVERBS_OBJECT_XRCD", object: ids::UVERBS_OBJECT_XRCD, class: ObjectClass::Idr, kernels: ALL },
    ObjectSpec { name: "UVERBS_OBJECT_RWQ_IND_TBL", object: ids::UVERBS_OBJECT_RWQ_IND_TBL, class: ObjectClass::Idr, kernels: ALL },
    ObjectSpec { name: "UVERBS_OBJECT_WQ", object: ids::UVERBS_OBJECT_WQ, class: ObjectClass::Idr, kernels: ALL },
    ObjectSpec { name: "UVERBS_OBJECT_FLOW_ACTION", object: ids::UVERBS_OBJECT_FLOW_ACTION, class: ObjectClass::Idr, kernels: ALL },
    ObjectSpec { name: "UVERBS_OBJECT_DM", object: ids::UVERBS_OBJECT_DM, class: ObjectClass::Idr, kernels: ALL },
    ObjectSpec { name: "UVERBS_OBJECT_COUNTERS", object: ids::UVERBS_OBJECT_COUNTERS, class: ObjectClass::Idr, kernels: ALL },
    ObjectSpec { name: "UVERBS_OBJECT_ASYNC_EVENT", object: ids::UVERBS_OBJECT_ASYNC_EVENT, class: ObjectClass::Fd, kernels: ALL },
    ObjectSpec { name: "UVERBS_OBJECT_DMAH", object: ids::UVERBS_OBJECT_DMAH, class: ObjectClass::Idr, kernels: SINCE_7_2 },
    ObjectSpec { name: "UVERBS_OBJECT_DMABUF", object: ids::UVERBS_OBJECT_DMABUF, class: ObjectClass::Fd, kernels: SINCE_7_2 },
    ObjectSpec { name: "MLX5_IB_OBJECT_DEVX", object: ids::MLX5_IB_OBJECT_DEVX, class: ObjectClass::None, kernels: ALL },
    ObjectSpec { name: "BNXT_RE_OBJECT_ALLOC_PAGE", object: ids::BNXT_RE_OBJECT_ALLOC_PAGE, class: ObjectClass::Idr, kernels: SINCE_6_12 },
    ObjectSpec { name: "MLX5_IB_OBJECT_DEVX_OBJ", object: ids::MLX5_IB_OBJECT_DEVX_OBJ, class: ObjectClass::Idr, kernels: ALL },
    ObjectSpec { name: "BNXT_RE_OBJECT_NOTIFY_DRV", object: ids::BNXT_RE_OBJECT_NOTIFY_DRV, class: ObjectClass::None, kernels: SINCE_6_12 },
    ObjectSpec { name: "MLX5_IB_OBJECT_DEVX_UMEM", object: ids::MLX5_IB_OBJECT_DEVX_UMEM, class: ObjectClass::Idr, kernels: ALL },
    ObjectSpec { name: "BNXT_RE_OBJECT_GET_TOGGLE_MEM", object: ids::BNXT_RE_OBJECT_GET_TOGGLE_MEM, class: ObjectClass::Idr, kernels: SINCE_6_12 },
    ObjectSpec { name: "MLX5_IB_OBJECT_FLOW_MATCHER", object: ids::MLX5_IB_OBJECT_FLOW_MATCHER, class: ObjectClass::Idr, kernels: ALL },
    ObjectSpec { name: "BNXT_RE_OBJECT_DBR", object: ids::BNXT_RE_OBJECT_DBR, class: ObjectClass::Idr, kernels: SINCE_7_2 },
    ObjectSpec { name: "MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD", object: ids::MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, class: ObjectClass::Fd, kernels: ALL },
    ObjectSpec { name: "BNXT_RE_OBJECT_DEFAULT_DBR", object: ids::BNXT_RE_OBJECT_DEFAULT_DBR, class: ObjectClass::None, kernels: SINCE_7_2 },
    ObjectSpec { name: "MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD", object: ids::MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, class: ObjectClass::Fd, kernels: ALL },
    ObjectSpec { name: "MLX5_IB_OBJECT_VAR", object: ids::MLX5_IB_OBJECT_VAR, class: ObjectClass::Idr, kernels: ALL },
    ObjectSpec { name: "MLX5_IB_OBJECT_PP", object: ids::MLX5_IB_OBJECT_PP, class: ObjectClass::Idr, kernels: ALL },
    ObjectSpec { name: "MLX5_IB_OBJECT_UAR", object: ids::MLX5_IB_OBJECT_UAR, class: ObjectClass::Idr, kernels: ALL },
    ObjectSpec { name: "MLX5_IB_OBJECT_STEERING_ANCHOR", object: ids::MLX5_IB_OBJECT_STEERING_ANCHOR, class: ObjectClass::Idr, kernels: ALL },
];

pub(crate) static METHODS: &[MethodSpec] = &[
    MethodSpec { object: ids::UVERBS_OBJECT_DEVICE, name: "UVERBS_METHOD_INVOKE_WRITE", id: ids::UVERBS_METHOD_INVOKE_WRITE, provider: CORE, kernels: ALL, has_uhw: true, source: "drivers/infiniband/core/uverbs_std_types_device.c:51", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_CORE_IN", id: ids::UVERBS_ATTR_CORE_IN, provider: CORE, kind: K::PtrIn { min: 4, max: 65535, zero_trailing: false, alloc_and_copy: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(sizeof(u32))" },
        AttrSpec { name: "UVERBS_ATTR_CORE_OUT", id: ids::UVERBS_ATTR_CORE_OUT, provider: CORE, kind: K::PtrOut { min: 0, max: 65535, zero_trailing: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(0)" },
        AttrSpec { name: "UVERBS_ATTR_WRITE_CMD", id: ids::UVERBS_ATTR_WRITE_CMD, provider: CORE, kind: K::ConstIn, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "enum ib_uverbs_write_cmds" },
        AttrSpec { name: "UVERBS_ATTR_UHW_IN", id: ids::UVERBS_ATTR_UHW_IN, provider: CORE, kind: K::PtrIn { min: 0, max: 65535, zero_trailing: false, alloc_and_copy: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(0)" },
        AttrSpec { name: "UVERBS_ATTR_UHW_OUT", id: ids::UVERBS_ATTR_UHW_OUT, provider: CORE, kind: K::PtrOut { min: 0, max: 65535, zero_trailing: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(0)" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_DEVICE, name: "UVERBS_METHOD_INFO_HANDLES", id: ids::UVERBS_METHOD_INFO_HANDLES, provider: CORE, kernels: ALL, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types_device.c:494", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_INFO_OBJECT_ID", id: ids::UVERBS_ATTR_INFO_OBJECT_ID, provider: CORE, kind: K::ConstIn, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "enum uverbs_default_objects" },
        AttrSpec { name: "UVERBS_ATTR_INFO_TOTAL_HANDLES", id: ids::UVERBS_ATTR_INFO_TOTAL_HANDLES, provider: CORE, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "UVERBS_ATTR_INFO_HANDLES_LIST", id: ids::UVERBS_ATTR_INFO_HANDLES_LIST, provider: CORE, kind: K::PtrOut { min: 4, max: 65535, zero_trailing: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(sizeof(u32))" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_DEVICE, name: "UVERBS_METHOD_QUERY_PORT", id: ids::UVERBS_METHOD_QUERY_PORT, provider: CORE, kernels: ALL, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types_device.c:504", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_QUERY_PORT_PORT_NUM", id: ids::UVERBS_ATTR_QUERY_PORT_PORT_NUM, provider: CORE, kind: K::ConstIn, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "u8" },
        AttrSpec { name: "UVERBS_ATTR_QUERY_PORT_RESP", id: ids::UVERBS_ATTR_QUERY_PORT_RESP, provider: CORE, kind: K::PtrOut { min: 48, max: 48, zero_trailing: true }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_STRUCT(struct ib_uverbs_query_port_resp_ex, active_speed_ex)" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_DEVICE, name: "UVERBS_METHOD_GET_CONTEXT", id: ids::UVERBS_METHOD_GET_CONTEXT, provider: CORE, kernels: ALL, has_uhw: true, source: "drivers/infiniband/core/uverbs_std_types_device.c:475", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS", id: ids::UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, provider: CORE, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT", id: ids::UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, provider: CORE, kind: K::PtrOut { min: 8, max: 8, zero_trailing: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "UVERBS_ATTR_GET_CONTEXT_FD_ARR", id: ids::UVERBS_ATTR_GET_CONTEXT_FD_ARR, provider: CORE, kind: K::PtrIn { min: 4, max: 65535, zero_trailing: false, alloc_and_copy: true }, mandatory: false, kernels: SINCE_7_2, fd_payload: FdPayload::Array, ctype: "UVERBS_ATTR_MIN_SIZE(sizeof(int))" },
        AttrSpec { name: "UVERBS_ATTR_UHW_IN", id: ids::UVERBS_ATTR_UHW_IN, provider: CORE, kind: K::PtrIn { min: 0, max: 65535, zero_trailing: false, alloc_and_copy: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(0)" },
        AttrSpec { name: "UVERBS_ATTR_UHW_OUT", id: ids::UVERBS_ATTR_UHW_OUT, provider: CORE, kind: K::PtrOut { min: 0, max: 65535, zero_trailing: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(0)" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_DEVICE, name: "UVERBS_METHOD_QUERY_CONTEXT", id: ids::UVERBS_METHOD_QUERY_CONTEXT, provider: CORE, kernels: ALL, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types_device.c:487", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS", id: ids::UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, provider: CORE, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT", id: ids::UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, provider: CORE, kind: K::PtrOut { min: 8, max: 8, zero_trailing: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX", id: ids::MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, provider: MLX5, kind: K::PtrOut { min: 72, max: 72, zero_trailing: true }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_STRUCT(struct mlx5_ib_alloc_ucontext_resp, dump_fill_mkey)" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_DEVICE, name: "UVERBS_METHOD_QUERY_GID_TABLE", id: ids::UVERBS_METHOD_QUERY_GID_TABLE, provider: CORE, kernels: ALL, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types_device.c:521", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE", id: ids::UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, provider: CORE, kind: K::ConstIn, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "u64" },
        AttrSpec { name: "UVERBS_ATTR_QUERY_GID_TABLE_FLAGS", id: ids::UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, provider: CORE, kind: K::FlagsIn, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "u32" },
        AttrSpec { name: "UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES", id: ids::UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, provider: CORE, kind: K::PtrOut { min: 0, max: 65535, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(0)" },
        AttrSpec { name: "UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES", id: ids::UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, provider: CORE, kind: K::PtrOut { min: 8, max: 8, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_DEVICE, name: "UVERBS_METHOD_QUERY_GID_ENTRY", id: ids::UVERBS_METHOD_QUERY_GID_ENTRY, provider: CORE, kernels: ALL, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types_device.c:532", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_QUERY_GID_ENTRY_PORT", id: ids::UVERBS_ATTR_QUERY_GID_ENTRY_PORT, provider: CORE, kind: K::ConstIn, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "u32" },
        AttrSpec { name: "UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX", id: ids::UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, provider: CORE, kind: K::ConstIn, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "u32" },
        AttrSpec { name: "UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS", id: ids::UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, provider: CORE, kind: K::FlagsIn, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "u32" },
        AttrSpec { name: "UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY", id: ids::UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, provider: CORE, kind: K::PtrOut { min: 32, max: 32, zero_trailing: true }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_STRUCT(struct ib_uverbs_gid_entry, netdev_ifindex)" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_DEVICE, name: "UVERBS_METHOD_QUERY_PORT_SPEED", id: ids::UVERBS_METHOD_QUERY_PORT_SPEED, provider: CORE, kernels: SINCE_7_2, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types_device.c:513", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_QUERY_PORT_SPEED_PORT_NUM", id: ids::UVERBS_ATTR_QUERY_PORT_SPEED_PORT_NUM, provider: CORE, kind: K::ConstIn, mandatory: true, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "u32" },
        AttrSpec { name: "UVERBS_ATTR_QUERY_PORT_SPEED_RESP", id: ids::UVERBS_ATTR_QUERY_PORT_SPEED_RESP, provider: CORE, kind: K::PtrOut { min: 8, max: 8, zero_trailing: false }, mandatory: true, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_DEVICE, name: "MLX5_IB_METHOD_QUERY_PORT", id: ids::MLX5_IB_METHOD_QUERY_PORT, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/std_types.c:233", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_QUERY_PORT_PORT_NUM", id: ids::MLX5_IB_ATTR_QUERY_PORT_PORT_NUM, provider: MLX5, kind: K::PtrIn { min: 4, max: 4, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "MLX5_IB_ATTR_QUERY_PORT", id: ids::MLX5_IB_ATTR_QUERY_PORT, provider: MLX5, kind: K::PtrOut { min: 40, max: 40, zero_trailing: true }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_STRUCT(struct mlx5_ib_uapi_query_port, reg_c0)" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_DEVICE, name: "MLX5_IB_METHOD_GET_DATA_DIRECT_SYSFS_PATH", id: ids::MLX5_IB_METHOD_GET_DATA_DIRECT_SYSFS_PATH, provider: MLX5, kernels: SINCE_6_12, has_uhw: false, source: "drivers/infiniband/hw/mlx5/std_types.c:243", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_GET_DATA_DIRECT_SYSFS_PATH", id: ids::MLX5_IB_ATTR_GET_DATA_DIRECT_SYSFS_PATH, provider: MLX5, kind: K::PtrOut { min: 0, max: 65535, zero_trailing: false }, mandatory: true, kernels: SINCE_6_12, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(0)" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_PD, name: "UVERBS_METHOD_PD_DESTROY", id: ids::UVERBS_METHOD_PD_DESTROY, provider: CORE, kernels: ALL, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types.c:235", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_DESTROY_PD_HANDLE", id: ids::UVERBS_ATTR_DESTROY_PD_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_PD, access: Access::Destroy }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_PD, name: "MLX5_IB_METHOD_PD_QUERY", id: ids::MLX5_IB_METHOD_PD_QUERY, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/std_types.c:255", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_QUERY_PD_HANDLE", id: ids::MLX5_IB_ATTR_QUERY_PD_HANDLE, provider: MLX5, kind: K::Idr { object: ids::UVERBS_OBJECT_PD, access: Access::Read }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "MLX5_IB_ATTR_QUERY_PD_RESP_PDN", id: ids::MLX5_IB_ATTR_QUERY_PD_RESP_PDN, provider: MLX5, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_CQ, name: "UVERBS_METHOD_CQ_CREATE", id: ids::UVERBS_METHOD_CQ_CREATE, provider: CORE, kernels: ALL, has_uhw: true, source: "drivers/infiniband/core/uverbs_std_types_cq.c:162", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_CREATE_CQ_HANDLE", id: ids::UVERBS_ATTR_CREATE_CQ_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_CQ, access: Access::New }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_CQ_CQE", id: ids::UVERBS_ATTR_CREATE_CQ_CQE, provider: CORE, kind: K::PtrIn { min: 4, max: 4, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_CQ_USER_HANDLE", id: ids::UVERBS_ATTR_CREATE_CQ_USER_HANDLE, provider: CORE, kind: K::PtrIn { min: 8, max: 8, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL", id: ids::UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, provider: CORE, kind: K::Fd { object: ids::UVERBS_OBJECT_COMP_CHANNEL, access: Access::Read }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_CQ_COMP_VECTOR", id: ids::UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, provider: CORE, kind: K::PtrIn { min: 4, max: 4, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_CQ_FLAGS", id: ids::UVERBS_ATTR_CREATE_CQ_FLAGS, provider: CORE, kind: K::FlagsIn, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "enum ib_uverbs_ex_create_cq_flags" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_CQ_RESP_CQE", id: ids::UVERBS_ATTR_CREATE_CQ_RESP_CQE, provider: CORE, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_CQ_EVENT_FD", id: ids::UVERBS_ATTR_CREATE_CQ_EVENT_FD, provider: CORE, kind: K::Fd { object: ids::UVERBS_OBJECT_ASYNC_EVENT, access: Access::Read }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_CQ_BUFFER_VA", id: ids::UVERBS_ATTR_CREATE_CQ_BUFFER_VA, provider: CORE, kind: K::PtrIn { min: 8, max: 8, zero_trailing: false, alloc_and_copy: false }, mandatory: false, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_CQ_BUFFER_LENGTH", id: ids::UVERBS_ATTR_CREATE_CQ_BUFFER_LENGTH, provider: CORE, kind: K::PtrIn { min: 8, max: 8, zero_trailing: false, alloc_and_copy: false }, mandatory: false, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_CQ_BUFFER_FD", id: ids::UVERBS_ATTR_CREATE_CQ_BUFFER_FD, provider: CORE, kind: K::RawFd, mandatory: false, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_CQ_BUFFER_OFFSET", id: ids::UVERBS_ATTR_CREATE_CQ_BUFFER_OFFSET, provider: CORE, kind: K::PtrIn { min: 8, max: 8, zero_trailing: false, alloc_and_copy: false }, mandatory: false, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_CQ_BUF_UMEM", id: ids::UVERBS_ATTR_CREATE_CQ_BUF_UMEM, provider: CORE, kind: K::Umem, mandatory: false, kernels: SINCE_7_2, fd_payload: FdPayload::BufferDesc, ctype: "struct ib_uverbs_buffer_desc" },
        AttrSpec { name: "UVERBS_ATTR_UHW_IN", id: ids::UVERBS_ATTR_UHW_IN, provider: CORE, kind: K::PtrIn { min: 0, max: 65535, zero_trailing: false, alloc_and_copy: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(0)" },
        AttrSpec { name: "UVERBS_ATTR_UHW_OUT", id: ids::UVERBS_ATTR_UHW_OUT, provider: CORE, kind: K::PtrOut { min: 0, max: 65535, zero_trailing: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(0)" },
        AttrSpec { name: "MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX", id: ids::MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX, provider: MLX5, kind: K::PtrIn { min: 4, max: 4, zero_trailing: false, alloc_and_copy: false }, mandatory: false, kernels: SINCE_6_12, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "MLX5_IB_ATTR_CREATE_CQ_DBR_BUF_UMEM", id: ids::MLX5_IB_ATTR_CREATE_CQ_DBR_BUF_UMEM, provider: MLX5, kind: K::Umem, mandatory: false, kernels: SINCE_7_2, fd_payload: FdPayload::BufferDesc, ctype: "struct ib_uverbs_buffer_desc" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_CQ, name: "UVERBS_METHOD_CQ_DESTROY", id: ids::UVERBS_METHOD_CQ_DESTROY, provider: CORE, kernels: ALL, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types_cq.c:221", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_DESTROY_CQ_HANDLE", id: ids::UVERBS_ATTR_DESTROY_CQ_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_CQ, access: Access::Destroy }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_DESTROY_CQ_RESP", id: ids::UVERBS_ATTR_DESTROY_CQ_RESP, provider: CORE, kind: K::PtrOut { min: 8, max: 8, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(struct ib_uverbs_destroy_cq_resp)" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_QP, name: "UVERBS_METHOD_QP_CREATE", id: ids::UVERBS_METHOD_QP_CREATE, provider: CORE, kernels: ALL, has_uhw: true, source: "drivers/infiniband/core/uverbs_std_types_qp.c:285", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_CREATE_QP_HANDLE", id: ids::UVERBS_ATTR_CREATE_QP_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_QP, access: Access::New }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_QP_XRCD_HANDLE", id: ids::UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_XRCD, access: Access::Read }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_QP_PD_HANDLE", id: ids::UVERBS_ATTR_CREATE_QP_PD_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_PD, access: Access::Read }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_QP_SRQ_HANDLE", id: ids::UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_SRQ, access: Access::Read }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE", id: ids::UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_CQ, access: Access::Read }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE", id: ids::UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_CQ, access: Access::Read }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE", id: ids::UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_RWQ_IND_TBL, access: Access::Read }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_QP_USER_HANDLE", id: ids::UVERBS_ATTR_CREATE_QP_USER_HANDLE, provider: CORE, kind: K::PtrIn { min: 8, max: 8, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_QP_CAP", id: ids::UVERBS_ATTR_CREATE_QP_CAP, provider: CORE, kind: K::PtrIn { min: 20, max: 20, zero_trailing: true, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_STRUCT(struct ib_uverbs_qp_cap, max_inline_data)" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_QP_TYPE", id: ids::UVERBS_ATTR_CREATE_QP_TYPE, provider: CORE, kind: K::ConstIn, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "enum ib_uverbs_qp_type" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_QP_FLAGS", id: ids::UVERBS_ATTR_CREATE_QP_FLAGS, provider: CORE, kind: K::FlagsIn, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "enum ib_uverbs_qp_create_flags" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_QP_SOURCE_QPN", id: ids::UVERBS_ATTR_CREATE_QP_SOURCE_QPN, provider: CORE, kind: K::PtrIn { min: 4, max: 4, zero_trailing: false, alloc_and_copy: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_QP_EVENT_FD", id: ids::UVERBS_ATTR_CREATE_QP_EVENT_FD, provider: CORE, kind: K::Fd { object: ids::UVERBS_OBJECT_ASYNC_EVENT, access: Access::Read }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_QP_RESP_CAP", id: ids::UVERBS_ATTR_CREATE_QP_RESP_CAP, provider: CORE, kind: K::PtrOut { min: 20, max: 20, zero_trailing: true }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_STRUCT(struct ib_uverbs_qp_cap, max_inline_data)" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_QP_RESP_QP_NUM", id: ids::UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, provider: CORE, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_QP_BUF_UMEM", id: ids::UVERBS_ATTR_CREATE_QP_BUF_UMEM, provider: CORE, kind: K::Umem, mandatory: false, kernels: SINCE_7_2, fd_payload: FdPayload::BufferDesc, ctype: "struct ib_uverbs_buffer_desc" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_QP_RQ_BUF_UMEM", id: ids::UVERBS_ATTR_CREATE_QP_RQ_BUF_UMEM, provider: CORE, kind: K::Umem, mandatory: false, kernels: SINCE_7_2, fd_payload: FdPayload::BufferDesc, ctype: "struct ib_uverbs_buffer_desc" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_QP_SQ_BUF_UMEM", id: ids::UVERBS_ATTR_CREATE_QP_SQ_BUF_UMEM, provider: CORE, kind: K::Umem, mandatory: false, kernels: SINCE_7_2, fd_payload: FdPayload::BufferDesc, ctype: "struct ib_uverbs_buffer_desc" },
        AttrSpec { name: "UVERBS_ATTR_UHW_IN", id: ids::UVERBS_ATTR_UHW_IN, provider: CORE, kind: K::PtrIn { min: 0, max: 65535, zero_trailing: false, alloc_and_copy: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(0)" },
        AttrSpec { name: "UVERBS_ATTR_UHW_OUT", id: ids::UVERBS_ATTR_UHW_OUT, provider: CORE, kind: K::PtrOut { min: 0, max: 65535, zero_trailing: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(0)" },
        AttrSpec { name: "BNXT_RE_CREATE_QP_ATTR_DBR_HANDLE", id: ids::BNXT_RE_CREATE_QP_ATTR_DBR_HANDLE, provider: BNXT_RE, kind: K::Idr { object: ids::BNXT_RE_OBJECT_DBR, access: Access::Read }, mandatory: false, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "MLX5_IB_ATTR_CREATE_QP_DBR_BUF_UMEM", id: ids::MLX5_IB_ATTR_CREATE_QP_DBR_BUF_UMEM, provider: MLX5, kind: K::Umem, mandatory: false, kernels: SINCE_7_2, fd_payload: FdPayload::BufferDesc, ctype: "struct ib_uverbs_buffer_desc" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_QP, name: "UVERBS_METHOD_QP_DESTROY", id: ids::UVERBS_METHOD_QP_DESTROY, provider: CORE, kernels: ALL, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types_qp.c:365", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_DESTROY_QP_HANDLE", id: ids::UVERBS_ATTR_DESTROY_QP_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_QP, access: Access::Destroy }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_DESTROY_QP_RESP", id: ids::UVERBS_ATTR_DESTROY_QP_RESP, provider: CORE, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(struct ib_uverbs_destroy_qp_resp)" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_SRQ, name: "UVERBS_METHOD_SRQ_CREATE", id: ids::UVERBS_METHOD_SRQ_CREATE, provider: CORE, kernels: ALL, has_uhw: true, source: "drivers/infiniband/core/uverbs_std_types_srq.c:146", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_CREATE_SRQ_HANDLE", id: ids::UVERBS_ATTR_CREATE_SRQ_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_SRQ, access: Access::New }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_SRQ_PD_HANDLE", id: ids::UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_PD, access: Access::Read }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE", id: ids::UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_XRCD, access: Access::Read }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE", id: ids::UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_CQ, access: Access::Read }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_SRQ_USER_HANDLE", id: ids::UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, provider: CORE, kind: K::PtrIn { min: 8, max: 8, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_SRQ_MAX_WR", id: ids::UVERBS_ATTR_CREATE_SRQ_MAX_WR, provider: CORE, kind: K::PtrIn { min: 4, max: 4, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_SRQ_MAX_SGE", id: ids::UVERBS_ATTR_CREATE_SRQ_MAX_SGE, provider: CORE, kind: K::PtrIn { min: 4, max: 4, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_SRQ_LIMIT", id: ids::UVERBS_ATTR_CREATE_SRQ_LIMIT, provider: CORE, kind: K::PtrIn { min: 4, max: 4, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_SRQ_MAX_NUM_TAGS", id: ids::UVERBS_ATTR_CREATE_SRQ_MAX_NUM_TAGS, provider: CORE, kind: K::PtrIn { min: 4, max: 4, zero_trailing: false, alloc_and_copy: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_SRQ_TYPE", id: ids::UVERBS_ATTR_CREATE_SRQ_TYPE, provider: CORE, kind: K::ConstIn, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "enum ib_uverbs_srq_type" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_SRQ_EVENT_FD", id: ids::UVERBS_ATTR_CREATE_SRQ_EVENT_FD, provider: CORE, kind: K::Fd { object: ids::UVERBS_OBJECT_ASYNC_EVENT, access: Access::Read }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR", id: ids::UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, provider: CORE, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE", id: ids::UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, provider: CORE, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM", id: ids::UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, provider: CORE, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "UVERBS_ATTR_UHW_IN", id: ids::UVERBS_ATTR_UHW_IN, provider: CORE, kind: K::PtrIn { min: 0, max: 65535, zero_trailing: false, alloc_and_copy: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(0)" },
        AttrSpec { name: "UVERBS_ATTR_UHW_OUT", id: ids::UVERBS_ATTR_UHW_OUT, provider: CORE, kind: K::PtrOut { min: 0, max: 65535, zero_trailing: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(0)" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_SRQ, name: "UVERBS_METHOD_SRQ_DESTROY", id: ids::UVERBS_METHOD_SRQ_DESTROY, provider: CORE, kernels: ALL, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types_srq.c:212", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_DESTROY_SRQ_HANDLE", id: ids::UVERBS_ATTR_DESTROY_SRQ_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_SRQ, access: Access::Destroy }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_DESTROY_SRQ_RESP", id: ids::UVERBS_ATTR_DESTROY_SRQ_RESP, provider: CORE, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(struct ib_uverbs_destroy_srq_resp)" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_AH, name: "UVERBS_METHOD_AH_DESTROY", id: ids::UVERBS_METHOD_AH_DESTROY, provider: CORE, kernels: ALL, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types.c:187", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_DESTROY_AH_HANDLE", id: ids::UVERBS_ATTR_DESTROY_AH_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_AH, access: Access::Destroy }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_MR, name: "UVERBS_METHOD_DM_MR_REG", id: ids::UVERBS_METHOD_DM_MR_REG, provider: CORE, kernels: ALL, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types_mr.c:435", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_REG_DM_MR_HANDLE", id: ids::UVERBS_ATTR_REG_DM_MR_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_MR, access: Access::New }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_REG_DM_MR_OFFSET", id: ids::UVERBS_ATTR_REG_DM_MR_OFFSET, provider: CORE, kind: K::PtrIn { min: 8, max: 8, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "UVERBS_ATTR_REG_DM_MR_LENGTH", id: ids::UVERBS_ATTR_REG_DM_MR_LENGTH, provider: CORE, kind: K::PtrIn { min: 8, max: 8, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "UVERBS_ATTR_REG_DM_MR_PD_HANDLE", id: ids::UVERBS_ATTR_REG_DM_MR_PD_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_PD, access: Access::Read }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS", id: ids::UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, provider: CORE, kind: K::FlagsIn, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "enum ib_access_flags" },
        AttrSpec { name: "UVERBS_ATTR_REG_DM_MR_DM_HANDLE", id: ids::UVERBS_ATTR_REG_DM_MR_DM_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_DM, access: Access::Read }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_REG_DM_MR_RESP_LKEY", id: ids::UVERBS_ATTR_REG_DM_MR_RESP_LKEY, provider: CORE, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "UVERBS_ATTR_REG_DM_MR_RESP_RKEY", id: ids::UVERBS_ATTR_REG_DM_MR_RESP_RKEY, provider: CORE, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_MR, name: "UVERBS_METHOD_MR_DESTROY", id: ids::UVERBS_METHOD_MR_DESTROY, provider: CORE, kernels: ALL, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types_mr.c:534", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_DESTROY_MR_HANDLE", id: ids::UVERBS_ATTR_DESTROY_MR_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_MR, access: Access::Destroy }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_MR, name: "UVERBS_METHOD_ADVISE_MR", id: ids::UVERBS_METHOD_ADVISE_MR, provider: CORE, kernels: ALL, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types_mr.c:399", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_ADVISE_MR_PD_HANDLE", id: ids::UVERBS_ATTR_ADVISE_MR_PD_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_PD, access: Access::Read }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_ADVISE_MR_ADVICE", id: ids::UVERBS_ATTR_ADVISE_MR_ADVICE, provider: CORE, kind: K::ConstIn, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "enum ib_uverbs_advise_mr_advice" },
        AttrSpec { name: "UVERBS_ATTR_ADVISE_MR_FLAGS", id: ids::UVERBS_ATTR_ADVISE_MR_FLAGS, provider: CORE, kind: K::FlagsIn, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "enum ib_uverbs_advise_mr_flag" },
        AttrSpec { name: "UVERBS_ATTR_ADVISE_MR_SGE_LIST", id: ids::UVERBS_ATTR_ADVISE_MR_SGE_LIST, provider: CORE, kind: K::PtrIn { min: 16, max: 65535, zero_trailing: false, alloc_and_copy: true }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(sizeof(struct ib_uverbs_sge))" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_MR, name: "UVERBS_METHOD_QUERY_MR", id: ids::UVERBS_METHOD_QUERY_MR, provider: CORE, kernels: ALL, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types_mr.c:416", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_QUERY_MR_HANDLE", id: ids::UVERBS_ATTR_QUERY_MR_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_MR, access: Access::Read }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_QUERY_MR_RESP_LKEY", id: ids::UVERBS_ATTR_QUERY_MR_RESP_LKEY, provider: CORE, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "UVERBS_ATTR_QUERY_MR_RESP_RKEY", id: ids::UVERBS_ATTR_QUERY_MR_RESP_RKEY, provider: CORE, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "UVERBS_ATTR_QUERY_MR_RESP_LENGTH", id: ids::UVERBS_ATTR_QUERY_MR_RESP_LENGTH, provider: CORE, kind: K::PtrOut { min: 8, max: 8, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "UVERBS_ATTR_QUERY_MR_RESP_IOVA", id: ids::UVERBS_ATTR_QUERY_MR_RESP_IOVA, provider: CORE, kind: K::PtrOut { min: 8, max: 8, zero_trailing: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_MR, name: "UVERBS_METHOD_REG_DMABUF_MR", id: ids::UVERBS_METHOD_REG_DMABUF_MR, provider: CORE, kernels: ALL, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types_mr.c:464", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_REG_DMABUF_MR_HANDLE", id: ids::UVERBS_ATTR_REG_DMABUF_MR_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_MR, access: Access::New }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE", id: ids::UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_PD, access: Access::Read }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_REG_DMABUF_MR_OFFSET", id: ids::UVERBS_ATTR_REG_DMABUF_MR_OFFSET, provider: CORE, kind: K::PtrIn { min: 8, max: 8, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "UVERBS_ATTR_REG_DMABUF_MR_LENGTH", id: ids::UVERBS_ATTR_REG_DMABUF_MR_LENGTH, provider: CORE, kind: K::PtrIn { min: 8, max: 8, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "UVERBS_ATTR_REG_DMABUF_MR_IOVA", id: ids::UVERBS_ATTR_REG_DMABUF_MR_IOVA, provider: CORE, kind: K::PtrIn { min: 8, max: 8, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "UVERBS_ATTR_REG_DMABUF_MR_FD", id: ids::UVERBS_ATTR_REG_DMABUF_MR_FD, provider: CORE, kind: K::PtrIn { min: 4, max: 4, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::One, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS", id: ids::UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, provider: CORE, kind: K::FlagsIn, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "enum ib_access_flags" },
        AttrSpec { name: "UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY", id: ids::UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, provider: CORE, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY", id: ids::UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, provider: CORE, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "MLX5_IB_ATTR_REG_DMABUF_MR_ACCESS_FLAGS", id: ids::MLX5_IB_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, provider: MLX5, kind: K::FlagsIn, mandatory: false, kernels: SINCE_6_12, fd_payload: FdPayload::None, ctype: "enum mlx5_ib_uapi_reg_dmabuf_flags" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_MR, name: "UVERBS_METHOD_REG_MR", id: ids::UVERBS_METHOD_REG_MR, provider: CORE, kernels: SINCE_7_2, has_uhw: true, source: "drivers/infiniband/core/uverbs_std_types_mr.c:495", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_REG_MR_HANDLE", id: ids::UVERBS_ATTR_REG_MR_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_MR, access: Access::New }, mandatory: true, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_REG_MR_PD_HANDLE", id: ids::UVERBS_ATTR_REG_MR_PD_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_PD, access: Access::Read }, mandatory: true, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_REG_MR_DMA_HANDLE", id: ids::UVERBS_ATTR_REG_MR_DMA_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_DMAH, access: Access::Read }, mandatory: false, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_REG_MR_IOVA", id: ids::UVERBS_ATTR_REG_MR_IOVA, provider: CORE, kind: K::PtrIn { min: 8, max: 8, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "UVERBS_ATTR_REG_MR_ADDR", id: ids::UVERBS_ATTR_REG_MR_ADDR, provider: CORE, kind: K::PtrIn { min: 8, max: 8, zero_trailing: false, alloc_and_copy: false }, mandatory: false, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "UVERBS_ATTR_REG_MR_LENGTH", id: ids::UVERBS_ATTR_REG_MR_LENGTH, provider: CORE, kind: K::PtrIn { min: 8, max: 8, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "UVERBS_ATTR_REG_MR_ACCESS_FLAGS", id: ids::UVERBS_ATTR_REG_MR_ACCESS_FLAGS, provider: CORE, kind: K::FlagsIn, mandatory: true, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "enum ib_access_flags" },
        AttrSpec { name: "UVERBS_ATTR_REG_MR_FD", id: ids::UVERBS_ATTR_REG_MR_FD, provider: CORE, kind: K::RawFd, mandatory: false, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_REG_MR_FD_OFFSET", id: ids::UVERBS_ATTR_REG_MR_FD_OFFSET, provider: CORE, kind: K::PtrIn { min: 8, max: 8, zero_trailing: false, alloc_and_copy: false }, mandatory: false, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "UVERBS_ATTR_REG_MR_RESP_LKEY", id: ids::UVERBS_ATTR_REG_MR_RESP_LKEY, provider: CORE, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "UVERBS_ATTR_REG_MR_RESP_RKEY", id: ids::UVERBS_ATTR_REG_MR_RESP_RKEY, provider: CORE, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "UVERBS_ATTR_UHW_IN", id: ids::UVERBS_ATTR_UHW_IN, provider: CORE, kind: K::PtrIn { min: 0, max: 65535, zero_trailing: false, alloc_and_copy: false }, mandatory: false, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(0)" },
        AttrSpec { name: "UVERBS_ATTR_UHW_OUT", id: ids::UVERBS_ATTR_UHW_OUT, provider: CORE, kind: K::PtrOut { min: 0, max: 65535, zero_trailing: false }, mandatory: false, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(0)" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_MR, name: "EFA_IB_METHOD_MR_QUERY", id: ids::EFA_IB_METHOD_MR_QUERY, provider: EFA, kernels: SINCE_6_12, has_uhw: false, source: "drivers/infiniband/hw/efa/efa_verbs.c:2268", attrs: &[
        AttrSpec { name: "EFA_IB_ATTR_QUERY_MR_HANDLE", id: ids::EFA_IB_ATTR_QUERY_MR_HANDLE, provider: EFA, kind: K::Idr { object: ids::UVERBS_OBJECT_MR, access: Access::Read }, mandatory: true, kernels: SINCE_6_12, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "EFA_IB_ATTR_QUERY_MR_RESP_IC_ID_VALIDITY", id: ids::EFA_IB_ATTR_QUERY_MR_RESP_IC_ID_VALIDITY, provider: EFA, kind: K::PtrOut { min: 2, max: 2, zero_trailing: false }, mandatory: true, kernels: SINCE_6_12, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u16)" },
        AttrSpec { name: "EFA_IB_ATTR_QUERY_MR_RESP_RECV_IC_ID", id: ids::EFA_IB_ATTR_QUERY_MR_RESP_RECV_IC_ID, provider: EFA, kind: K::PtrOut { min: 2, max: 2, zero_trailing: false }, mandatory: true, kernels: SINCE_6_12, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u16)" },
        AttrSpec { name: "EFA_IB_ATTR_QUERY_MR_RESP_RDMA_READ_IC_ID", id: ids::EFA_IB_ATTR_QUERY_MR_RESP_RDMA_READ_IC_ID, provider: EFA, kind: K::PtrOut { min: 2, max: 2, zero_trailing: false }, mandatory: true, kernels: SINCE_6_12, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u16)" },
        AttrSpec { name: "EFA_IB_ATTR_QUERY_MR_RESP_RDMA_RECV_IC_ID", id: ids::EFA_IB_ATTR_QUERY_MR_RESP_RDMA_RECV_IC_ID, provider: EFA, kind: K::PtrOut { min: 2, max: 2, zero_trailing: false }, mandatory: true, kernels: SINCE_6_12, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u16)" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_MW, name: "UVERBS_METHOD_MW_DESTROY", id: ids::UVERBS_METHOD_MW_DESTROY, provider: CORE, kernels: ALL, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types.c:176", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_DESTROY_MW_HANDLE", id: ids::UVERBS_ATTR_DESTROY_MW_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_MW, access: Access::Destroy }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_FLOW, name: "UVERBS_METHOD_FLOW_DESTROY", id: ids::UVERBS_METHOD_FLOW_DESTROY, provider: CORE, kernels: ALL, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types.c:198", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_DESTROY_FLOW_HANDLE", id: ids::UVERBS_ATTR_DESTROY_FLOW_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_FLOW, access: Access::Destroy }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_FLOW, name: "MLX5_IB_METHOD_CREATE_FLOW", id: ids::MLX5_IB_METHOD_CREATE_FLOW, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/fs.c:3300", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_CREATE_FLOW_HANDLE", id: ids::MLX5_IB_ATTR_CREATE_FLOW_HANDLE, provider: MLX5, kind: K::Idr { object: ids::UVERBS_OBJECT_FLOW, access: Access::New }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE", id: ids::MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE, provider: MLX5, kind: K::PtrIn { min: 1, max: 640, zero_trailing: false, alloc_and_copy: true }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_SIZE(1, sizeof(struct mlx5_ib_match_params))" },
        AttrSpec { name: "MLX5_IB_ATTR_CREATE_FLOW_DEST_QP", id: ids::MLX5_IB_ATTR_CREATE_FLOW_DEST_QP, provider: MLX5, kind: K::Idr { object: ids::UVERBS_OBJECT_QP, access: Access::Read }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX", id: ids::MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX, provider: MLX5, kind: K::Idr { object: ids::MLX5_IB_OBJECT_DEVX_OBJ, access: Access::Read }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "MLX5_IB_ATTR_CREATE_FLOW_MATCHER", id: ids::MLX5_IB_ATTR_CREATE_FLOW_MATCHER, provider: MLX5, kind: K::Idr { object: ids::MLX5_IB_OBJECT_FLOW_MATCHER, access: Access::Read }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "MLX5_IB_ATTR_CREATE_FLOW_ARR_FLOW_ACTIONS", id: ids::MLX5_IB_ATTR_CREATE_FLOW_ARR_FLOW_ACTIONS, provider: MLX5, kind: K::IdrsArray { object: ids::UVERBS_OBJECT_FLOW_ACTION, access: Access::Read, min: 1, max: 2 }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "MLX5_IB_ATTR_CREATE_FLOW_TAG", id: ids::MLX5_IB_ATTR_CREATE_FLOW_TAG, provider: MLX5, kind: K::PtrIn { min: 4, max: 4, zero_trailing: false, alloc_and_copy: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX", id: ids::MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX, provider: MLX5, kind: K::IdrsArray { object: ids::MLX5_IB_OBJECT_DEVX_OBJ, access: Access::Read, min: 1, max: 1 }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET", id: ids::MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET, provider: MLX5, kind: K::PtrIn { min: 4, max: 65535, zero_trailing: false, alloc_and_copy: true }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(sizeof(u32))" },
        AttrSpec { name: "MLX5_IB_ATTR_CREATE_FLOW_FLAGS", id: ids::MLX5_IB_ATTR_CREATE_FLOW_FLAGS, provider: MLX5, kind: K::FlagsIn, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "enum mlx5_ib_create_flow_flags" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_FLOW, name: "MLX5_IB_METHOD_DESTROY_FLOW", id: ids::MLX5_IB_METHOD_DESTROY_FLOW, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/fs.c:3341", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_CREATE_FLOW_HANDLE", id: ids::MLX5_IB_ATTR_CREATE_FLOW_HANDLE, provider: MLX5, kind: K::Idr { object: ids::UVERBS_OBJECT_FLOW, access: Access::Destroy }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_XRCD, name: "UVERBS_METHOD_XRCD_DESTROY", id: ids::UVERBS_METHOD_XRCD_DESTROY, provider: CORE, kernels: ALL, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types.c:222", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_DESTROY_XRCD_HANDLE", id: ids::UVERBS_ATTR_DESTROY_XRCD_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_XRCD, access: Access::Destroy }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_RWQ_IND_TBL, name: "UVERBS_METHOD_RWQ_IND_TBL_DESTROY", id: ids::UVERBS_METHOD_RWQ_IND_TBL_DESTROY, provider: CORE, kernels: ALL, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types.c:211", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_DESTROY_RWQ_IND_TBL_HANDLE", id: ids::UVERBS_ATTR_DESTROY_RWQ_IND_TBL_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_RWQ_IND_TBL, access: Access::Destroy }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_WQ, name: "UVERBS_METHOD_WQ_CREATE", id: ids::UVERBS_METHOD_WQ_CREATE, provider: CORE, kernels: ALL, has_uhw: true, source: "drivers/infiniband/core/uverbs_std_types_wq.c:115", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_CREATE_WQ_HANDLE", id: ids::UVERBS_ATTR_CREATE_WQ_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_WQ, access: Access::New }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_WQ_PD_HANDLE", id: ids::UVERBS_ATTR_CREATE_WQ_PD_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_PD, access: Access::Read }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_WQ_CQ_HANDLE", id: ids::UVERBS_ATTR_CREATE_WQ_CQ_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_CQ, access: Access::Read }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_WQ_USER_HANDLE", id: ids::UVERBS_ATTR_CREATE_WQ_USER_HANDLE, provider: CORE, kind: K::PtrIn { min: 8, max: 8, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_WQ_TYPE", id: ids::UVERBS_ATTR_CREATE_WQ_TYPE, provider: CORE, kind: K::ConstIn, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "enum ib_wq_type" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_WQ_EVENT_FD", id: ids::UVERBS_ATTR_CREATE_WQ_EVENT_FD, provider: CORE, kind: K::Fd { object: ids::UVERBS_OBJECT_ASYNC_EVENT, access: Access::Read }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_WQ_MAX_WR", id: ids::UVERBS_ATTR_CREATE_WQ_MAX_WR, provider: CORE, kind: K::PtrIn { min: 4, max: 4, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_WQ_MAX_SGE", id: ids::UVERBS_ATTR_CREATE_WQ_MAX_SGE, provider: CORE, kind: K::PtrIn { min: 4, max: 4, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_WQ_FLAGS", id: ids::UVERBS_ATTR_CREATE_WQ_FLAGS, provider: CORE, kind: K::FlagsIn, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "enum ib_uverbs_wq_flags" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR", id: ids::UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR, provider: CORE, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE", id: ids::UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE, provider: CORE, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM", id: ids::UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM, provider: CORE, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "UVERBS_ATTR_UHW_IN", id: ids::UVERBS_ATTR_UHW_IN, provider: CORE, kind: K::PtrIn { min: 0, max: 65535, zero_trailing: false, alloc_and_copy: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(0)" },
        AttrSpec { name: "UVERBS_ATTR_UHW_OUT", id: ids::UVERBS_ATTR_UHW_OUT, provider: CORE, kind: K::PtrOut { min: 0, max: 65535, zero_trailing: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(0)" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_WQ, name: "UVERBS_METHOD_WQ_DESTROY", id: ids::UVERBS_METHOD_WQ_DESTROY, provider: CORE, kernels: ALL, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types_wq.c:172", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_DESTROY_WQ_HANDLE", id: ids::UVERBS_ATTR_DESTROY_WQ_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_WQ, access: Access::Destroy }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_DESTROY_WQ_RESP", id: ids::UVERBS_ATTR_DESTROY_WQ_RESP, provider: CORE, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_FLOW_ACTION, name: "UVERBS_METHOD_FLOW_ACTION_DESTROY", id: ids::UVERBS_METHOD_FLOW_ACTION_DESTROY, provider: CORE, kernels: ALL, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types_flow_action.c:49", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_DESTROY_FLOW_ACTION_HANDLE", id: ids::UVERBS_ATTR_DESTROY_FLOW_ACTION_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_FLOW_ACTION, access: Access::Destroy }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_FLOW_ACTION, name: "MLX5_IB_METHOD_FLOW_ACTION_CREATE_MODIFY_HEADER", id: ids::MLX5_IB_METHOD_FLOW_ACTION_CREATE_MODIFY_HEADER, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/fs.c:3353", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_CREATE_MODIFY_HEADER_HANDLE", id: ids::MLX5_IB_ATTR_CREATE_MODIFY_HEADER_HANDLE, provider: MLX5, kind: K::Idr { object: ids::UVERBS_OBJECT_FLOW_ACTION, access: Access::New }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "MLX5_IB_ATTR_CREATE_MODIFY_HEADER_ACTIONS_PRM", id: ids::MLX5_IB_ATTR_CREATE_MODIFY_HEADER_ACTIONS_PRM, provider: MLX5, kind: K::PtrIn { min: 8, max: 65535, zero_trailing: false, alloc_and_copy: true }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(MLX5_UN_SZ_BYTES(set_add_copy_action_in_auto))" },
        AttrSpec { name: "MLX5_IB_ATTR_CREATE_MODIFY_HEADER_FT_TYPE", id: ids::MLX5_IB_ATTR_CREATE_MODIFY_HEADER_FT_TYPE, provider: MLX5, kind: K::ConstIn, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "enum mlx5_ib_uapi_flow_table_type" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_FLOW_ACTION, name: "MLX5_IB_METHOD_FLOW_ACTION_CREATE_PACKET_REFORMAT", id: ids::MLX5_IB_METHOD_FLOW_ACTION_CREATE_PACKET_REFORMAT, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/fs.c:3368", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_HANDLE", id: ids::MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_HANDLE, provider: MLX5, kind: K::Idr { object: ids::UVERBS_OBJECT_FLOW_ACTION, access: Access::New }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_TYPE", id: ids::MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_TYPE, provider: MLX5, kind: K::ConstIn, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "enum mlx5_ib_uapi_flow_action_packet_reformat_type" },
        AttrSpec { name: "MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_FT_TYPE", id: ids::MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_FT_TYPE, provider: MLX5, kind: K::ConstIn, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "enum mlx5_ib_uapi_flow_table_type" },
        AttrSpec { name: "MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_DATA_BUF", id: ids::MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_DATA_BUF, provider: MLX5, kind: K::PtrIn { min: 1, max: 65535, zero_trailing: false, alloc_and_copy: true }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(1)" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_DM, name: "UVERBS_METHOD_DM_ALLOC", id: ids::UVERBS_METHOD_DM_ALLOC, provider: CORE, kernels: ALL, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types_dm.c:87", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_ALLOC_DM_HANDLE", id: ids::UVERBS_ATTR_ALLOC_DM_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_DM, access: Access::New }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_ALLOC_DM_LENGTH", id: ids::UVERBS_ATTR_ALLOC_DM_LENGTH, provider: CORE, kind: K::PtrIn { min: 8, max: 8, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "UVERBS_ATTR_ALLOC_DM_ALIGNMENT", id: ids::UVERBS_ATTR_ALLOC_DM_ALIGNMENT, provider: CORE, kind: K::PtrIn { min: 4, max: 4, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET", id: ids::MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, provider: MLX5, kind: K::PtrOut { min: 8, max: 8, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX", id: ids::MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, provider: MLX5, kind: K::PtrOut { min: 2, max: 2, zero_trailing: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u16)" },
        AttrSpec { name: "MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE", id: ids::MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE, provider: MLX5, kind: K::ConstIn, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "enum mlx5_ib_uapi_dm_type" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_DM, name: "UVERBS_METHOD_DM_FREE", id: ids::UVERBS_METHOD_DM_FREE, provider: CORE, kernels: ALL, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types_dm.c:100", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_FREE_DM_HANDLE", id: ids::UVERBS_ATTR_FREE_DM_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_DM, access: Access::Destroy }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_DM, name: "MLX5_IB_METHOD_DM_MAP_OP_ADDR", id: ids::MLX5_IB_METHOD_DM_MAP_OP_ADDR, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/dm.c:582", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_HANDLE", id: ids::MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_HANDLE, provider: MLX5, kind: K::Idr { object: ids::UVERBS_OBJECT_DM, access: Access::Read }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP", id: ids::MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP, provider: MLX5, kind: K::PtrIn { min: 1, max: 1, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u8)" },
        AttrSpec { name: "MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_START_OFFSET", id: ids::MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_START_OFFSET, provider: MLX5, kind: K::PtrOut { min: 8, max: 8, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_PAGE_INDEX", id: ids::MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_PAGE_INDEX, provider: MLX5, kind: K::PtrOut { min: 2, max: 2, zero_trailing: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u16)" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_DM, name: "MLX5_IB_METHOD_DM_QUERY", id: ids::MLX5_IB_METHOD_DM_QUERY, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/dm.c:562", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE", id: ids::MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE, provider: MLX5, kind: K::Idr { object: ids::UVERBS_OBJECT_DM, access: Access::Read }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET", id: ids::MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET, provider: MLX5, kind: K::PtrOut { min: 8, max: 8, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX", id: ids::MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX, provider: MLX5, kind: K::PtrOut { min: 2, max: 2, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u16)" },
        AttrSpec { name: "MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH", id: ids::MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH, provider: MLX5, kind: K::PtrOut { min: 8, max: 8, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_COUNTERS, name: "UVERBS_METHOD_COUNTERS_CREATE", id: ids::UVERBS_METHOD_COUNTERS_CREATE, provider: CORE, kernels: ALL, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types_counters.c:127", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_CREATE_COUNTERS_HANDLE", id: ids::UVERBS_ATTR_CREATE_COUNTERS_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_COUNTERS, access: Access::New }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_COUNTERS, name: "UVERBS_METHOD_COUNTERS_DESTROY", id: ids::UVERBS_METHOD_COUNTERS_DESTROY, provider: CORE, kernels: ALL, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types_counters.c:134", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_DESTROY_COUNTERS_HANDLE", id: ids::UVERBS_ATTR_DESTROY_COUNTERS_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_COUNTERS, access: Access::Destroy }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_COUNTERS, name: "UVERBS_METHOD_COUNTERS_READ", id: ids::UVERBS_METHOD_COUNTERS_READ, provider: CORE, kernels: ALL, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types_counters.c:141", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_READ_COUNTERS_HANDLE", id: ids::UVERBS_ATTR_READ_COUNTERS_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_COUNTERS, access: Access::Read }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_READ_COUNTERS_BUFF", id: ids::UVERBS_ATTR_READ_COUNTERS_BUFF, provider: CORE, kind: K::PtrOut { min: 0, max: 65535, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(0)" },
        AttrSpec { name: "UVERBS_ATTR_READ_COUNTERS_FLAGS", id: ids::UVERBS_ATTR_READ_COUNTERS_FLAGS, provider: CORE, kind: K::FlagsIn, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "enum ib_uverbs_read_counters_flags" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_ASYNC_EVENT, name: "UVERBS_METHOD_ASYNC_EVENT_ALLOC", id: ids::UVERBS_METHOD_ASYNC_EVENT_ALLOC, provider: CORE, kernels: ALL, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types_async_fd.c:51", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE", id: ids::UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, provider: CORE, kind: K::Fd { object: ids::UVERBS_OBJECT_ASYNC_EVENT, access: Access::New }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_DMAH, name: "UVERBS_METHOD_DMAH_ALLOC", id: ids::UVERBS_METHOD_DMAH_ALLOC, provider: CORE, kernels: SINCE_7_2, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types_dmah.c:120", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_ALLOC_DMAH_HANDLE", id: ids::UVERBS_ATTR_ALLOC_DMAH_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_DMAH, access: Access::New }, mandatory: true, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_ALLOC_DMAH_CPU_ID", id: ids::UVERBS_ATTR_ALLOC_DMAH_CPU_ID, provider: CORE, kind: K::PtrIn { min: 4, max: 4, zero_trailing: false, alloc_and_copy: false }, mandatory: false, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "UVERBS_ATTR_ALLOC_DMAH_TPH_MEM_TYPE", id: ids::UVERBS_ATTR_ALLOC_DMAH_TPH_MEM_TYPE, provider: CORE, kind: K::EnumIn { elems: &[ElemSpec { min: 0, max: 0, zero_trailing: false }, ElemSpec { min: 0, max: 0, zero_trailing: false }] }, mandatory: false, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "uverbs_dmah_mem_type" },
        AttrSpec { name: "UVERBS_ATTR_ALLOC_DMAH_PH", id: ids::UVERBS_ATTR_ALLOC_DMAH_PH, provider: CORE, kind: K::PtrIn { min: 1, max: 1, zero_trailing: false, alloc_and_copy: false }, mandatory: false, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u8)" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_DMAH, name: "UVERBS_METHOD_DMAH_FREE", id: ids::UVERBS_METHOD_DMAH_FREE, provider: CORE, kernels: SINCE_7_2, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types_dmah.c:136", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_FREE_DMA_HANDLE", id: ids::UVERBS_ATTR_FREE_DMA_HANDLE, provider: CORE, kind: K::Idr { object: ids::UVERBS_OBJECT_DMAH, access: Access::Destroy }, mandatory: true, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "" },
    ] },
    MethodSpec { object: ids::UVERBS_OBJECT_DMABUF, name: "UVERBS_METHOD_DMABUF_ALLOC", id: ids::UVERBS_METHOD_DMABUF_ALLOC, provider: CORE, kernels: SINCE_7_2, has_uhw: false, source: "drivers/infiniband/core/uverbs_std_types_dmabuf.c:150", attrs: &[
        AttrSpec { name: "UVERBS_ATTR_ALLOC_DMABUF_HANDLE", id: ids::UVERBS_ATTR_ALLOC_DMABUF_HANDLE, provider: CORE, kind: K::Fd { object: ids::UVERBS_OBJECT_DMABUF, access: Access::New }, mandatory: true, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "UVERBS_ATTR_ALLOC_DMABUF_PGOFF", id: ids::UVERBS_ATTR_ALLOC_DMABUF_PGOFF, provider: CORE, kind: K::PtrIn { min: 8, max: 8, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
    ] },
    MethodSpec { object: ids::MLX5_IB_OBJECT_DEVX, name: "MLX5_IB_METHOD_DEVX_OTHER", id: ids::MLX5_IB_METHOD_DEVX_OTHER, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/devx.c:3084", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_OTHER_CMD_IN", id: ids::MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, provider: MLX5, kind: K::PtrIn { min: 16, max: 65535, zero_trailing: false, alloc_and_copy: true }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(MLX5_ST_SZ_BYTES(general_obj_in_cmd_hdr))" },
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT", id: ids::MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, provider: MLX5, kind: K::PtrOut { min: 16, max: 65535, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(MLX5_ST_SZ_BYTES(general_obj_out_cmd_hdr))" },
    ] },
    MethodSpec { object: ids::BNXT_RE_OBJECT_ALLOC_PAGE, name: "BNXT_RE_METHOD_ALLOC_PAGE", id: ids::BNXT_RE_METHOD_ALLOC_PAGE, provider: BNXT_RE, kernels: SINCE_6_12, has_uhw: false, source: "drivers/infiniband/hw/bnxt_re/uapi.c:206", attrs: &[
        AttrSpec { name: "BNXT_RE_ALLOC_PAGE_HANDLE", id: ids::BNXT_RE_ALLOC_PAGE_HANDLE, provider: BNXT_RE, kind: K::Idr { object: ids::BNXT_RE_OBJECT_ALLOC_PAGE, access: Access::New }, mandatory: true, kernels: SINCE_6_12, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "BNXT_RE_ALLOC_PAGE_TYPE", id: ids::BNXT_RE_ALLOC_PAGE_TYPE, provider: BNXT_RE, kind: K::ConstIn, mandatory: true, kernels: SINCE_6_12, fd_payload: FdPayload::None, ctype: "enum bnxt_re_alloc_page_type" },
        AttrSpec { name: "BNXT_RE_ALLOC_PAGE_DPI", id: ids::BNXT_RE_ALLOC_PAGE_DPI, provider: BNXT_RE, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: SINCE_6_12, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "BNXT_RE_ALLOC_PAGE_MMAP_OFFSET", id: ids::BNXT_RE_ALLOC_PAGE_MMAP_OFFSET, provider: BNXT_RE, kind: K::PtrOut { min: 8, max: 8, zero_trailing: false }, mandatory: true, kernels: SINCE_6_12, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "BNXT_RE_ALLOC_PAGE_MMAP_LENGTH", id: ids::BNXT_RE_ALLOC_PAGE_MMAP_LENGTH, provider: BNXT_RE, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: SINCE_6_12, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
    ] },
    MethodSpec { object: ids::MLX5_IB_OBJECT_DEVX, name: "MLX5_IB_METHOD_DEVX_QUERY_UAR", id: ids::MLX5_IB_METHOD_DEVX_QUERY_UAR, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/devx.c:3075", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX", id: ids::MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX, provider: MLX5, kind: K::PtrIn { min: 4, max: 4, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX", id: ids::MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX, provider: MLX5, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
    ] },
    MethodSpec { object: ids::BNXT_RE_OBJECT_ALLOC_PAGE, name: "BNXT_RE_METHOD_DESTROY_PAGE", id: ids::BNXT_RE_METHOD_DESTROY_PAGE, provider: BNXT_RE, kernels: SINCE_6_12, has_uhw: false, source: "drivers/infiniband/hw/bnxt_re/uapi.c:224", attrs: &[
        AttrSpec { name: "BNXT_RE_DESTROY_PAGE_HANDLE", id: ids::BNXT_RE_DESTROY_PAGE_HANDLE, provider: BNXT_RE, kind: K::Idr { object: ids::BNXT_RE_OBJECT_ALLOC_PAGE, access: Access::Destroy }, mandatory: true, kernels: SINCE_6_12, fd_payload: FdPayload::None, ctype: "" },
    ] },
    MethodSpec { object: ids::MLX5_IB_OBJECT_DEVX, name: "MLX5_IB_METHOD_DEVX_QUERY_EQN", id: ids::MLX5_IB_METHOD_DEVX_QUERY_EQN, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/devx.c:3066", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC", id: ids::MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, provider: MLX5, kind: K::PtrIn { min: 4, max: 4, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN", id: ids::MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, provider: MLX5, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
    ] },
    MethodSpec { object: ids::MLX5_IB_OBJECT_DEVX, name: "MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT", id: ids::MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/devx.c:3172", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE", id: ids::MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE, provider: MLX5, kind: K::Fd { object: ids::MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, access: Access::Read }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE", id: ids::MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE, provider: MLX5, kind: K::Idr { object: ids::MLX5_IB_OBJECT_DEVX_OBJ, access: Access::Read }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST", id: ids::MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST, provider: MLX5, kind: K::PtrIn { min: 2, max: 65535, zero_trailing: false, alloc_and_copy: true }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(sizeof(u16))" },
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM", id: ids::MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM, provider: MLX5, kind: K::PtrIn { min: 4, max: 4, zero_trailing: false, alloc_and_copy: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::One, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE", id: ids::MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE, provider: MLX5, kind: K::PtrIn { min: 8, max: 8, zero_trailing: false, alloc_and_copy: false }, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
    ] },
    MethodSpec { object: ids::MLX5_IB_OBJECT_DEVX_OBJ, name: "MLX5_IB_METHOD_DEVX_OBJ_CREATE", id: ids::MLX5_IB_METHOD_DEVX_OBJ_CREATE, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/devx.c:3096", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE", id: ids::MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, provider: MLX5, kind: K::Idr { object: ids::MLX5_IB_OBJECT_DEVX_OBJ, access: Access::New }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN", id: ids::MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, provider: MLX5, kind: K::PtrIn { min: 16, max: 65535, zero_trailing: false, alloc_and_copy: true }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(MLX5_ST_SZ_BYTES(general_obj_in_cmd_hdr))" },
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT", id: ids::MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, provider: MLX5, kind: K::PtrOut { min: 16, max: 65535, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(MLX5_ST_SZ_BYTES(general_obj_out_cmd_hdr))" },
    ] },
    MethodSpec { object: ids::BNXT_RE_OBJECT_NOTIFY_DRV, name: "BNXT_RE_METHOD_NOTIFY_DRV", id: ids::BNXT_RE_METHOD_NOTIFY_DRV, provider: BNXT_RE, kernels: SINCE_6_12, has_uhw: false, source: "drivers/infiniband/hw/bnxt_re/uapi.c:235", attrs: &[
    ] },
    MethodSpec { object: ids::MLX5_IB_OBJECT_DEVX_OBJ, name: "MLX5_IB_METHOD_DEVX_OBJ_DESTROY", id: ids::MLX5_IB_METHOD_DEVX_OBJ_DESTROY, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/devx.c:3112", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE", id: ids::MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, provider: MLX5, kind: K::Idr { object: ids::MLX5_IB_OBJECT_DEVX_OBJ, access: Access::Destroy }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
    ] },
    MethodSpec { object: ids::MLX5_IB_OBJECT_DEVX_OBJ, name: "MLX5_IB_METHOD_DEVX_OBJ_MODIFY", id: ids::MLX5_IB_METHOD_DEVX_OBJ_MODIFY, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/devx.c:3119", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE", id: ids::MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, provider: MLX5, kind: K::Idr { object: ObjectRef::ANY, access: Access::Read }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN", id: ids::MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, provider: MLX5, kind: K::PtrIn { min: 16, max: 65535, zero_trailing: false, alloc_and_copy: true }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(MLX5_ST_SZ_BYTES(general_obj_in_cmd_hdr))" },
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT", id: ids::MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, provider: MLX5, kind: K::PtrOut { min: 16, max: 65535, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(MLX5_ST_SZ_BYTES(general_obj_out_cmd_hdr))" },
    ] },
    MethodSpec { object: ids::MLX5_IB_OBJECT_DEVX_OBJ, name: "MLX5_IB_METHOD_DEVX_OBJ_QUERY", id: ids::MLX5_IB_METHOD_DEVX_OBJ_QUERY, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/devx.c:3135", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE", id: ids::MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE, provider: MLX5, kind: K::Idr { object: ObjectRef::ANY, access: Access::Read }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN", id: ids::MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, provider: MLX5, kind: K::PtrIn { min: 16, max: 65535, zero_trailing: false, alloc_and_copy: true }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(MLX5_ST_SZ_BYTES(general_obj_in_cmd_hdr))" },
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT", id: ids::MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, provider: MLX5, kind: K::PtrOut { min: 16, max: 65535, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(MLX5_ST_SZ_BYTES(general_obj_out_cmd_hdr))" },
    ] },
    MethodSpec { object: ids::MLX5_IB_OBJECT_DEVX_OBJ, name: "MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY", id: ids::MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/devx.c:3151", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE", id: ids::MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE, provider: MLX5, kind: K::Idr { object: ObjectRef::ANY, access: Access::Read }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN", id: ids::MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, provider: MLX5, kind: K::PtrIn { min: 16, max: 65535, zero_trailing: false, alloc_and_copy: true }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_MIN_SIZE(MLX5_ST_SZ_BYTES(general_obj_in_cmd_hdr))" },
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD", id: ids::MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD, provider: MLX5, kind: K::Fd { object: ids::MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, access: Access::Read }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID", id: ids::MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID, provider: MLX5, kind: K::PtrIn { min: 8, max: 8, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN", id: ids::MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN, provider: MLX5, kind: K::ConstIn, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "u16" },
    ] },
    MethodSpec { object: ids::MLX5_IB_OBJECT_DEVX_UMEM, name: "MLX5_IB_METHOD_DEVX_UMEM_REG", id: ids::MLX5_IB_METHOD_DEVX_UMEM_REG, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/devx.c:3037", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE", id: ids::MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE, provider: MLX5, kind: K::Idr { object: ids::MLX5_IB_OBJECT_DEVX_UMEM, access: Access::New }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR", id: ids::MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, provider: MLX5, kind: K::PtrIn { min: 8, max: 8, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_UMEM_REG_LEN", id: ids::MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, provider: MLX5, kind: K::PtrIn { min: 8, max: 8, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS", id: ids::MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, provider: MLX5, kind: K::FlagsIn, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "enum ib_access_flags" },
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID", id: ids::MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, provider: MLX5, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP", id: ids::MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP, provider: MLX5, kind: K::ConstIn, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "u64" },
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD", id: ids::MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD, provider: MLX5, kind: K::RawFd, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
    ] },
    MethodSpec { object: ids::BNXT_RE_OBJECT_GET_TOGGLE_MEM, name: "BNXT_RE_METHOD_GET_TOGGLE_MEM", id: ids::BNXT_RE_METHOD_GET_TOGGLE_MEM, provider: BNXT_RE, kernels: SINCE_6_12, has_uhw: false, source: "drivers/infiniband/hw/bnxt_re/uapi.c:331", attrs: &[
        AttrSpec { name: "BNXT_RE_TOGGLE_MEM_HANDLE", id: ids::BNXT_RE_TOGGLE_MEM_HANDLE, provider: BNXT_RE, kind: K::Idr { object: ids::BNXT_RE_OBJECT_GET_TOGGLE_MEM, access: Access::New }, mandatory: true, kernels: SINCE_6_12, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "BNXT_RE_TOGGLE_MEM_TYPE", id: ids::BNXT_RE_TOGGLE_MEM_TYPE, provider: BNXT_RE, kind: K::ConstIn, mandatory: true, kernels: SINCE_6_12, fd_payload: FdPayload::None, ctype: "enum bnxt_re_get_toggle_mem_type" },
        AttrSpec { name: "BNXT_RE_TOGGLE_MEM_RES_ID", id: ids::BNXT_RE_TOGGLE_MEM_RES_ID, provider: BNXT_RE, kind: K::PtrIn { min: 4, max: 4, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: SINCE_6_12, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "BNXT_RE_TOGGLE_MEM_MMAP_PAGE", id: ids::BNXT_RE_TOGGLE_MEM_MMAP_PAGE, provider: BNXT_RE, kind: K::PtrOut { min: 8, max: 8, zero_trailing: false }, mandatory: true, kernels: SINCE_6_12, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "BNXT_RE_TOGGLE_MEM_MMAP_OFFSET", id: ids::BNXT_RE_TOGGLE_MEM_MMAP_OFFSET, provider: BNXT_RE, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: SINCE_6_12, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "BNXT_RE_TOGGLE_MEM_MMAP_LENGTH", id: ids::BNXT_RE_TOGGLE_MEM_MMAP_LENGTH, provider: BNXT_RE, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: SINCE_6_12, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
    ] },
    MethodSpec { object: ids::MLX5_IB_OBJECT_DEVX_UMEM, name: "MLX5_IB_METHOD_DEVX_UMEM_DEREG", id: ids::MLX5_IB_METHOD_DEVX_UMEM_DEREG, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/devx.c:3059", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE", id: ids::MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE, provider: MLX5, kind: K::Idr { object: ids::MLX5_IB_OBJECT_DEVX_UMEM, access: Access::Destroy }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
    ] },
    MethodSpec { object: ids::BNXT_RE_OBJECT_GET_TOGGLE_MEM, name: "BNXT_RE_METHOD_RELEASE_TOGGLE_MEM", id: ids::BNXT_RE_METHOD_RELEASE_TOGGLE_MEM, provider: BNXT_RE, kernels: SINCE_6_12, has_uhw: false, source: "drivers/infiniband/hw/bnxt_re/uapi.c:352", attrs: &[
        AttrSpec { name: "BNXT_RE_RELEASE_TOGGLE_MEM_HANDLE", id: ids::BNXT_RE_RELEASE_TOGGLE_MEM_HANDLE, provider: BNXT_RE, kind: K::Idr { object: ids::BNXT_RE_OBJECT_GET_TOGGLE_MEM, access: Access::Destroy }, mandatory: true, kernels: SINCE_6_12, fd_payload: FdPayload::None, ctype: "" },
    ] },
    MethodSpec { object: ids::MLX5_IB_OBJECT_FLOW_MATCHER, name: "MLX5_IB_METHOD_FLOW_MATCHER_CREATE", id: ids::MLX5_IB_METHOD_FLOW_MATCHER_CREATE, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/fs.c:3391", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE", id: ids::MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE, provider: MLX5, kind: K::Idr { object: ids::MLX5_IB_OBJECT_FLOW_MATCHER, access: Access::New }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK", id: ids::MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK, provider: MLX5, kind: K::PtrIn { min: 1, max: 640, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_SIZE(1, sizeof(struct mlx5_ib_match_params))" },
        AttrSpec { name: "MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE", id: ids::MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE, provider: MLX5, kind: K::EnumIn { elems: &[ElemSpec { min: 2, max: 2, zero_trailing: false }, ElemSpec { min: 0, max: 0, zero_trailing: false }, ElemSpec { min: 0, max: 0, zero_trailing: false }, ElemSpec { min: 0, max: 0, zero_trailing: false }] }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "mlx5_ib_flow_type" },
        AttrSpec { name: "MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA", id: ids::MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA, provider: MLX5, kind: K::PtrIn { min: 1, max: 1, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u8)" },
        AttrSpec { name: "MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS", id: ids::MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS, provider: MLX5, kind: K::FlagsIn, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "enum ib_flow_flags" },
        AttrSpec { name: "MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE", id: ids::MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE, provider: MLX5, kind: K::ConstIn, mandatory: false, kernels: ALL, fd_payload: FdPayload::None, ctype: "enum mlx5_ib_uapi_flow_table_type" },
        AttrSpec { name: "MLX5_IB_ATTR_FLOW_MATCHER_IB_PORT", id: ids::MLX5_IB_ATTR_FLOW_MATCHER_IB_PORT, provider: MLX5, kind: K::PtrIn { min: 4, max: 4, zero_trailing: false, alloc_and_copy: false }, mandatory: false, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
    ] },
    MethodSpec { object: ids::BNXT_RE_OBJECT_DBR, name: "BNXT_RE_METHOD_DBR_ALLOC", id: ids::BNXT_RE_METHOD_DBR_ALLOC, provider: BNXT_RE, kernels: SINCE_7_2, has_uhw: false, source: "drivers/infiniband/hw/bnxt_re/uapi.c:484", attrs: &[
        AttrSpec { name: "BNXT_RE_ALLOC_DBR_HANDLE", id: ids::BNXT_RE_ALLOC_DBR_HANDLE, provider: BNXT_RE, kind: K::Idr { object: ids::BNXT_RE_OBJECT_DBR, access: Access::New }, mandatory: true, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "BNXT_RE_ALLOC_DBR_ATTR", id: ids::BNXT_RE_ALLOC_DBR_ATTR, provider: BNXT_RE, kind: K::PtrOut { min: 16, max: 16, zero_trailing: true }, mandatory: true, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_STRUCT(struct bnxt_re_db_region, reserved2)" },
        AttrSpec { name: "BNXT_RE_ALLOC_DBR_OFFSET", id: ids::BNXT_RE_ALLOC_DBR_OFFSET, provider: BNXT_RE, kind: K::PtrOut { min: 8, max: 8, zero_trailing: false }, mandatory: true, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
    ] },
    MethodSpec { object: ids::MLX5_IB_OBJECT_FLOW_MATCHER, name: "MLX5_IB_METHOD_FLOW_MATCHER_DESTROY", id: ids::MLX5_IB_METHOD_FLOW_MATCHER_DESTROY, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/fs.c:3417", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE", id: ids::MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE, provider: MLX5, kind: K::Idr { object: ids::MLX5_IB_OBJECT_FLOW_MATCHER, access: Access::Destroy }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
    ] },
    MethodSpec { object: ids::BNXT_RE_OBJECT_DBR, name: "BNXT_RE_METHOD_DBR_FREE", id: ids::BNXT_RE_METHOD_DBR_FREE, provider: BNXT_RE, kernels: SINCE_7_2, has_uhw: false, source: "drivers/infiniband/hw/bnxt_re/uapi.c:497", attrs: &[
        AttrSpec { name: "BNXT_RE_FREE_DBR_HANDLE", id: ids::BNXT_RE_FREE_DBR_HANDLE, provider: BNXT_RE, kind: K::Idr { object: ids::BNXT_RE_OBJECT_DBR, access: Access::Destroy }, mandatory: true, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "" },
    ] },
    MethodSpec { object: ids::MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, name: "MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC", id: ids::MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/devx.c:3213", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE", id: ids::MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE, provider: MLX5, kind: K::Fd { object: ids::MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, access: Access::New }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
    ] },
    MethodSpec { object: ids::BNXT_RE_OBJECT_DEFAULT_DBR, name: "BNXT_RE_METHOD_GET_DEFAULT_DBR", id: ids::BNXT_RE_METHOD_GET_DEFAULT_DBR, provider: BNXT_RE, kernels: SINCE_7_2, has_uhw: false, source: "drivers/infiniband/hw/bnxt_re/uapi.c:508", attrs: &[
        AttrSpec { name: "BNXT_RE_DEFAULT_DBR_ATTR", id: ids::BNXT_RE_DEFAULT_DBR_ATTR, provider: BNXT_RE, kind: K::PtrOut { min: 16, max: 16, zero_trailing: true }, mandatory: true, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_STRUCT(struct bnxt_re_db_region, reserved2)" },
    ] },
    MethodSpec { object: ids::MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, name: "MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC", id: ids::MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/devx.c:3228", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE", id: ids::MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE, provider: MLX5, kind: K::Fd { object: ids::MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, access: Access::New }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS", id: ids::MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS, provider: MLX5, kind: K::FlagsIn, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "enum mlx5_ib_uapi_devx_create_event_channel_flags" },
    ] },
    MethodSpec { object: ids::MLX5_IB_OBJECT_VAR, name: "MLX5_IB_METHOD_VAR_OBJ_ALLOC", id: ids::MLX5_IB_METHOD_VAR_OBJ_ALLOC, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/main.c:4290", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_VAR_OBJ_ALLOC_HANDLE", id: ids::MLX5_IB_ATTR_VAR_OBJ_ALLOC_HANDLE, provider: MLX5, kind: K::Idr { object: ids::MLX5_IB_OBJECT_VAR, access: Access::New }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "MLX5_IB_ATTR_VAR_OBJ_ALLOC_MMAP_OFFSET", id: ids::MLX5_IB_ATTR_VAR_OBJ_ALLOC_MMAP_OFFSET, provider: MLX5, kind: K::PtrOut { min: 8, max: 8, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "MLX5_IB_ATTR_VAR_OBJ_ALLOC_MMAP_LENGTH", id: ids::MLX5_IB_ATTR_VAR_OBJ_ALLOC_MMAP_LENGTH, provider: MLX5, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "MLX5_IB_ATTR_VAR_OBJ_ALLOC_PAGE_ID", id: ids::MLX5_IB_ATTR_VAR_OBJ_ALLOC_PAGE_ID, provider: MLX5, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "MLX5_IB_ATTR_VAR_OBJ_ALLOC_FLAGS", id: ids::MLX5_IB_ATTR_VAR_OBJ_ALLOC_FLAGS, provider: MLX5, kind: K::FlagsIn, mandatory: false, kernels: SINCE_7_2, fd_payload: FdPayload::None, ctype: "enum mlx5_ib_uapi_var_alloc_flags" },
    ] },
    MethodSpec { object: ids::MLX5_IB_OBJECT_VAR, name: "MLX5_IB_METHOD_VAR_OBJ_DESTROY", id: ids::MLX5_IB_METHOD_VAR_OBJ_DESTROY, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/main.c:4309", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_VAR_OBJ_DESTROY_HANDLE", id: ids::MLX5_IB_ATTR_VAR_OBJ_DESTROY_HANDLE, provider: MLX5, kind: K::Idr { object: ids::MLX5_IB_OBJECT_VAR, access: Access::Destroy }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
    ] },
    MethodSpec { object: ids::MLX5_IB_OBJECT_PP, name: "MLX5_IB_METHOD_PP_OBJ_ALLOC", id: ids::MLX5_IB_METHOD_PP_OBJ_ALLOC, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/qos.c:96", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_PP_OBJ_ALLOC_HANDLE", id: ids::MLX5_IB_ATTR_PP_OBJ_ALLOC_HANDLE, provider: MLX5, kind: K::Idr { object: ids::MLX5_IB_OBJECT_PP, access: Access::New }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "MLX5_IB_ATTR_PP_OBJ_ALLOC_CTX", id: ids::MLX5_IB_ATTR_PP_OBJ_ALLOC_CTX, provider: MLX5, kind: K::PtrIn { min: 1, max: 48, zero_trailing: false, alloc_and_copy: true }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_SIZE(1, MLX5_ST_SZ_BYTES(set_pp_rate_limit_context))" },
        AttrSpec { name: "MLX5_IB_ATTR_PP_OBJ_ALLOC_FLAGS", id: ids::MLX5_IB_ATTR_PP_OBJ_ALLOC_FLAGS, provider: MLX5, kind: K::FlagsIn, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "enum mlx5_ib_uapi_pp_alloc_flags" },
        AttrSpec { name: "MLX5_IB_ATTR_PP_OBJ_ALLOC_INDEX", id: ids::MLX5_IB_ATTR_PP_OBJ_ALLOC_INDEX, provider: MLX5, kind: K::PtrOut { min: 2, max: 2, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u16)" },
    ] },
    MethodSpec { object: ids::MLX5_IB_OBJECT_PP, name: "MLX5_IB_METHOD_PP_OBJ_DESTROY", id: ids::MLX5_IB_METHOD_PP_OBJ_DESTROY, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/qos.c:115", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_PP_OBJ_DESTROY_HANDLE", id: ids::MLX5_IB_ATTR_PP_OBJ_DESTROY_HANDLE, provider: MLX5, kind: K::Idr { object: ids::MLX5_IB_OBJECT_PP, access: Access::Destroy }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
    ] },
    MethodSpec { object: ids::MLX5_IB_OBJECT_UAR, name: "MLX5_IB_METHOD_UAR_OBJ_ALLOC", id: ids::MLX5_IB_METHOD_UAR_OBJ_ALLOC, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/main.c:4421", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE", id: ids::MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, provider: MLX5, kind: K::Idr { object: ids::MLX5_IB_OBJECT_UAR, access: Access::New }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE", id: ids::MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, provider: MLX5, kind: K::ConstIn, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "enum mlx5_ib_uapi_uar_alloc_type" },
        AttrSpec { name: "MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET", id: ids::MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, provider: MLX5, kind: K::PtrOut { min: 8, max: 8, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u64)" },
        AttrSpec { name: "MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH", id: ids::MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, provider: MLX5, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
        AttrSpec { name: "MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID", id: ids::MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, provider: MLX5, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
    ] },
    MethodSpec { object: ids::MLX5_IB_OBJECT_UAR, name: "MLX5_IB_METHOD_UAR_OBJ_DESTROY", id: ids::MLX5_IB_METHOD_UAR_OBJ_DESTROY, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/main.c:4440", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE", id: ids::MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, provider: MLX5, kind: K::Idr { object: ids::MLX5_IB_OBJECT_UAR, access: Access::Destroy }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
    ] },
    MethodSpec { object: ids::MLX5_IB_OBJECT_STEERING_ANCHOR, name: "MLX5_IB_METHOD_STEERING_ANCHOR_CREATE", id: ids::MLX5_IB_METHOD_STEERING_ANCHOR_CREATE, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/fs.c:3429", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_STEERING_ANCHOR_CREATE_HANDLE", id: ids::MLX5_IB_ATTR_STEERING_ANCHOR_CREATE_HANDLE, provider: MLX5, kind: K::Idr { object: ids::MLX5_IB_OBJECT_STEERING_ANCHOR, access: Access::New }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
        AttrSpec { name: "MLX5_IB_ATTR_STEERING_ANCHOR_FT_TYPE", id: ids::MLX5_IB_ATTR_STEERING_ANCHOR_FT_TYPE, provider: MLX5, kind: K::ConstIn, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "enum mlx5_ib_uapi_flow_table_type" },
        AttrSpec { name: "MLX5_IB_ATTR_STEERING_ANCHOR_PRIORITY", id: ids::MLX5_IB_ATTR_STEERING_ANCHOR_PRIORITY, provider: MLX5, kind: K::PtrIn { min: 2, max: 2, zero_trailing: false, alloc_and_copy: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u16)" },
        AttrSpec { name: "MLX5_IB_ATTR_STEERING_ANCHOR_FT_ID", id: ids::MLX5_IB_ATTR_STEERING_ANCHOR_FT_ID, provider: MLX5, kind: K::PtrOut { min: 4, max: 4, zero_trailing: false }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "UVERBS_ATTR_TYPE(u32)" },
    ] },
    MethodSpec { object: ids::MLX5_IB_OBJECT_STEERING_ANCHOR, name: "MLX5_IB_METHOD_STEERING_ANCHOR_DESTROY", id: ids::MLX5_IB_METHOD_STEERING_ANCHOR_DESTROY, provider: MLX5, kernels: ALL, has_uhw: false, source: "drivers/infiniband/hw/mlx5/fs.c:3445", attrs: &[
        AttrSpec { name: "MLX5_IB_ATTR_STEERING_ANCHOR_DESTROY_HANDLE", id: ids::MLX5_IB_ATTR_STEERING_ANCHOR_DESTROY_HANDLE, provider: MLX5, kind: K::Idr { object: ids::MLX5_IB_OBJECT_STEERING_ANCHOR, access: Access::Destroy }, mandatory: true, kernels: ALL, fd_payload: FdPayload::None, ctype: "" },
    ] },
];

static IB_UVERBS_AH_ATTR: StructSpec = StructSpec { name: "ib_uverbs_ah_attr", size: 32, fields: &[
    FieldSpec { name: "grh", ty: T::Nested(&IB_UVERBS_GLOBAL_ROUTE), offset: 0, size: 24, reserved: false },
    FieldSpec { name: "dlid", ty: T::U16, offset: 24, size: 2, reserved: false },
    FieldSpec { name: "sl", ty: T::U8, offset: 26, size: 1, reserved: false },
    FieldSpec { name: "src_path_bits", ty: T::U8, offset: 27, size: 1, reserved: false },
    FieldSpec { name: "static_rate", ty: T::U8, offset: 28, size: 1, reserved: false },
    FieldSpec { name: "is_global", ty: T::U8, offset: 29, size: 1, reserved: false },
    FieldSpec { name: "port_num", ty: T::U8, offset: 30, size: 1, reserved: false },
    FieldSpec { name: "reserved", ty: T::U8, offset: 31, size: 1, reserved: true },
] };

static IB_UVERBS_ALLOC_MW: StructSpec = StructSpec { name: "ib_uverbs_alloc_mw", size: 16, fields: &[
    FieldSpec { name: "response", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "pd_handle", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "mw_type", ty: T::U8, offset: 12, size: 1, reserved: false },
    FieldSpec { name: "reserved", ty: T::Bytes, offset: 13, size: 3, reserved: true },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 16, size: 0, reserved: false },
] };

static IB_UVERBS_ALLOC_MW_RESP: StructSpec = StructSpec { name: "ib_uverbs_alloc_mw_resp", size: 8, fields: &[
    FieldSpec { name: "mw_handle", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "rkey", ty: T::U32, offset: 4, size: 4, reserved: false },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 8, size: 0, reserved: false },
] };

static IB_UVERBS_ALLOC_PD: StructSpec = StructSpec { name: "ib_uverbs_alloc_pd", size: 8, fields: &[
    FieldSpec { name: "response", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 8, size: 0, reserved: false },
] };

static IB_UVERBS_ALLOC_PD_RESP: StructSpec = StructSpec { name: "ib_uverbs_alloc_pd_resp", size: 4, fields: &[
    FieldSpec { name: "pd_handle", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 4, size: 0, reserved: false },
] };

static IB_UVERBS_ASYNC_EVENT_DESC: StructSpec = StructSpec { name: "ib_uverbs_async_event_desc", size: 16, fields: &[
    FieldSpec { name: "element", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "event_type", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "reserved", ty: T::U32, offset: 12, size: 4, reserved: true },
] };

static IB_UVERBS_ATTACH_MCAST: StructSpec = StructSpec { name: "ib_uverbs_attach_mcast", size: 24, fields: &[
    FieldSpec { name: "gid", ty: T::Bytes, offset: 0, size: 16, reserved: false },
    FieldSpec { name: "qp_handle", ty: T::U32, offset: 16, size: 4, reserved: false },
    FieldSpec { name: "mlid", ty: T::U16, offset: 20, size: 2, reserved: false },
    FieldSpec { name: "reserved", ty: T::U16, offset: 22, size: 2, reserved: true },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 24, size: 0, reserved: false },
] };

static IB_UVERBS_CLOSE_XRCD: StructSpec = StructSpec { name: "ib_uverbs_close_xrcd", size: 4, fields: &[
    FieldSpec { name: "xrcd_handle", ty: T::U32, offset: 0, size: 4, reserved: false },
] };

static IB_UVERBS_CMD_HDR: StructSpec = StructSpec { name: "ib_uverbs_cmd_hdr", size: 8, fields: &[
    FieldSpec { name: "command", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "in_words", ty: T::U16, offset: 4, size: 2, reserved: false },
    FieldSpec { name: "out_words", ty: T::U16, offset: 6, size: 2, reserved: false },
] };

static IB_UVERBS_COMP_EVENT_DESC: StructSpec = StructSpec { name: "ib_uverbs_comp_event_desc", size: 8, fields: &[
    FieldSpec { name: "cq_handle", ty: T::U64, offset: 0, size: 8, reserved: false },
] };

static IB_UVERBS_CQ_MODERATION: StructSpec = StructSpec { name: "ib_uverbs_cq_moderation", size: 4, fields: &[
    FieldSpec { name: "cq_count", ty: T::U16, offset: 0, size: 2, reserved: false },
    FieldSpec { name: "cq_period", ty: T::U16, offset: 2, size: 2, reserved: false },
] };

static IB_UVERBS_CQ_MODERATION_CAPS: StructSpec = StructSpec { name: "ib_uverbs_cq_moderation_caps", size: 8, fields: &[
    FieldSpec { name: "max_cq_moderation_count", ty: T::U16, offset: 0, size: 2, reserved: false },
    FieldSpec { name: "max_cq_moderation_period", ty: T::U16, offset: 2, size: 2, reserved: false },
    FieldSpec { name: "reserved", ty: T::U32, offset: 4, size: 4, reserved: true },
] };

static IB_UVERBS_CREATE_AH: StructSpec = StructSpec { name: "ib_uverbs_create_ah", size: 56, fields: &[
    FieldSpec { name: "response", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "user_handle", ty: T::U64, offset: 8, size: 8, reserved: false },
    FieldSpec { name: "pd_handle", ty: T::U32, offset: 16, size: 4, reserved: false },
    FieldSpec { name: "reserved", ty: T::U32, offset: 20, size: 4, reserved: true },
    FieldSpec { name: "attr", ty: T::Nested(&IB_UVERBS_AH_ATTR), offset: 24, size: 32, reserved: false },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 56, size: 0, reserved: false },
] };

static IB_UVERBS_CREATE_AH_RESP: StructSpec = StructSpec { name: "ib_uverbs_create_ah_resp", size: 4, fields: &[
    FieldSpec { name: "ah_handle", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 4, size: 0, reserved: false },
] };

static IB_UVERBS_CREATE_COMP_CHANNEL: StructSpec = StructSpec { name: "ib_uverbs_create_comp_channel", size: 8, fields: &[
    FieldSpec { name: "response", ty: T::U64, offset: 0, size: 8, reserved: false },
] };

static IB_UVERBS_CREATE_COMP_CHANNEL_RESP: StructSpec = StructSpec { name: "ib_uverbs_create_comp_channel_resp", size: 4, fields: &[
    FieldSpec { name: "fd", ty: T::U32, offset: 0, size: 4, reserved: false },
] };

static IB_UVERBS_CREATE_CQ: StructSpec = StructSpec { name: "ib_uverbs_create_cq", size: 32, fields: &[
    FieldSpec { name: "response", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "user_handle", ty: T::U64, offset: 8, size: 8, reserved: false },
    FieldSpec { name: "cqe", ty: T::U32, offset: 16, size: 4, reserved: false },
    FieldSpec { name: "comp_vector", ty: T::U32, offset: 20, size: 4, reserved: false },
    FieldSpec { name: "comp_channel", ty: T::I32, offset: 24, size: 4, reserved: false },
    FieldSpec { name: "reserved", ty: T::U32, offset: 28, size: 4, reserved: true },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 32, size: 0, reserved: false },
] };

static IB_UVERBS_CREATE_CQ_RESP: StructSpec = StructSpec { name: "ib_uverbs_create_cq_resp", size: 8, fields: &[
    FieldSpec { name: "cq_handle", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "cqe", ty: T::U32, offset: 4, size: 4, reserved: false },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 8, size: 0, reserved: false },
] };

static IB_UVERBS_CREATE_FLOW: StructSpec = StructSpec { name: "ib_uverbs_create_flow", size: 24, fields: &[
    FieldSpec { name: "comp_mask", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "qp_handle", ty: T::U32, offset: 4, size: 4, reserved: false },
    FieldSpec { name: "flow_attr", ty: T::Nested(&IB_UVERBS_FLOW_ATTR), offset: 8, size: 16, reserved: false },
] };

static IB_UVERBS_CREATE_FLOW_RESP: StructSpec = StructSpec { name: "ib_uverbs_create_flow_resp", size: 8, fields: &[
    FieldSpec { name: "comp_mask", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "flow_handle", ty: T::U32, offset: 4, size: 4, reserved: false },
] };

static IB_UVERBS_CREATE_QP: StructSpec = StructSpec { name: "ib_uverbs_create_qp", size: 56, fields: &[
    FieldSpec { name: "response", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "user_handle", ty: T::U64, offset: 8, size: 8, reserved: false },
    FieldSpec { name: "pd_handle", ty: T::U32, offset: 16, size: 4, reserved: false },
    FieldSpec { name: "send_cq_handle", ty: T::U32, offset: 20, size: 4, reserved: false },
    FieldSpec { name: "recv_cq_handle", ty: T::U32, offset: 24, size: 4, reserved: false },
    FieldSpec { name: "srq_handle", ty: T::U32, offset: 28, size: 4, reserved: false },
    FieldSpec { name: "max_send_wr", ty: T::U32, offset: 32, size: 4, reserved: false },
    FieldSpec { name: "max_recv_wr", ty: T::U32, offset: 36, size: 4, reserved: false },
    FieldSpec { name: "max_send_sge", ty: T::U32, offset: 40, size: 4, reserved: false },
    FieldSpec { name: "max_recv_sge", ty: T::U32, offset: 44, size: 4, reserved: false },
    FieldSpec { name: "max_inline_data", ty: T::U32, offset: 48, size: 4, reserved: false },
    FieldSpec { name: "sq_sig_all", ty: T::U8, offset: 52, size: 1, reserved: false },
    FieldSpec { name: "qp_type", ty: T::U8, offset: 53, size: 1, reserved: false },
    FieldSpec { name: "is_srq", ty: T::U8, offset: 54, size: 1, reserved: false },
    FieldSpec { name: "reserved", ty: T::U8, offset: 55, size: 1, reserved: true },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 56, size: 0, reserved: false },
] };

static IB_UVERBS_CREATE_QP_RESP: StructSpec = StructSpec { name: "ib_uverbs_create_qp_resp", size: 32, fields: &[
    FieldSpec { name: "qp_handle", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "qpn", ty: T::U32, offset: 4, size: 4, reserved: false },
    FieldSpec { name: "max_send_wr", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "max_recv_wr", ty: T::U32, offset: 12, size: 4, reserved: false },
    FieldSpec { name: "max_send_sge", ty: T::U32, offset: 16, size: 4, reserved: false },
    FieldSpec { name: "max_recv_sge", ty: T::U32, offset: 20, size: 4, reserved: false },
    FieldSpec { name: "max_inline_data", ty: T::U32, offset: 24, size: 4, reserved: false },
    FieldSpec { name: "reserved", ty: T::U32, offset: 28, size: 4, reserved: true },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 32, size: 0, reserved: false },
] };

static IB_UVERBS_CREATE_SRQ: StructSpec = StructSpec { name: "ib_uverbs_create_srq", size: 32, fields: &[
    FieldSpec { name: "response", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "user_handle", ty: T::U64, offset: 8, size: 8, reserved: false },
    FieldSpec { name: "pd_handle", ty: T::U32, offset: 16, size: 4, reserved: false },
    FieldSpec { name: "max_wr", ty: T::U32, offset: 20, size: 4, reserved: false },
    FieldSpec { name: "max_sge", ty: T::U32, offset: 24, size: 4, reserved: false },
    FieldSpec { name: "srq_limit", ty: T::U32, offset: 28, size: 4, reserved: false },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 32, size: 0, reserved: false },
] };

static IB_UVERBS_CREATE_SRQ_RESP: StructSpec = StructSpec { name: "ib_uverbs_create_srq_resp", size: 16, fields: &[
    FieldSpec { name: "srq_handle", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "max_wr", ty: T::U32, offset: 4, size: 4, reserved: false },
    FieldSpec { name: "max_sge", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "srqn", ty: T::U32, offset: 12, size: 4, reserved: false },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 16, size: 0, reserved: false },
] };

static IB_UVERBS_CREATE_XSRQ: StructSpec = StructSpec { name: "ib_uverbs_create_xsrq", size: 48, fields: &[
    FieldSpec { name: "response", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "user_handle", ty: T::U64, offset: 8, size: 8, reserved: false },
    FieldSpec { name: "srq_type", ty: T::U32, offset: 16, size: 4, reserved: false },
    FieldSpec { name: "pd_handle", ty: T::U32, offset: 20, size: 4, reserved: false },
    FieldSpec { name: "max_wr", ty: T::U32, offset: 24, size: 4, reserved: false },
    FieldSpec { name: "max_sge", ty: T::U32, offset: 28, size: 4, reserved: false },
    FieldSpec { name: "srq_limit", ty: T::U32, offset: 32, size: 4, reserved: false },
    FieldSpec { name: "max_num_tags", ty: T::U32, offset: 36, size: 4, reserved: false },
    FieldSpec { name: "xrcd_handle", ty: T::U32, offset: 40, size: 4, reserved: false },
    FieldSpec { name: "cq_handle", ty: T::U32, offset: 44, size: 4, reserved: false },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 48, size: 0, reserved: false },
] };

static IB_UVERBS_DEALLOC_MW: StructSpec = StructSpec { name: "ib_uverbs_dealloc_mw", size: 4, fields: &[
    FieldSpec { name: "mw_handle", ty: T::U32, offset: 0, size: 4, reserved: false },
] };

static IB_UVERBS_DEALLOC_PD: StructSpec = StructSpec { name: "ib_uverbs_dealloc_pd", size: 4, fields: &[
    FieldSpec { name: "pd_handle", ty: T::U32, offset: 0, size: 4, reserved: false },
] };

static IB_UVERBS_DEREG_MR: StructSpec = StructSpec { name: "ib_uverbs_dereg_mr", size: 4, fields: &[
    FieldSpec { name: "mr_handle", ty: T::U32, offset: 0, size: 4, reserved: false },
] };

static IB_UVERBS_DESTROY_AH: StructSpec = StructSpec { name: "ib_uverbs_destroy_ah", size: 4, fields: &[
    FieldSpec { name: "ah_handle", ty: T::U32, offset: 0, size: 4, reserved: false },
] };

static IB_UVERBS_DESTROY_CQ: StructSpec = StructSpec { name: "ib_uverbs_destroy_cq", size: 16, fields: &[
    FieldSpec { name: "response", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "cq_handle", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "reserved", ty: T::U32, offset: 12, size: 4, reserved: true },
] };

static IB_UVERBS_DESTROY_CQ_RESP: StructSpec = StructSpec { name: "ib_uverbs_destroy_cq_resp", size: 8, fields: &[
    FieldSpec { name: "comp_events_reported", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "async_events_reported", ty: T::U32, offset: 4, size: 4, reserved: false },
] };

static IB_UVERBS_DESTROY_FLOW: StructSpec = StructSpec { name: "ib_uverbs_destroy_flow", size: 8, fields: &[
    FieldSpec { name: "comp_mask", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "flow_handle", ty: T::U32, offset: 4, size: 4, reserved: false },
] };

static IB_UVERBS_DESTROY_QP: StructSpec = StructSpec { name: "ib_uverbs_destroy_qp", size: 16, fields: &[
    FieldSpec { name: "response", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "qp_handle", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "reserved", ty: T::U32, offset: 12, size: 4, reserved: true },
] };

static IB_UVERBS_DESTROY_QP_RESP: StructSpec = StructSpec { name: "ib_uverbs_destroy_qp_resp", size: 4, fields: &[
    FieldSpec { name: "events_reported", ty: T::U32, offset: 0, size: 4, reserved: false },
] };

static IB_UVERBS_DESTROY_SRQ: StructSpec = StructSpec { name: "ib_uverbs_destroy_srq", size: 16, fields: &[
    FieldSpec { name: "response", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "srq_handle", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "reserved", ty: T::U32, offset: 12, size: 4, reserved: true },
] };

static IB_UVERBS_DESTROY_SRQ_RESP: StructSpec = StructSpec { name: "ib_uverbs_destroy_srq_resp", size: 4, fields: &[
    FieldSpec { name: "events_reported", ty: T::U32, offset: 0, size: 4, reserved: false },
] };

static IB_UVERBS_DETACH_MCAST: StructSpec = StructSpec { name: "ib_uverbs_detach_mcast", size: 24, fields: &[
    FieldSpec { name: "gid", ty: T::Bytes, offset: 0, size: 16, reserved: false },
    FieldSpec { name: "qp_handle", ty: T::U32, offset: 16, size: 4, reserved: false },
    FieldSpec { name: "mlid", ty: T::U16, offset: 20, size: 2, reserved: false },
    FieldSpec { name: "reserved", ty: T::U16, offset: 22, size: 2, reserved: true },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 24, size: 0, reserved: false },
] };

static IB_UVERBS_EX_CMD_HDR: StructSpec = StructSpec { name: "ib_uverbs_ex_cmd_hdr", size: 16, fields: &[
    FieldSpec { name: "response", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "provider_in_words", ty: T::U16, offset: 8, size: 2, reserved: false },
    FieldSpec { name: "provider_out_words", ty: T::U16, offset: 10, size: 2, reserved: false },
    FieldSpec { name: "cmd_hdr_reserved", ty: T::U32, offset: 12, size: 4, reserved: true },
] };

static IB_UVERBS_EX_CREATE_CQ: StructSpec = StructSpec { name: "ib_uverbs_ex_create_cq", size: 32, fields: &[
    FieldSpec { name: "user_handle", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "cqe", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "comp_vector", ty: T::U32, offset: 12, size: 4, reserved: false },
    FieldSpec { name: "comp_channel", ty: T::I32, offset: 16, size: 4, reserved: false },
    FieldSpec { name: "comp_mask", ty: T::U32, offset: 20, size: 4, reserved: false },
    FieldSpec { name: "flags", ty: T::U32, offset: 24, size: 4, reserved: false },
    FieldSpec { name: "reserved", ty: T::U32, offset: 28, size: 4, reserved: true },
] };

static IB_UVERBS_EX_CREATE_CQ_RESP: StructSpec = StructSpec { name: "ib_uverbs_ex_create_cq_resp", size: 16, fields: &[
    FieldSpec { name: "base", ty: T::Nested(&IB_UVERBS_CREATE_CQ_RESP), offset: 0, size: 8, reserved: false },
    FieldSpec { name: "comp_mask", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "response_length", ty: T::U32, offset: 12, size: 4, reserved: false },
] };

static IB_UVERBS_EX_CREATE_QP: StructSpec = StructSpec { name: "ib_uverbs_ex_create_qp", size: 64, fields: &[
    FieldSpec { name: "user_handle", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "pd_handle", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "send_cq_handle", ty: T::U32, offset: 12, size: 4, reserved: false },
    FieldSpec { name: "recv_cq_handle", ty: T::U32, offset: 16, size: 4, reserved: false },
    FieldSpec { name: "srq_handle", ty: T::U32, offset: 20, size: 4, reserved: false },
    FieldSpec { name: "max_send_wr", ty: T::U32, offset: 24, size: 4, reserved: false },
    FieldSpec { name: "max_recv_wr", ty: T::U32, offset: 28, size: 4, reserved: false },
    FieldSpec { name: "max_send_sge", ty: T::U32, offset: 32, size: 4, reserved: false },
    FieldSpec { name: "max_recv_sge", ty: T::U32, offset: 36, size: 4, reserved: false },
    FieldSpec { name: "max_inline_data", ty: T::U32, offset: 40, size: 4, reserved: false },
    FieldSpec { name: "sq_sig_all", ty: T::U8, offset: 44, size: 1, reserved: false },
    FieldSpec { name: "qp_type", ty: T::U8, offset: 45, size: 1, reserved: false },
    FieldSpec { name: "is_srq", ty: T::U8, offset: 46, size: 1, reserved: false },
    FieldSpec { name: "reserved", ty: T::U8, offset: 47, size: 1, reserved: true },
    FieldSpec { name: "comp_mask", ty: T::U32, offset: 48, size: 4, reserved: false },
    FieldSpec { name: "create_flags", ty: T::U32, offset: 52, size: 4, reserved: false },
    FieldSpec { name: "rwq_ind_tbl_handle", ty: T::U32, offset: 56, size: 4, reserved: false },
    FieldSpec { name: "source_qpn", ty: T::U32, offset: 60, size: 4, reserved: false },
] };

static IB_UVERBS_EX_CREATE_QP_RESP: StructSpec = StructSpec { name: "ib_uverbs_ex_create_qp_resp", size: 40, fields: &[
    FieldSpec { name: "base", ty: T::Nested(&IB_UVERBS_CREATE_QP_RESP), offset: 0, size: 32, reserved: false },
    FieldSpec { name: "comp_mask", ty: T::U32, offset: 32, size: 4, reserved: false },
    FieldSpec { name: "response_length", ty: T::U32, offset: 36, size: 4, reserved: false },
] };

static IB_UVERBS_EX_CREATE_RWQ_IND_TABLE: StructSpec = StructSpec { name: "ib_uverbs_ex_create_rwq_ind_table", size: 8, fields: &[
    FieldSpec { name: "comp_mask", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "log_ind_tbl_size", ty: T::U32, offset: 4, size: 4, reserved: false },
    FieldSpec { name: "wq_handles", ty: T::Trailing, offset: 8, size: 0, reserved: false },
] };

static IB_UVERBS_EX_CREATE_RWQ_IND_TABLE_RESP: StructSpec = StructSpec { name: "ib_uverbs_ex_create_rwq_ind_table_resp", size: 16, fields: &[
    FieldSpec { name: "comp_mask", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "response_length", ty: T::U32, offset: 4, size: 4, reserved: false },
    FieldSpec { name: "ind_tbl_handle", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "ind_tbl_num", ty: T::U32, offset: 12, size: 4, reserved: false },
] };

static IB_UVERBS_EX_CREATE_WQ: StructSpec = StructSpec { name: "ib_uverbs_ex_create_wq", size: 40, fields: &[
    FieldSpec { name: "comp_mask", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "wq_type", ty: T::U32, offset: 4, size: 4, reserved: false },
    FieldSpec { name: "user_handle", ty: T::U64, offset: 8, size: 8, reserved: false },
    FieldSpec { name: "pd_handle", ty: T::U32, offset: 16, size: 4, reserved: false },
    FieldSpec { name: "cq_handle", ty: T::U32, offset: 20, size: 4, reserved: false },
    FieldSpec { name: "max_wr", ty: T::U32, offset: 24, size: 4, reserved: false },
    FieldSpec { name: "max_sge", ty: T::U32, offset: 28, size: 4, reserved: false },
    FieldSpec { name: "create_flags", ty: T::U32, offset: 32, size: 4, reserved: false },
    FieldSpec { name: "reserved", ty: T::U32, offset: 36, size: 4, reserved: true },
] };

static IB_UVERBS_EX_CREATE_WQ_RESP: StructSpec = StructSpec { name: "ib_uverbs_ex_create_wq_resp", size: 24, fields: &[
    FieldSpec { name: "comp_mask", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "response_length", ty: T::U32, offset: 4, size: 4, reserved: false },
    FieldSpec { name: "wq_handle", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "max_wr", ty: T::U32, offset: 12, size: 4, reserved: false },
    FieldSpec { name: "max_sge", ty: T::U32, offset: 16, size: 4, reserved: false },
    FieldSpec { name: "wqn", ty: T::U32, offset: 20, size: 4, reserved: false },
] };

static IB_UVERBS_EX_DESTROY_RWQ_IND_TABLE: StructSpec = StructSpec { name: "ib_uverbs_ex_destroy_rwq_ind_table", size: 8, fields: &[
    FieldSpec { name: "comp_mask", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "ind_tbl_handle", ty: T::U32, offset: 4, size: 4, reserved: false },
] };

static IB_UVERBS_EX_DESTROY_WQ: StructSpec = StructSpec { name: "ib_uverbs_ex_destroy_wq", size: 8, fields: &[
    FieldSpec { name: "comp_mask", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "wq_handle", ty: T::U32, offset: 4, size: 4, reserved: false },
] };

static IB_UVERBS_EX_DESTROY_WQ_RESP: StructSpec = StructSpec { name: "ib_uverbs_ex_destroy_wq_resp", size: 16, fields: &[
    FieldSpec { name: "comp_mask", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "response_length", ty: T::U32, offset: 4, size: 4, reserved: false },
    FieldSpec { name: "events_reported", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "reserved", ty: T::U32, offset: 12, size: 4, reserved: true },
] };

static IB_UVERBS_EX_MODIFY_CQ: StructSpec = StructSpec { name: "ib_uverbs_ex_modify_cq", size: 16, fields: &[
    FieldSpec { name: "cq_handle", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "attr_mask", ty: T::U32, offset: 4, size: 4, reserved: false },
    FieldSpec { name: "attr", ty: T::Nested(&IB_UVERBS_CQ_MODERATION), offset: 8, size: 4, reserved: false },
    FieldSpec { name: "reserved", ty: T::U32, offset: 12, size: 4, reserved: true },
] };

static IB_UVERBS_EX_MODIFY_QP: StructSpec = StructSpec { name: "ib_uverbs_ex_modify_qp", size: 120, fields: &[
    FieldSpec { name: "base", ty: T::Nested(&IB_UVERBS_MODIFY_QP), offset: 0, size: 112, reserved: false },
    FieldSpec { name: "rate_limit", ty: T::U32, offset: 112, size: 4, reserved: false },
    FieldSpec { name: "reserved", ty: T::U32, offset: 116, size: 4, reserved: true },
] };

static IB_UVERBS_EX_MODIFY_QP_RESP: StructSpec = StructSpec { name: "ib_uverbs_ex_modify_qp_resp", size: 8, fields: &[
    FieldSpec { name: "comp_mask", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "response_length", ty: T::U32, offset: 4, size: 4, reserved: false },
] };

static IB_UVERBS_EX_MODIFY_WQ: StructSpec = StructSpec { name: "ib_uverbs_ex_modify_wq", size: 24, fields: &[
    FieldSpec { name: "attr_mask", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "wq_handle", ty: T::U32, offset: 4, size: 4, reserved: false },
    FieldSpec { name: "wq_state", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "curr_wq_state", ty: T::U32, offset: 12, size: 4, reserved: false },
    FieldSpec { name: "flags", ty: T::U32, offset: 16, size: 4, reserved: false },
    FieldSpec { name: "flags_mask", ty: T::U32, offset: 20, size: 4, reserved: false },
] };

static IB_UVERBS_EX_QUERY_DEVICE: StructSpec = StructSpec { name: "ib_uverbs_ex_query_device", size: 8, fields: &[
    FieldSpec { name: "comp_mask", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "reserved", ty: T::U32, offset: 4, size: 4, reserved: true },
] };

static IB_UVERBS_EX_QUERY_DEVICE_RESP: StructSpec = StructSpec { name: "ib_uverbs_ex_query_device_resp", size: 304, fields: &[
    FieldSpec { name: "base", ty: T::Nested(&IB_UVERBS_QUERY_DEVICE_RESP), offset: 0, size: 176, reserved: false },
    FieldSpec { name: "comp_mask", ty: T::U32, offset: 176, size: 4, reserved: false },
    FieldSpec { name: "response_length", ty: T::U32, offset: 180, size: 4, reserved: false },
    FieldSpec { name: "odp_caps", ty: T::Nested(&IB_UVERBS_ODP_CAPS), offset: 184, size: 24, reserved: false },
    FieldSpec { name: "timestamp_mask", ty: T::U64, offset: 208, size: 8, reserved: false },
    FieldSpec { name: "hca_core_clock", ty: T::U64, offset: 216, size: 8, reserved: false },
    FieldSpec { name: "device_cap_flags_ex", ty: T::U64, offset: 224, size: 8, reserved: false },
    FieldSpec { name: "rss_caps", ty: T::Nested(&IB_UVERBS_RSS_CAPS), offset: 232, size: 16, reserved: false },
    FieldSpec { name: "max_wq_type_rq", ty: T::U32, offset: 248, size: 4, reserved: false },
    FieldSpec { name: "raw_packet_caps", ty: T::U32, offset: 252, size: 4, reserved: false },
    FieldSpec { name: "tm_caps", ty: T::Nested(&IB_UVERBS_TM_CAPS), offset: 256, size: 24, reserved: false },
    FieldSpec { name: "cq_moderation_caps", ty: T::Nested(&IB_UVERBS_CQ_MODERATION_CAPS), offset: 280, size: 8, reserved: false },
    FieldSpec { name: "max_dm_size", ty: T::U64, offset: 288, size: 8, reserved: false },
    FieldSpec { name: "xrc_odp_caps", ty: T::U32, offset: 296, size: 4, reserved: false },
    FieldSpec { name: "reserved", ty: T::U32, offset: 300, size: 4, reserved: true },
] };

static IB_UVERBS_FLOW_ATTR: StructSpec = StructSpec { name: "ib_uverbs_flow_attr", size: 16, fields: &[
    FieldSpec { name: "type", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "size", ty: T::U16, offset: 4, size: 2, reserved: false },
    FieldSpec { name: "priority", ty: T::U16, offset: 6, size: 2, reserved: false },
    FieldSpec { name: "num_of_specs", ty: T::U8, offset: 8, size: 1, reserved: false },
    FieldSpec { name: "reserved", ty: T::Bytes, offset: 9, size: 2, reserved: true },
    FieldSpec { name: "port", ty: T::U8, offset: 11, size: 1, reserved: false },
    FieldSpec { name: "flags", ty: T::U32, offset: 12, size: 4, reserved: false },
    FieldSpec { name: "flow_specs", ty: T::Trailing, offset: 16, size: 0, reserved: false },
] };

static IB_UVERBS_FLOW_ETH_FILTER: StructSpec = StructSpec { name: "ib_uverbs_flow_eth_filter", size: 16, fields: &[
    FieldSpec { name: "dst_mac", ty: T::Bytes, offset: 0, size: 6, reserved: false },
    FieldSpec { name: "src_mac", ty: T::Bytes, offset: 6, size: 6, reserved: false },
    FieldSpec { name: "ether_type", ty: T::Bytes, offset: 12, size: 2, reserved: false },
    FieldSpec { name: "vlan_tag", ty: T::Bytes, offset: 14, size: 2, reserved: false },
] };

static IB_UVERBS_FLOW_GRE_FILTER: StructSpec = StructSpec { name: "ib_uverbs_flow_gre_filter", size: 8, fields: &[
    FieldSpec { name: "c_ks_res0_ver", ty: T::Bytes, offset: 0, size: 2, reserved: false },
    FieldSpec { name: "protocol", ty: T::Bytes, offset: 2, size: 2, reserved: false },
    FieldSpec { name: "key", ty: T::Bytes, offset: 4, size: 4, reserved: false },
] };

static IB_UVERBS_FLOW_IPV4_FILTER: StructSpec = StructSpec { name: "ib_uverbs_flow_ipv4_filter", size: 12, fields: &[
    FieldSpec { name: "src_ip", ty: T::Bytes, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "dst_ip", ty: T::Bytes, offset: 4, size: 4, reserved: false },
    FieldSpec { name: "proto", ty: T::U8, offset: 8, size: 1, reserved: false },
    FieldSpec { name: "tos", ty: T::U8, offset: 9, size: 1, reserved: false },
    FieldSpec { name: "ttl", ty: T::U8, offset: 10, size: 1, reserved: false },
    FieldSpec { name: "flags", ty: T::U8, offset: 11, size: 1, reserved: false },
] };

static IB_UVERBS_FLOW_IPV6_FILTER: StructSpec = StructSpec { name: "ib_uverbs_flow_ipv6_filter", size: 40, fields: &[
    FieldSpec { name: "src_ip", ty: T::Bytes, offset: 0, size: 16, reserved: false },
    FieldSpec { name: "dst_ip", ty: T::Bytes, offset: 16, size: 16, reserved: false },
    FieldSpec { name: "flow_label", ty: T::Bytes, offset: 32, size: 4, reserved: false },
    FieldSpec { name: "next_hdr", ty: T::U8, offset: 36, size: 1, reserved: false },
    FieldSpec { name: "traffic_class", ty: T::U8, offset: 37, size: 1, reserved: false },
    FieldSpec { name: "hop_limit", ty: T::U8, offset: 38, size: 1, reserved: false },
    FieldSpec { name: "reserved", ty: T::U8, offset: 39, size: 1, reserved: true },
] };

static IB_UVERBS_FLOW_MPLS_FILTER: StructSpec = StructSpec { name: "ib_uverbs_flow_mpls_filter", size: 4, fields: &[
    FieldSpec { name: "label", ty: T::Bytes, offset: 0, size: 4, reserved: false },
] };

static IB_UVERBS_FLOW_SPEC_ACTION_COUNT: StructSpec = StructSpec { name: "ib_uverbs_flow_spec_action_count", size: 16, fields: &[
    FieldSpec { name: "hdr", ty: T::Nested(&IB_UVERBS_FLOW_SPEC_HDR), offset: 0, size: 8, reserved: false },
    FieldSpec { name: "handle", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "reserved1", ty: T::U32, offset: 12, size: 4, reserved: true },
] };

static IB_UVERBS_FLOW_SPEC_ACTION_DROP: StructSpec = StructSpec { name: "ib_uverbs_flow_spec_action_drop", size: 8, fields: &[
    FieldSpec { name: "hdr", ty: T::Nested(&IB_UVERBS_FLOW_SPEC_HDR), offset: 0, size: 8, reserved: false },
] };

static IB_UVERBS_FLOW_SPEC_ACTION_HANDLE: StructSpec = StructSpec { name: "ib_uverbs_flow_spec_action_handle", size: 16, fields: &[
    FieldSpec { name: "hdr", ty: T::Nested(&IB_UVERBS_FLOW_SPEC_HDR), offset: 0, size: 8, reserved: false },
    FieldSpec { name: "handle", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "reserved1", ty: T::U32, offset: 12, size: 4, reserved: true },
] };

static IB_UVERBS_FLOW_SPEC_ACTION_TAG: StructSpec = StructSpec { name: "ib_uverbs_flow_spec_action_tag", size: 16, fields: &[
    FieldSpec { name: "hdr", ty: T::Nested(&IB_UVERBS_FLOW_SPEC_HDR), offset: 0, size: 8, reserved: false },
    FieldSpec { name: "tag_id", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "reserved1", ty: T::U32, offset: 12, size: 4, reserved: true },
] };

static IB_UVERBS_FLOW_SPEC_ESP: StructSpec = StructSpec { name: "ib_uverbs_flow_spec_esp", size: 24, fields: &[
    FieldSpec { name: "hdr", ty: T::Nested(&IB_UVERBS_FLOW_SPEC_HDR), offset: 0, size: 8, reserved: false },
    FieldSpec { name: "val", ty: T::Nested(&IB_UVERBS_FLOW_SPEC_ESP_FILTER), offset: 8, size: 8, reserved: false },
    FieldSpec { name: "mask", ty: T::Nested(&IB_UVERBS_FLOW_SPEC_ESP_FILTER), offset: 16, size: 8, reserved: false },
] };

static IB_UVERBS_FLOW_SPEC_ESP_FILTER: StructSpec = StructSpec { name: "ib_uverbs_flow_spec_esp_filter", size: 8, fields: &[
    FieldSpec { name: "spi", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "seq", ty: T::U32, offset: 4, size: 4, reserved: false },
] };

static IB_UVERBS_FLOW_SPEC_ETH: StructSpec = StructSpec { name: "ib_uverbs_flow_spec_eth", size: 40, fields: &[
    FieldSpec { name: "hdr", ty: T::Nested(&IB_UVERBS_FLOW_SPEC_HDR), offset: 0, size: 8, reserved: false },
    FieldSpec { name: "val", ty: T::Nested(&IB_UVERBS_FLOW_ETH_FILTER), offset: 8, size: 16, reserved: false },
    FieldSpec { name: "mask", ty: T::Nested(&IB_UVERBS_FLOW_ETH_FILTER), offset: 24, size: 16, reserved: false },
] };

static IB_UVERBS_FLOW_SPEC_GRE: StructSpec = StructSpec { name: "ib_uverbs_flow_spec_gre", size: 24, fields: &[
    FieldSpec { name: "hdr", ty: T::Nested(&IB_UVERBS_FLOW_SPEC_HDR), offset: 0, size: 8, reserved: false },
    FieldSpec { name: "val", ty: T::Nested(&IB_UVERBS_FLOW_GRE_FILTER), offset: 8, size: 8, reserved: false },
    FieldSpec { name: "mask", ty: T::Nested(&IB_UVERBS_FLOW_GRE_FILTER), offset: 16, size: 8, reserved: false },
] };

static IB_UVERBS_FLOW_SPEC_HDR: StructSpec = StructSpec { name: "ib_uverbs_flow_spec_hdr", size: 8, fields: &[
    FieldSpec { name: "type", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "size", ty: T::U16, offset: 4, size: 2, reserved: false },
    FieldSpec { name: "reserved", ty: T::U16, offset: 6, size: 2, reserved: true },
    FieldSpec { name: "flow_spec_data", ty: T::Trailing, offset: 8, size: 0, reserved: false },
] };

static IB_UVERBS_FLOW_SPEC_IPV4: StructSpec = StructSpec { name: "ib_uverbs_flow_spec_ipv4", size: 32, fields: &[
    FieldSpec { name: "hdr", ty: T::Nested(&IB_UVERBS_FLOW_SPEC_HDR), offset: 0, size: 8, reserved: false },
    FieldSpec { name: "val", ty: T::Nested(&IB_UVERBS_FLOW_IPV4_FILTER), offset: 8, size: 12, reserved: false },
    FieldSpec { name: "mask", ty: T::Nested(&IB_UVERBS_FLOW_IPV4_FILTER), offset: 20, size: 12, reserved: false },
] };

static IB_UVERBS_FLOW_SPEC_IPV6: StructSpec = StructSpec { name: "ib_uverbs_flow_spec_ipv6", size: 88, fields: &[
    FieldSpec { name: "hdr", ty: T::Nested(&IB_UVERBS_FLOW_SPEC_HDR), offset: 0, size: 8, reserved: false },
    FieldSpec { name: "val", ty: T::Nested(&IB_UVERBS_FLOW_IPV6_FILTER), offset: 8, size: 40, reserved: false },
    FieldSpec { name: "mask", ty: T::Nested(&IB_UVERBS_FLOW_IPV6_FILTER), offset: 48, size: 40, reserved: false },
] };

static IB_UVERBS_FLOW_SPEC_MPLS: StructSpec = StructSpec { name: "ib_uverbs_flow_spec_mpls", size: 16, fields: &[
    FieldSpec { name: "hdr", ty: T::Nested(&IB_UVERBS_FLOW_SPEC_HDR), offset: 0, size: 8, reserved: false },
    FieldSpec { name: "val", ty: T::Nested(&IB_UVERBS_FLOW_MPLS_FILTER), offset: 8, size: 4, reserved: false },
    FieldSpec { name: "mask", ty: T::Nested(&IB_UVERBS_FLOW_MPLS_FILTER), offset: 12, size: 4, reserved: false },
] };

static IB_UVERBS_FLOW_SPEC_TCP_UDP: StructSpec = StructSpec { name: "ib_uverbs_flow_spec_tcp_udp", size: 16, fields: &[
    FieldSpec { name: "hdr", ty: T::Nested(&IB_UVERBS_FLOW_SPEC_HDR), offset: 0, size: 8, reserved: false },
    FieldSpec { name: "val", ty: T::Nested(&IB_UVERBS_FLOW_TCP_UDP_FILTER), offset: 8, size: 4, reserved: false },
    FieldSpec { name: "mask", ty: T::Nested(&IB_UVERBS_FLOW_TCP_UDP_FILTER), offset: 12, size: 4, reserved: false },
] };

static IB_UVERBS_FLOW_SPEC_TUNNEL: StructSpec = StructSpec { name: "ib_uverbs_flow_spec_tunnel", size: 16, fields: &[
    FieldSpec { name: "hdr", ty: T::Nested(&IB_UVERBS_FLOW_SPEC_HDR), offset: 0, size: 8, reserved: false },
    FieldSpec { name: "val", ty: T::Nested(&IB_UVERBS_FLOW_TUNNEL_FILTER), offset: 8, size: 4, reserved: false },
    FieldSpec { name: "mask", ty: T::Nested(&IB_UVERBS_FLOW_TUNNEL_FILTER), offset: 12, size: 4, reserved: false },
] };

static IB_UVERBS_FLOW_TCP_UDP_FILTER: StructSpec = StructSpec { name: "ib_uverbs_flow_tcp_udp_filter", size: 4, fields: &[
    FieldSpec { name: "dst_port", ty: T::Bytes, offset: 0, size: 2, reserved: false },
    FieldSpec { name: "src_port", ty: T::Bytes, offset: 2, size: 2, reserved: false },
] };

static IB_UVERBS_FLOW_TUNNEL_FILTER: StructSpec = StructSpec { name: "ib_uverbs_flow_tunnel_filter", size: 4, fields: &[
    FieldSpec { name: "tunnel_id", ty: T::Bytes, offset: 0, size: 4, reserved: false },
] };

static IB_UVERBS_GET_CONTEXT: StructSpec = StructSpec { name: "ib_uverbs_get_context", size: 8, fields: &[
    FieldSpec { name: "response", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 8, size: 0, reserved: false },
] };

static IB_UVERBS_GET_CONTEXT_RESP: StructSpec = StructSpec { name: "ib_uverbs_get_context_resp", size: 8, fields: &[
    FieldSpec { name: "async_fd", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "num_comp_vectors", ty: T::U32, offset: 4, size: 4, reserved: false },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 8, size: 0, reserved: false },
] };

static IB_UVERBS_GLOBAL_ROUTE: StructSpec = StructSpec { name: "ib_uverbs_global_route", size: 24, fields: &[
    FieldSpec { name: "dgid", ty: T::Bytes, offset: 0, size: 16, reserved: false },
    FieldSpec { name: "flow_label", ty: T::U32, offset: 16, size: 4, reserved: false },
    FieldSpec { name: "sgid_index", ty: T::U8, offset: 20, size: 1, reserved: false },
    FieldSpec { name: "hop_limit", ty: T::U8, offset: 21, size: 1, reserved: false },
    FieldSpec { name: "traffic_class", ty: T::U8, offset: 22, size: 1, reserved: false },
    FieldSpec { name: "reserved", ty: T::U8, offset: 23, size: 1, reserved: true },
] };

static IB_UVERBS_MODIFY_QP: StructSpec = StructSpec { name: "ib_uverbs_modify_qp", size: 112, fields: &[
    FieldSpec { name: "dest", ty: T::Nested(&IB_UVERBS_QP_DEST), offset: 0, size: 32, reserved: false },
    FieldSpec { name: "alt_dest", ty: T::Nested(&IB_UVERBS_QP_DEST), offset: 32, size: 32, reserved: false },
    FieldSpec { name: "qp_handle", ty: T::U32, offset: 64, size: 4, reserved: false },
    FieldSpec { name: "attr_mask", ty: T::U32, offset: 68, size: 4, reserved: false },
    FieldSpec { name: "qkey", ty: T::U32, offset: 72, size: 4, reserved: false },
    FieldSpec { name: "rq_psn", ty: T::U32, offset: 76, size: 4, reserved: false },
    FieldSpec { name: "sq_psn", ty: T::U32, offset: 80, size: 4, reserved: false },
    FieldSpec { name: "dest_qp_num", ty: T::U32, offset: 84, size: 4, reserved: false },
    FieldSpec { name: "qp_access_flags", ty: T::U32, offset: 88, size: 4, reserved: false },
    FieldSpec { name: "pkey_index", ty: T::U16, offset: 92, size: 2, reserved: false },
    FieldSpec { name: "alt_pkey_index", ty: T::U16, offset: 94, size: 2, reserved: false },
    FieldSpec { name: "qp_state", ty: T::U8, offset: 96, size: 1, reserved: false },
    FieldSpec { name: "cur_qp_state", ty: T::U8, offset: 97, size: 1, reserved: false },
    FieldSpec { name: "path_mtu", ty: T::U8, offset: 98, size: 1, reserved: false },
    FieldSpec { name: "path_mig_state", ty: T::U8, offset: 99, size: 1, reserved: false },
    FieldSpec { name: "en_sqd_async_notify", ty: T::U8, offset: 100, size: 1, reserved: false },
    FieldSpec { name: "max_rd_atomic", ty: T::U8, offset: 101, size: 1, reserved: false },
    FieldSpec { name: "max_dest_rd_atomic", ty: T::U8, offset: 102, size: 1, reserved: false },
    FieldSpec { name: "min_rnr_timer", ty: T::U8, offset: 103, size: 1, reserved: false },
    FieldSpec { name: "port_num", ty: T::U8, offset: 104, size: 1, reserved: false },
    FieldSpec { name: "timeout", ty: T::U8, offset: 105, size: 1, reserved: false },
    FieldSpec { name: "retry_cnt", ty: T::U8, offset: 106, size: 1, reserved: false },
    FieldSpec { name: "rnr_retry", ty: T::U8, offset: 107, size: 1, reserved: false },
    FieldSpec { name: "alt_port_num", ty: T::U8, offset: 108, size: 1, reserved: false },
    FieldSpec { name: "alt_timeout", ty: T::U8, offset: 109, size: 1, reserved: false },
    FieldSpec { name: "reserved", ty: T::Bytes, offset: 110, size: 2, reserved: true },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 112, size: 0, reserved: false },
] };

static IB_UVERBS_MODIFY_SRQ: StructSpec = StructSpec { name: "ib_uverbs_modify_srq", size: 16, fields: &[
    FieldSpec { name: "srq_handle", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "attr_mask", ty: T::U32, offset: 4, size: 4, reserved: false },
    FieldSpec { name: "max_wr", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "srq_limit", ty: T::U32, offset: 12, size: 4, reserved: false },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 16, size: 0, reserved: false },
] };

static IB_UVERBS_ODP_CAPS: StructSpec = StructSpec { name: "ib_uverbs_odp_caps", size: 24, fields: &[
    FieldSpec { name: "general_caps", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "per_transport_caps", ty: T::Bytes, offset: 8, size: 12, reserved: false },
    FieldSpec { name: "reserved", ty: T::U32, offset: 20, size: 4, reserved: true },
] };

static IB_UVERBS_OPEN_QP: StructSpec = StructSpec { name: "ib_uverbs_open_qp", size: 32, fields: &[
    FieldSpec { name: "response", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "user_handle", ty: T::U64, offset: 8, size: 8, reserved: false },
    FieldSpec { name: "pd_handle", ty: T::U32, offset: 16, size: 4, reserved: false },
    FieldSpec { name: "qpn", ty: T::U32, offset: 20, size: 4, reserved: false },
    FieldSpec { name: "qp_type", ty: T::U8, offset: 24, size: 1, reserved: false },
    FieldSpec { name: "reserved", ty: T::Bytes, offset: 25, size: 7, reserved: true },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 32, size: 0, reserved: false },
] };

static IB_UVERBS_OPEN_XRCD: StructSpec = StructSpec { name: "ib_uverbs_open_xrcd", size: 16, fields: &[
    FieldSpec { name: "response", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "fd", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "oflags", ty: T::U32, offset: 12, size: 4, reserved: false },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 16, size: 0, reserved: false },
] };

static IB_UVERBS_OPEN_XRCD_RESP: StructSpec = StructSpec { name: "ib_uverbs_open_xrcd_resp", size: 4, fields: &[
    FieldSpec { name: "xrcd_handle", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 4, size: 0, reserved: false },
] };

static IB_UVERBS_POLL_CQ: StructSpec = StructSpec { name: "ib_uverbs_poll_cq", size: 16, fields: &[
    FieldSpec { name: "response", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "cq_handle", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "ne", ty: T::U32, offset: 12, size: 4, reserved: false },
] };

static IB_UVERBS_POLL_CQ_RESP: StructSpec = StructSpec { name: "ib_uverbs_poll_cq_resp", size: 8, fields: &[
    FieldSpec { name: "count", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "reserved", ty: T::U32, offset: 4, size: 4, reserved: true },
    FieldSpec { name: "wc", ty: T::Trailing, offset: 8, size: 0, reserved: false },
] };

static IB_UVERBS_POST_RECV: StructSpec = StructSpec { name: "ib_uverbs_post_recv", size: 24, fields: &[
    FieldSpec { name: "response", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "qp_handle", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "wr_count", ty: T::U32, offset: 12, size: 4, reserved: false },
    FieldSpec { name: "sge_count", ty: T::U32, offset: 16, size: 4, reserved: false },
    FieldSpec { name: "wqe_size", ty: T::U32, offset: 20, size: 4, reserved: false },
    FieldSpec { name: "recv_wr", ty: T::Trailing, offset: 24, size: 0, reserved: false },
] };

static IB_UVERBS_POST_RECV_RESP: StructSpec = StructSpec { name: "ib_uverbs_post_recv_resp", size: 4, fields: &[
    FieldSpec { name: "bad_wr", ty: T::U32, offset: 0, size: 4, reserved: false },
] };

static IB_UVERBS_POST_SEND: StructSpec = StructSpec { name: "ib_uverbs_post_send", size: 24, fields: &[
    FieldSpec { name: "response", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "qp_handle", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "wr_count", ty: T::U32, offset: 12, size: 4, reserved: false },
    FieldSpec { name: "sge_count", ty: T::U32, offset: 16, size: 4, reserved: false },
    FieldSpec { name: "wqe_size", ty: T::U32, offset: 20, size: 4, reserved: false },
    FieldSpec { name: "send_wr", ty: T::Trailing, offset: 24, size: 0, reserved: false },
] };

static IB_UVERBS_POST_SEND_RESP: StructSpec = StructSpec { name: "ib_uverbs_post_send_resp", size: 4, fields: &[
    FieldSpec { name: "bad_wr", ty: T::U32, offset: 0, size: 4, reserved: false },
] };

static IB_UVERBS_POST_SRQ_RECV: StructSpec = StructSpec { name: "ib_uverbs_post_srq_recv", size: 24, fields: &[
    FieldSpec { name: "response", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "srq_handle", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "wr_count", ty: T::U32, offset: 12, size: 4, reserved: false },
    FieldSpec { name: "sge_count", ty: T::U32, offset: 16, size: 4, reserved: false },
    FieldSpec { name: "wqe_size", ty: T::U32, offset: 20, size: 4, reserved: false },
    FieldSpec { name: "recv", ty: T::Trailing, offset: 24, size: 0, reserved: false },
] };

static IB_UVERBS_POST_SRQ_RECV_RESP: StructSpec = StructSpec { name: "ib_uverbs_post_srq_recv_resp", size: 4, fields: &[
    FieldSpec { name: "bad_wr", ty: T::U32, offset: 0, size: 4, reserved: false },
] };

static IB_UVERBS_QP_ATTR: StructSpec = StructSpec { name: "ib_uverbs_qp_attr", size: 144, fields: &[
    FieldSpec { name: "qp_attr_mask", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "qp_state", ty: T::U32, offset: 4, size: 4, reserved: false },
    FieldSpec { name: "cur_qp_state", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "path_mtu", ty: T::U32, offset: 12, size: 4, reserved: false },
    FieldSpec { name: "path_mig_state", ty: T::U32, offset: 16, size: 4, reserved: false },
    FieldSpec { name: "qkey", ty: T::U32, offset: 20, size: 4, reserved: false },
    FieldSpec { name: "rq_psn", ty: T::U32, offset: 24, size: 4, reserved: false },
    FieldSpec { name: "sq_psn", ty: T::U32, offset: 28, size: 4, reserved: false },
    FieldSpec { name: "dest_qp_num", ty: T::U32, offset: 32, size: 4, reserved: false },
    FieldSpec { name: "qp_access_flags", ty: T::U32, offset: 36, size: 4, reserved: false },
    FieldSpec { name: "ah_attr", ty: T::Nested(&IB_UVERBS_AH_ATTR), offset: 40, size: 32, reserved: false },
    FieldSpec { name: "alt_ah_attr", ty: T::Nested(&IB_UVERBS_AH_ATTR), offset: 72, size: 32, reserved: false },
    FieldSpec { name: "max_send_wr", ty: T::U32, offset: 104, size: 4, reserved: false },
    FieldSpec { name: "max_recv_wr", ty: T::U32, offset: 108, size: 4, reserved: false },
    FieldSpec { name: "max_send_sge", ty: T::U32, offset: 112, size: 4, reserved: false },
    FieldSpec { name: "max_recv_sge", ty: T::U32, offset: 116, size: 4, reserved: false },
    FieldSpec { name: "max_inline_data", ty: T::U32, offset: 120, size: 4, reserved: false },
    FieldSpec { name: "pkey_index", ty: T::U16, offset: 124, size: 2, reserved: false },
    FieldSpec { name: "alt_pkey_index", ty: T::U16, offset: 126, size: 2, reserved: false },
    FieldSpec { name: "en_sqd_async_notify", ty: T::U8, offset: 128, size: 1, reserved: false },
    FieldSpec { name: "sq_draining", ty: T::U8, offset: 129, size: 1, reserved: false },
    FieldSpec { name: "max_rd_atomic", ty: T::U8, offset: 130, size: 1, reserved: false },
    FieldSpec { name: "max_dest_rd_atomic", ty: T::U8, offset: 131, size: 1, reserved: false },
    FieldSpec { name: "min_rnr_timer", ty: T::U8, offset: 132, size: 1, reserved: false },
    FieldSpec { name: "port_num", ty: T::U8, offset: 133, size: 1, reserved: false },
    FieldSpec { name: "timeout", ty: T::U8, offset: 134, size: 1, reserved: false },
    FieldSpec { name: "retry_cnt", ty: T::U8, offset: 135, size: 1, reserved: false },
    FieldSpec { name: "rnr_retry", ty: T::U8, offset: 136, size: 1, reserved: false },
    FieldSpec { name: "alt_port_num", ty: T::U8, offset: 137, size: 1, reserved: false },
    FieldSpec { name: "alt_timeout", ty: T::U8, offset: 138, size: 1, reserved: false },
    FieldSpec { name: "reserved", ty: T::Bytes, offset: 139, size: 5, reserved: true },
] };

static IB_UVERBS_QP_DEST: StructSpec = StructSpec { name: "ib_uverbs_qp_dest", size: 32, fields: &[
    FieldSpec { name: "dgid", ty: T::Bytes, offset: 0, size: 16, reserved: false },
    FieldSpec { name: "flow_label", ty: T::U32, offset: 16, size: 4, reserved: false },
    FieldSpec { name: "dlid", ty: T::U16, offset: 20, size: 2, reserved: false },
    FieldSpec { name: "reserved", ty: T::U16, offset: 22, size: 2, reserved: true },
    FieldSpec { name: "sgid_index", ty: T::U8, offset: 24, size: 1, reserved: false },
    FieldSpec { name: "hop_limit", ty: T::U8, offset: 25, size: 1, reserved: false },
    FieldSpec { name: "traffic_class", ty: T::U8, offset: 26, size: 1, reserved: false },
    FieldSpec { name: "sl", ty: T::U8, offset: 27, size: 1, reserved: false },
    FieldSpec { name: "src_path_bits", ty: T::U8, offset: 28, size: 1, reserved: false },
    FieldSpec { name: "static_rate", ty: T::U8, offset: 29, size: 1, reserved: false },
    FieldSpec { name: "is_global", ty: T::U8, offset: 30, size: 1, reserved: false },
    FieldSpec { name: "port_num", ty: T::U8, offset: 31, size: 1, reserved: false },
] };

static IB_UVERBS_QUERY_DEVICE: StructSpec = StructSpec { name: "ib_uverbs_query_device", size: 8, fields: &[
    FieldSpec { name: "response", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 8, size: 0, reserved: false },
] };

static IB_UVERBS_QUERY_DEVICE_RESP: StructSpec = StructSpec { name: "ib_uverbs_query_device_resp", size: 176, fields: &[
    FieldSpec { name: "fw_ver", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "node_guid", ty: T::Be64, offset: 8, size: 8, reserved: false },
    FieldSpec { name: "sys_image_guid", ty: T::Be64, offset: 16, size: 8, reserved: false },
    FieldSpec { name: "max_mr_size", ty: T::U64, offset: 24, size: 8, reserved: false },
    FieldSpec { name: "page_size_cap", ty: T::U64, offset: 32, size: 8, reserved: false },
    FieldSpec { name: "vendor_id", ty: T::U32, offset: 40, size: 4, reserved: false },
    FieldSpec { name: "vendor_part_id", ty: T::U32, offset: 44, size: 4, reserved: false },
    FieldSpec { name: "hw_ver", ty: T::U32, offset: 48, size: 4, reserved: false },
    FieldSpec { name: "max_qp", ty: T::U32, offset: 52, size: 4, reserved: false },
    FieldSpec { name: "max_qp_wr", ty: T::U32, offset: 56, size: 4, reserved: false },
    FieldSpec { name: "device_cap_flags", ty: T::U32, offset: 60, size: 4, reserved: false },
    FieldSpec { name: "max_sge", ty: T::U32, offset: 64, size: 4, reserved: false },
    FieldSpec { name: "max_sge_rd", ty: T::U32, offset: 68, size: 4, reserved: false },
    FieldSpec { name: "max_cq", ty: T::U32, offset: 72, size: 4, reserved: false },
    FieldSpec { name: "max_cqe", ty: T::U32, offset: 76, size: 4, reserved: false },
    FieldSpec { name: "max_mr", ty: T::U32, offset: 80, size: 4, reserved: false },
    FieldSpec { name: "max_pd", ty: T::U32, offset: 84, size: 4, reserved: false },
    FieldSpec { name: "max_qp_rd_atom", ty: T::U32, offset: 88, size: 4, reserved: false },
    FieldSpec { name: "max_ee_rd_atom", ty: T::U32, offset: 92, size: 4, reserved: false },
    FieldSpec { name: "max_res_rd_atom", ty: T::U32, offset: 96, size: 4, reserved: false },
    FieldSpec { name: "max_qp_init_rd_atom", ty: T::U32, offset: 100, size: 4, reserved: false },
    FieldSpec { name: "max_ee_init_rd_atom", ty: T::U32, offset: 104, size: 4, reserved: false },
    FieldSpec { name: "atomic_cap", ty: T::U32, offset: 108, size: 4, reserved: false },
    FieldSpec { name: "max_ee", ty: T::U32, offset: 112, size: 4, reserved: false },
    FieldSpec { name: "max_rdd", ty: T::U32, offset: 116, size: 4, reserved: false },
    FieldSpec { name: "max_mw", ty: T::U32, offset: 120, size: 4, reserved: false },
    FieldSpec { name: "max_raw_ipv6_qp", ty: T::U32, offset: 124, size: 4, reserved: false },
    FieldSpec { name: "max_raw_ethy_qp", ty: T::U32, offset: 128, size: 4, reserved: false },
    FieldSpec { name: "max_mcast_grp", ty: T::U32, offset: 132, size: 4, reserved: false },
    FieldSpec { name: "max_mcast_qp_attach", ty: T::U32, offset: 136, size: 4, reserved: false },
    FieldSpec { name: "max_total_mcast_qp_attach", ty: T::U32, offset: 140, size: 4, reserved: false },
    FieldSpec { name: "max_ah", ty: T::U32, offset: 144, size: 4, reserved: false },
    FieldSpec { name: "max_fmr", ty: T::U32, offset: 148, size: 4, reserved: false },
    FieldSpec { name: "max_map_per_fmr", ty: T::U32, offset: 152, size: 4, reserved: false },
    FieldSpec { name: "max_srq", ty: T::U32, offset: 156, size: 4, reserved: false },
    FieldSpec { name: "max_srq_wr", ty: T::U32, offset: 160, size: 4, reserved: false },
    FieldSpec { name: "max_srq_sge", ty: T::U32, offset: 164, size: 4, reserved: false },
    FieldSpec { name: "max_pkeys", ty: T::U16, offset: 168, size: 2, reserved: false },
    FieldSpec { name: "local_ca_ack_delay", ty: T::U8, offset: 170, size: 1, reserved: false },
    FieldSpec { name: "phys_port_cnt", ty: T::U8, offset: 171, size: 1, reserved: false },
    FieldSpec { name: "reserved", ty: T::Bytes, offset: 172, size: 4, reserved: true },
] };

static IB_UVERBS_QUERY_PORT: StructSpec = StructSpec { name: "ib_uverbs_query_port", size: 16, fields: &[
    FieldSpec { name: "response", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "port_num", ty: T::U8, offset: 8, size: 1, reserved: false },
    FieldSpec { name: "reserved", ty: T::Bytes, offset: 9, size: 7, reserved: true },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 16, size: 0, reserved: false },
] };

static IB_UVERBS_QUERY_PORT_RESP: StructSpec = StructSpec { name: "ib_uverbs_query_port_resp", size: 40, fields: &[
    FieldSpec { name: "port_cap_flags", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "max_msg_sz", ty: T::U32, offset: 4, size: 4, reserved: false },
    FieldSpec { name: "bad_pkey_cntr", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "qkey_viol_cntr", ty: T::U32, offset: 12, size: 4, reserved: false },
    FieldSpec { name: "gid_tbl_len", ty: T::U32, offset: 16, size: 4, reserved: false },
    FieldSpec { name: "pkey_tbl_len", ty: T::U16, offset: 20, size: 2, reserved: false },
    FieldSpec { name: "lid", ty: T::U16, offset: 22, size: 2, reserved: false },
    FieldSpec { name: "sm_lid", ty: T::U16, offset: 24, size: 2, reserved: false },
    FieldSpec { name: "state", ty: T::U8, offset: 26, size: 1, reserved: false },
    FieldSpec { name: "max_mtu", ty: T::U8, offset: 27, size: 1, reserved: false },
    FieldSpec { name: "active_mtu", ty: T::U8, offset: 28, size: 1, reserved: false },
    FieldSpec { name: "lmc", ty: T::U8, offset: 29, size: 1, reserved: false },
    FieldSpec { name: "max_vl_num", ty: T::U8, offset: 30, size: 1, reserved: false },
    FieldSpec { name: "sm_sl", ty: T::U8, offset: 31, size: 1, reserved: false },
    FieldSpec { name: "subnet_timeout", ty: T::U8, offset: 32, size: 1, reserved: false },
    FieldSpec { name: "init_type_reply", ty: T::U8, offset: 33, size: 1, reserved: false },
    FieldSpec { name: "active_width", ty: T::U8, offset: 34, size: 1, reserved: false },
    FieldSpec { name: "active_speed", ty: T::U8, offset: 35, size: 1, reserved: false },
    FieldSpec { name: "phys_state", ty: T::U8, offset: 36, size: 1, reserved: false },
    FieldSpec { name: "link_layer", ty: T::U8, offset: 37, size: 1, reserved: false },
    FieldSpec { name: "flags", ty: T::U8, offset: 38, size: 1, reserved: false },
    FieldSpec { name: "reserved", ty: T::U8, offset: 39, size: 1, reserved: true },
] };

static IB_UVERBS_QUERY_QP: StructSpec = StructSpec { name: "ib_uverbs_query_qp", size: 16, fields: &[
    FieldSpec { name: "response", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "qp_handle", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "attr_mask", ty: T::U32, offset: 12, size: 4, reserved: false },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 16, size: 0, reserved: false },
] };

static IB_UVERBS_QUERY_QP_RESP: StructSpec = StructSpec { name: "ib_uverbs_query_qp_resp", size: 128, fields: &[
    FieldSpec { name: "dest", ty: T::Nested(&IB_UVERBS_QP_DEST), offset: 0, size: 32, reserved: false },
    FieldSpec { name: "alt_dest", ty: T::Nested(&IB_UVERBS_QP_DEST), offset: 32, size: 32, reserved: false },
    FieldSpec { name: "max_send_wr", ty: T::U32, offset: 64, size: 4, reserved: false },
    FieldSpec { name: "max_recv_wr", ty: T::U32, offset: 68, size: 4, reserved: false },
    FieldSpec { name: "max_send_sge", ty: T::U32, offset: 72, size: 4, reserved: false },
    FieldSpec { name: "max_recv_sge", ty: T::U32, offset: 76, size: 4, reserved: false },
    FieldSpec { name: "max_inline_data", ty: T::U32, offset: 80, size: 4, reserved: false },
    FieldSpec { name: "qkey", ty: T::U32, offset: 84, size: 4, reserved: false },
    FieldSpec { name: "rq_psn", ty: T::U32, offset: 88, size: 4, reserved: false },
    FieldSpec { name: "sq_psn", ty: T::U32, offset: 92, size: 4, reserved: false },
    FieldSpec { name: "dest_qp_num", ty: T::U32, offset: 96, size: 4, reserved: false },
    FieldSpec { name: "qp_access_flags", ty: T::U32, offset: 100, size: 4, reserved: false },
    FieldSpec { name: "pkey_index", ty: T::U16, offset: 104, size: 2, reserved: false },
    FieldSpec { name: "alt_pkey_index", ty: T::U16, offset: 106, size: 2, reserved: false },
    FieldSpec { name: "qp_state", ty: T::U8, offset: 108, size: 1, reserved: false },
    FieldSpec { name: "cur_qp_state", ty: T::U8, offset: 109, size: 1, reserved: false },
    FieldSpec { name: "path_mtu", ty: T::U8, offset: 110, size: 1, reserved: false },
    FieldSpec { name: "path_mig_state", ty: T::U8, offset: 111, size: 1, reserved: false },
    FieldSpec { name: "sq_draining", ty: T::U8, offset: 112, size: 1, reserved: false },
    FieldSpec { name: "max_rd_atomic", ty: T::U8, offset: 113, size: 1, reserved: false },
    FieldSpec { name: "max_dest_rd_atomic", ty: T::U8, offset: 114, size: 1, reserved: false },
    FieldSpec { name: "min_rnr_timer", ty: T::U8, offset: 115, size: 1, reserved: false },
    FieldSpec { name: "port_num", ty: T::U8, offset: 116, size: 1, reserved: false },
    FieldSpec { name: "timeout", ty: T::U8, offset: 117, size: 1, reserved: false },
    FieldSpec { name: "retry_cnt", ty: T::U8, offset: 118, size: 1, reserved: false },
    FieldSpec { name: "rnr_retry", ty: T::U8, offset: 119, size: 1, reserved: false },
    FieldSpec { name: "alt_port_num", ty: T::U8, offset: 120, size: 1, reserved: false },
    FieldSpec { name: "alt_timeout", ty: T::U8, offset: 121, size: 1, reserved: false },
    FieldSpec { name: "sq_sig_all", ty: T::U8, offset: 122, size: 1, reserved: false },
    FieldSpec { name: "reserved", ty: T::Bytes, offset: 123, size: 5, reserved: true },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 128, size: 0, reserved: false },
] };

static IB_UVERBS_QUERY_SRQ: StructSpec = StructSpec { name: "ib_uverbs_query_srq", size: 16, fields: &[
    FieldSpec { name: "response", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "srq_handle", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "reserved", ty: T::U32, offset: 12, size: 4, reserved: true },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 16, size: 0, reserved: false },
] };

static IB_UVERBS_QUERY_SRQ_RESP: StructSpec = StructSpec { name: "ib_uverbs_query_srq_resp", size: 16, fields: &[
    FieldSpec { name: "max_wr", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "max_sge", ty: T::U32, offset: 4, size: 4, reserved: false },
    FieldSpec { name: "srq_limit", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "reserved", ty: T::U32, offset: 12, size: 4, reserved: true },
] };

static IB_UVERBS_RECV_WR: StructSpec = StructSpec { name: "ib_uverbs_recv_wr", size: 16, fields: &[
    FieldSpec { name: "wr_id", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "num_sge", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "reserved", ty: T::U32, offset: 12, size: 4, reserved: true },
] };

static IB_UVERBS_REG_MR: StructSpec = StructSpec { name: "ib_uverbs_reg_mr", size: 40, fields: &[
    FieldSpec { name: "response", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "start", ty: T::U64, offset: 8, size: 8, reserved: false },
    FieldSpec { name: "length", ty: T::U64, offset: 16, size: 8, reserved: false },
    FieldSpec { name: "hca_va", ty: T::U64, offset: 24, size: 8, reserved: false },
    FieldSpec { name: "pd_handle", ty: T::U32, offset: 32, size: 4, reserved: false },
    FieldSpec { name: "access_flags", ty: T::U32, offset: 36, size: 4, reserved: false },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 40, size: 0, reserved: false },
] };

static IB_UVERBS_REG_MR_RESP: StructSpec = StructSpec { name: "ib_uverbs_reg_mr_resp", size: 12, fields: &[
    FieldSpec { name: "mr_handle", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "lkey", ty: T::U32, offset: 4, size: 4, reserved: false },
    FieldSpec { name: "rkey", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 12, size: 0, reserved: false },
] };

static IB_UVERBS_REQ_NOTIFY_CQ: StructSpec = StructSpec { name: "ib_uverbs_req_notify_cq", size: 8, fields: &[
    FieldSpec { name: "cq_handle", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "solicited_only", ty: T::U32, offset: 4, size: 4, reserved: false },
] };

static IB_UVERBS_REREG_MR: StructSpec = StructSpec { name: "ib_uverbs_rereg_mr", size: 48, fields: &[
    FieldSpec { name: "response", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "mr_handle", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "flags", ty: T::U32, offset: 12, size: 4, reserved: false },
    FieldSpec { name: "start", ty: T::U64, offset: 16, size: 8, reserved: false },
    FieldSpec { name: "length", ty: T::U64, offset: 24, size: 8, reserved: false },
    FieldSpec { name: "hca_va", ty: T::U64, offset: 32, size: 8, reserved: false },
    FieldSpec { name: "pd_handle", ty: T::U32, offset: 40, size: 4, reserved: false },
    FieldSpec { name: "access_flags", ty: T::U32, offset: 44, size: 4, reserved: false },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 48, size: 0, reserved: false },
] };

static IB_UVERBS_REREG_MR_RESP: StructSpec = StructSpec { name: "ib_uverbs_rereg_mr_resp", size: 8, fields: &[
    FieldSpec { name: "lkey", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "rkey", ty: T::U32, offset: 4, size: 4, reserved: false },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 8, size: 0, reserved: false },
] };

static IB_UVERBS_RESIZE_CQ: StructSpec = StructSpec { name: "ib_uverbs_resize_cq", size: 16, fields: &[
    FieldSpec { name: "response", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "cq_handle", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "cqe", ty: T::U32, offset: 12, size: 4, reserved: false },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 16, size: 0, reserved: false },
] };

static IB_UVERBS_RESIZE_CQ_RESP: StructSpec = StructSpec { name: "ib_uverbs_resize_cq_resp", size: 8, fields: &[
    FieldSpec { name: "cqe", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "reserved", ty: T::U32, offset: 4, size: 4, reserved: true },
    FieldSpec { name: "driver_data", ty: T::Trailing, offset: 8, size: 0, reserved: false },
] };

static IB_UVERBS_RSS_CAPS: StructSpec = StructSpec { name: "ib_uverbs_rss_caps", size: 16, fields: &[
    FieldSpec { name: "supported_qpts", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "max_rwq_indirection_tables", ty: T::U32, offset: 4, size: 4, reserved: false },
    FieldSpec { name: "max_rwq_indirection_table_size", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "reserved", ty: T::U32, offset: 12, size: 4, reserved: true },
] };

static IB_UVERBS_SEND_WR: StructSpec = StructSpec { name: "ib_uverbs_send_wr", size: 56, fields: &[
    FieldSpec { name: "wr_id", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "num_sge", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "opcode", ty: T::U32, offset: 12, size: 4, reserved: false },
    FieldSpec { name: "send_flags", ty: T::U32, offset: 16, size: 4, reserved: false },
    FieldSpec { name: "ex", ty: T::Union, offset: 20, size: 4, reserved: false },
    FieldSpec { name: "wr", ty: T::Union, offset: 24, size: 32, reserved: false },
] };

static IB_UVERBS_SGE: StructSpec = StructSpec { name: "ib_uverbs_sge", size: 16, fields: &[
    FieldSpec { name: "addr", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "length", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "lkey", ty: T::U32, offset: 12, size: 4, reserved: false },
] };

static IB_UVERBS_TM_CAPS: StructSpec = StructSpec { name: "ib_uverbs_tm_caps", size: 24, fields: &[
    FieldSpec { name: "max_rndv_hdr_size", ty: T::U32, offset: 0, size: 4, reserved: false },
    FieldSpec { name: "max_num_tags", ty: T::U32, offset: 4, size: 4, reserved: false },
    FieldSpec { name: "flags", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "max_ops", ty: T::U32, offset: 12, size: 4, reserved: false },
    FieldSpec { name: "max_sge", ty: T::U32, offset: 16, size: 4, reserved: false },
    FieldSpec { name: "reserved", ty: T::U32, offset: 20, size: 4, reserved: true },
] };

static IB_UVERBS_WC: StructSpec = StructSpec { name: "ib_uverbs_wc", size: 48, fields: &[
    FieldSpec { name: "wr_id", ty: T::U64, offset: 0, size: 8, reserved: false },
    FieldSpec { name: "status", ty: T::U32, offset: 8, size: 4, reserved: false },
    FieldSpec { name: "opcode", ty: T::U32, offset: 12, size: 4, reserved: false },
    FieldSpec { name: "vendor_err", ty: T::U32, offset: 16, size: 4, reserved: false },
    FieldSpec { name: "byte_len", ty: T::U32, offset: 20, size: 4, reserved: false },
    FieldSpec { name: "ex", ty: T::Union, offset: 24, size: 4, reserved: false },
    FieldSpec { name: "qp_num", ty: T::U32, offset: 28, size: 4, reserved: false },
    FieldSpec { name: "src_qp", ty: T::U32, offset: 32, size: 4, reserved: false },
    FieldSpec { name: "wc_flags", ty: T::U32, offset: 36, size: 4, reserved: false },
    FieldSpec { name: "pkey_index", ty: T::U16, offset: 40, size: 2, reserved: false },
    FieldSpec { name: "slid", ty: T::U16, offset: 42, size: 2, reserved: false },
    FieldSpec { name: "sl", ty: T::U8, offset: 44, size: 1, reserved: false },
    FieldSpec { name: "dlid_path_bits", ty: T::U8, offset: 45, size: 1, reserved: false },
    FieldSpec { name: "port_num", ty: T::U8, offset: 46, size: 1, reserved: false },
    FieldSpec { name: "reserved", ty: T::U8, offset: 47, size: 1, reserved: true },
] };

pub(crate) static STRUCTS: &[&StructSpec] = &[
    &IB_UVERBS_AH_ATTR,
    &IB_UVERBS_ALLOC_MW,
    &IB_UVERBS_ALLOC_MW_RESP,
    &IB_UVERBS_ALLOC_PD,
    &IB_UVERBS_ALLOC_PD_RESP,
    &IB_UVERBS_ASYNC_EVENT_DESC,
    &IB_UVERBS_ATTACH_MCAST,
    &IB_UVERBS_CLOSE_XRCD,
    &IB_UVERBS_CMD_HDR,
    &IB_UVERBS_COMP_EVENT_DESC,
    &IB_UVERBS_CQ_MODERATION,
    &IB_UVERBS_CQ_MODERATION_CAPS,
    &IB_UVERBS_CREATE_AH,
    &IB_UVERBS_CREATE_AH_RESP,
    &IB_UVERBS_CREATE_COMP_CHANNEL,
    &IB_UVERBS_CREATE_COMP_CHANNEL_RESP,
    &IB_UVERBS_CREATE_CQ,
    &IB_UVERBS_CREATE_CQ_RESP,
    &IB_UVERBS_CREATE_FLOW,
    &IB_UVERBS_CREATE_FLOW_RESP,
    &IB_UVERBS_CREATE_QP,
    &IB_UVERBS_CREATE_QP_RESP,
    &IB_UVERBS_CREATE_SRQ,
    &IB_UVERBS_CREATE_SRQ_RESP,
    &IB_UVERBS_CREATE_XSRQ,
    &IB_UVERBS_DEALLOC_MW,
    &IB_UVERBS_DEALLOC_PD,
    &IB_UVERBS_DEREG_MR,
    &IB_UVERBS_DESTROY_AH,
    &IB_UVERBS_DESTROY_CQ,
    &IB_UVERBS_DESTROY_CQ_RESP,
    &IB_UVERBS_DESTROY_FLOW,
    &IB_UVERBS_DESTROY_QP,
    &IB_UVERBS_DESTROY_QP_RESP,
    &IB_UVERBS_DESTROY_SRQ,
    &IB_UVERBS_DESTROY_SRQ_RESP,
    &IB_UVERBS_DETACH_MCAST,
    &IB_UVERBS_EX_CMD_HDR,
    &IB_UVERBS_EX_CREATE_CQ,
    &IB_UVERBS_EX_CREATE_CQ_RESP,
    &IB_UVERBS_EX_CREATE_QP,
    &IB_UVERBS_EX_CREATE_QP_RESP,
    &IB_UVERBS_EX_CREATE_RWQ_IND_TABLE,
    &IB_UVERBS_EX_CREATE_RWQ_IND_TABLE_RESP,
    &IB_UVERBS_EX_CREATE_WQ,
    &IB_UVERBS_EX_CREATE_WQ_RESP,
    &IB_UVERBS_EX_DESTROY_RWQ_IND_TABLE,
    &IB_UVERBS_EX_DESTROY_WQ,
    &IB_UVERBS_EX_DESTROY_WQ_RESP,
    &IB_UVERBS_EX_MODIFY_CQ,
    &IB_UVERBS_EX_MODIFY_QP,
    &IB_UVERBS_EX_MODIFY_QP_RESP,
    &IB_UVERBS_EX_MODIFY_WQ,
    &IB_UVERBS_EX_QUERY_DEVICE,
    &IB_UVERBS_EX_QUERY_DEVICE_RESP,
    &IB_UVERBS_FLOW_ATTR,
    &IB_UVERBS_FLOW_ETH_FILTER,
    &IB_UVERBS_FLOW_GRE_FILTER,
    &IB_UVERBS_FLOW_IPV4_FILTER,
    &IB_UVERBS_FLOW_IPV6_FILTER,
    &IB_UVERBS_FLOW_MPLS_FILTER,
    &IB_UVERBS_FLOW_SPEC_ACTION_COUNT,
    &IB_UVERBS_FLOW_SPEC_ACTION_DROP,
    &IB_UVERBS_FLOW_SPEC_ACTION_HANDLE,
    &IB_UVERBS_FLOW_SPEC_ACTION_TAG,
    &IB_UVERBS_FLOW_SPEC_ESP,
    &IB_UVERBS_FLOW_SPEC_ESP_FILTER,
    &IB_UVERBS_FLOW_SPEC_ETH,
    &IB_UVERBS_FLOW_SPEC_GRE,
    &IB_UVERBS_FLOW_SPEC_HDR,
    &IB_UVERBS_FLOW_SPEC_IPV4,
    &IB_UVERBS_FLOW_SPEC_IPV6,
    &IB_UVERBS_FLOW_SPEC_MPLS,
    &IB_UVERBS_FLOW_SPEC_TCP_UDP,
    &IB_UVERBS_FLOW_SPEC_TUNNEL,
    &IB_UVERBS_FLOW_TCP_UDP_FILTER,
    &IB_UVERBS_FLOW_TUNNEL_FILTER,
    &IB_UVERBS_GET_CONTEXT,
    &IB_UVERBS_GET_CONTEXT_RESP,
    &IB_UVERBS_GLOBAL_ROUTE,
    &IB_UVERBS_MODIFY_QP,
    &IB_UVERBS_MODIFY_SRQ,
    &IB_UVERBS_ODP_CAPS,
    &IB_UVERBS_OPEN_QP,
    &IB_UVERBS_OPEN_XRCD,
    &IB_UVERBS_OPEN_XRCD_RESP,
    &IB_UVERBS_POLL_CQ,
    &IB_UVERBS_POLL_CQ_RESP,
    &IB_UVERBS_POST_RECV,
    &IB_UVERBS_POST_RECV_RESP,
    &IB_UVERBS_POST_SEND,
    &IB_UVERBS_POST_SEND_RESP,
    &IB_UVERBS_POST_SRQ_RECV,
    &IB_UVERBS_POST_SRQ_RECV_RESP,
    &IB_UVERBS_QP_ATTR,
    &IB_UVERBS_QP_DEST,
    &IB_UVERBS_QUERY_DEVICE,
    &IB_UVERBS_QUERY_DEVICE_RESP,
    &IB_UVERBS_QUERY_PORT,
    &IB_UVERBS_QUERY_PORT_RESP,
    &IB_UVERBS_QUERY_QP,
    &IB_UVERBS_QUERY_QP_RESP,
    &IB_UVERBS_QUERY_SRQ,
    &IB_UVERBS_QUERY_SRQ_RESP,
    &IB_UVERBS_RECV_WR,
    &IB_UVERBS_REG_MR,
    &IB_UVERBS_REG_MR_RESP,
    &IB_UVERBS_REQ_NOTIFY_CQ,
    &IB_UVERBS_REREG_MR,
    &IB_UVERBS_REREG_MR_RESP,
    &IB_UVERBS_RESIZE_CQ,
    &IB_UVERBS_RESIZE_CQ_RESP,
    &IB_UVERBS_RSS_CAPS,
    &IB_UVERBS_SEND_WR,
    &IB_UVERBS_SGE,
    &IB_UVERBS_TM_CAPS,
    &IB_UVERBS_WC,
];

pub(crate) static LEGACY: &[LegacySpec] = &[
    LegacySpec { name: "IB_USER_VERBS_CMD_GET_CONTEXT", short_name: "GET_CONTEXT", number: 0, extended: false, write_cmd: 0x0, object: ids::UVERBS_OBJECT_DEVICE, req: &IB_UVERBS_GET_CONTEXT, req_min: 8, resp: Some(&IB_UVERBS_GET_CONTEXT_RESP), resp_min: 8, min_enforced: true, takes_uhw: true, has_resp: true, creates_ucontext: true, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[],
        fds: &[
            FdField { path: "async_fd", offset: 0, in_resp: true, object: Some(ids::UVERBS_OBJECT_ASYNC_EVENT), none: NoFd::Never },
        ],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_QUERY_DEVICE", short_name: "QUERY_DEVICE", number: 1, extended: false, write_cmd: 0x1, object: ids::UVERBS_OBJECT_DEVICE, req: &IB_UVERBS_QUERY_DEVICE, req_min: 8, resp: Some(&IB_UVERBS_QUERY_DEVICE_RESP), resp_min: 176, min_enforced: true, takes_uhw: false, has_resp: true, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_QUERY_PORT", short_name: "QUERY_PORT", number: 2, extended: false, write_cmd: 0x2, object: ids::UVERBS_OBJECT_DEVICE, req: &IB_UVERBS_QUERY_PORT, req_min: 16, resp: Some(&IB_UVERBS_QUERY_PORT_RESP), resp_min: 40, min_enforced: true, takes_uhw: false, has_resp: true, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_ALLOC_PD", short_name: "ALLOC_PD", number: 3, extended: false, write_cmd: 0x3, object: ids::UVERBS_OBJECT_PD, req: &IB_UVERBS_ALLOC_PD, req_min: 8, resp: Some(&IB_UVERBS_ALLOC_PD_RESP), resp_min: 4, min_enforced: true, takes_uhw: true, has_resp: true, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "pd_handle", offset: 0, in_resp: true, object: ids::UVERBS_OBJECT_PD, access: Access::New, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_DEALLOC_PD", short_name: "DEALLOC_PD", number: 4, extended: false, write_cmd: 0x4, object: ids::UVERBS_OBJECT_PD, req: &IB_UVERBS_DEALLOC_PD, req_min: 4, resp: None, resp_min: 0, min_enforced: true, takes_uhw: false, has_resp: false, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "pd_handle", offset: 0, in_resp: false, object: ids::UVERBS_OBJECT_PD, access: Access::Destroy, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_CREATE_AH", short_name: "CREATE_AH", number: 5, extended: false, write_cmd: 0x5, object: ids::UVERBS_OBJECT_AH, req: &IB_UVERBS_CREATE_AH, req_min: 56, resp: Some(&IB_UVERBS_CREATE_AH_RESP), resp_min: 4, min_enforced: true, takes_uhw: true, has_resp: true, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "pd_handle", offset: 16, in_resp: false, object: ids::UVERBS_OBJECT_PD, access: Access::Read, when: &[] },
            HandleField { path: "ah_handle", offset: 0, in_resp: true, object: ids::UVERBS_OBJECT_AH, access: Access::New, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_DESTROY_AH", short_name: "DESTROY_AH", number: 8, extended: false, write_cmd: 0x8, object: ids::UVERBS_OBJECT_AH, req: &IB_UVERBS_DESTROY_AH, req_min: 4, resp: None, resp_min: 0, min_enforced: true, takes_uhw: false, has_resp: false, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "ah_handle", offset: 0, in_resp: false, object: ids::UVERBS_OBJECT_AH, access: Access::Destroy, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_REG_MR", short_name: "REG_MR", number: 9, extended: false, write_cmd: 0x9, object: ids::UVERBS_OBJECT_MR, req: &IB_UVERBS_REG_MR, req_min: 40, resp: Some(&IB_UVERBS_REG_MR_RESP), resp_min: 12, min_enforced: true, takes_uhw: true, has_resp: true, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "pd_handle", offset: 32, in_resp: false, object: ids::UVERBS_OBJECT_PD, access: Access::Read, when: &[] },
            HandleField { path: "mr_handle", offset: 0, in_resp: true, object: ids::UVERBS_OBJECT_MR, access: Access::New, when: &[] },
        ],
        fds: &[],
        user_vas: &[
            VaField { addr: 8, len: 16, when: &[] },
        ],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_REREG_MR", short_name: "REREG_MR", number: 11, extended: false, write_cmd: 0xb, object: ids::UVERBS_OBJECT_MR, req: &IB_UVERBS_REREG_MR, req_min: 48, resp: Some(&IB_UVERBS_REREG_MR_RESP), resp_min: 8, min_enforced: true, takes_uhw: true, has_resp: true, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "mr_handle", offset: 8, in_resp: false, object: ids::UVERBS_OBJECT_MR, access: Access::Write, when: &[] },
            HandleField { path: "pd_handle", offset: 40, in_resp: false, object: ids::UVERBS_OBJECT_PD, access: Access::Read, when: &[Test { field: "flags", offset: 12, size: 4, op: TestOp::AnyBit, value: 2 }] },
        ],
        fds: &[],
        user_vas: &[
            VaField { addr: 16, len: 24, when: &[Test { field: "flags", offset: 12, size: 4, op: TestOp::AnyBit, value: 1 }] },
        ],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_DEREG_MR", short_name: "DEREG_MR", number: 13, extended: false, write_cmd: 0xd, object: ids::UVERBS_OBJECT_MR, req: &IB_UVERBS_DEREG_MR, req_min: 4, resp: None, resp_min: 0, min_enforced: true, takes_uhw: false, has_resp: false, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "mr_handle", offset: 0, in_resp: false, object: ids::UVERBS_OBJECT_MR, access: Access::Destroy, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_ALLOC_MW", short_name: "ALLOC_MW", number: 14, extended: false, write_cmd: 0xe, object: ids::UVERBS_OBJECT_MW, req: &IB_UVERBS_ALLOC_MW, req_min: 16, resp: Some(&IB_UVERBS_ALLOC_MW_RESP), resp_min: 8, min_enforced: true, takes_uhw: true, has_resp: true, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "pd_handle", offset: 8, in_resp: false, object: ids::UVERBS_OBJECT_PD, access: Access::Read, when: &[] },
            HandleField { path: "mw_handle", offset: 0, in_resp: true, object: ids::UVERBS_OBJECT_MW, access: Access::New, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_DEALLOC_MW", short_name: "DEALLOC_MW", number: 16, extended: false, write_cmd: 0x10, object: ids::UVERBS_OBJECT_MW, req: &IB_UVERBS_DEALLOC_MW, req_min: 4, resp: None, resp_min: 0, min_enforced: true, takes_uhw: false, has_resp: false, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "mw_handle", offset: 0, in_resp: false, object: ids::UVERBS_OBJECT_MW, access: Access::Destroy, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL", short_name: "CREATE_COMP_CHANNEL", number: 17, extended: false, write_cmd: 0x11, object: ids::UVERBS_OBJECT_COMP_CHANNEL, req: &IB_UVERBS_CREATE_COMP_CHANNEL, req_min: 8, resp: Some(&IB_UVERBS_CREATE_COMP_CHANNEL_RESP), resp_min: 4, min_enforced: true, takes_uhw: false, has_resp: true, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[],
        fds: &[
            FdField { path: "fd", offset: 0, in_resp: true, object: Some(ids::UVERBS_OBJECT_COMP_CHANNEL), none: NoFd::Never },
        ],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_CREATE_CQ", short_name: "CREATE_CQ", number: 18, extended: false, write_cmd: 0x12, object: ids::UVERBS_OBJECT_CQ, req: &IB_UVERBS_CREATE_CQ, req_min: 32, resp: Some(&IB_UVERBS_CREATE_CQ_RESP), resp_min: 8, min_enforced: true, takes_uhw: true, has_resp: true, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "cq_handle", offset: 0, in_resp: true, object: ids::UVERBS_OBJECT_CQ, access: Access::New, when: &[] },
        ],
        fds: &[
            FdField { path: "comp_channel", offset: 24, in_resp: false, object: Some(ids::UVERBS_OBJECT_COMP_CHANNEL), none: NoFd::Negative },
        ],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_RESIZE_CQ", short_name: "RESIZE_CQ", number: 19, extended: false, write_cmd: 0x13, object: ids::UVERBS_OBJECT_CQ, req: &IB_UVERBS_RESIZE_CQ, req_min: 16, resp: Some(&IB_UVERBS_RESIZE_CQ_RESP), resp_min: 8, min_enforced: true, takes_uhw: true, has_resp: true, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "cq_handle", offset: 8, in_resp: false, object: ids::UVERBS_OBJECT_CQ, access: Access::Read, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_DESTROY_CQ", short_name: "DESTROY_CQ", number: 20, extended: false, write_cmd: 0x14, object: ids::UVERBS_OBJECT_CQ, req: &IB_UVERBS_DESTROY_CQ, req_min: 16, resp: Some(&IB_UVERBS_DESTROY_CQ_RESP), resp_min: 8, min_enforced: true, takes_uhw: false, has_resp: true, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "cq_handle", offset: 8, in_resp: false, object: ids::UVERBS_OBJECT_CQ, access: Access::Destroy, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_POLL_CQ", short_name: "POLL_CQ", number: 21, extended: false, write_cmd: 0x15, object: ids::UVERBS_OBJECT_CQ, req: &IB_UVERBS_POLL_CQ, req_min: 16, resp: Some(&IB_UVERBS_POLL_CQ_RESP), resp_min: 8, min_enforced: true, takes_uhw: false, has_resp: true, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: true, cap: "",
        handles: &[
            HandleField { path: "cq_handle", offset: 8, in_resp: false, object: ids::UVERBS_OBJECT_CQ, access: Access::Read, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_REQ_NOTIFY_CQ", short_name: "REQ_NOTIFY_CQ", number: 23, extended: false, write_cmd: 0x17, object: ids::UVERBS_OBJECT_CQ, req: &IB_UVERBS_REQ_NOTIFY_CQ, req_min: 8, resp: None, resp_min: 0, min_enforced: true, takes_uhw: false, has_resp: false, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "cq_handle", offset: 0, in_resp: false, object: ids::UVERBS_OBJECT_CQ, access: Access::Read, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_CREATE_QP", short_name: "CREATE_QP", number: 24, extended: false, write_cmd: 0x18, object: ids::UVERBS_OBJECT_QP, req: &IB_UVERBS_CREATE_QP, req_min: 56, resp: Some(&IB_UVERBS_CREATE_QP_RESP), resp_min: 32, min_enforced: true, takes_uhw: true, has_resp: true, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "CAP_NET_RAW for qp_type RAW_PACKET",
        handles: &[
            HandleField { path: "pd_handle", offset: 16, in_resp: false, object: ids::UVERBS_OBJECT_XRCD, access: Access::Read, when: &[Test { field: "qp_type", offset: 53, size: 1, op: TestOp::Eq, value: 10 }] },
            HandleField { path: "pd_handle", offset: 16, in_resp: false, object: ids::UVERBS_OBJECT_PD, access: Access::Read, when: &[Test { field: "qp_type", offset: 53, size: 1, op: TestOp::Ne, value: 10 }] },
            HandleField { path: "send_cq_handle", offset: 20, in_resp: false, object: ids::UVERBS_OBJECT_CQ, access: Access::Read, when: &[Test { field: "qp_type", offset: 53, size: 1, op: TestOp::Ne, value: 10 }] },
            HandleField { path: "recv_cq_handle", offset: 24, in_resp: false, object: ids::UVERBS_OBJECT_CQ, access: Access::Read, when: &[Test { field: "qp_type", offset: 53, size: 1, op: TestOp::Ne, value: 10 }, Test { field: "qp_type", offset: 53, size: 1, op: TestOp::Ne, value: 9 }] },
            HandleField { path: "srq_handle", offset: 28, in_resp: false, object: ids::UVERBS_OBJECT_SRQ, access: Access::Read, when: &[Test { field: "qp_type", offset: 53, size: 1, op: TestOp::Ne, value: 10 }, Test { field: "qp_type", offset: 53, size: 1, op: TestOp::Ne, value: 9 }, Test { field: "is_srq", offset: 54, size: 1, op: TestOp::Ne, value: 0 }] },
            HandleField { path: "qp_handle", offset: 0, in_resp: true, object: ids::UVERBS_OBJECT_QP, access: Access::New, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_QUERY_QP", short_name: "QUERY_QP", number: 25, extended: false, write_cmd: 0x19, object: ids::UVERBS_OBJECT_QP, req: &IB_UVERBS_QUERY_QP, req_min: 16, resp: Some(&IB_UVERBS_QUERY_QP_RESP), resp_min: 128, min_enforced: true, takes_uhw: false, has_resp: true, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "qp_handle", offset: 8, in_resp: false, object: ids::UVERBS_OBJECT_QP, access: Access::Read, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_MODIFY_QP", short_name: "MODIFY_QP", number: 26, extended: false, write_cmd: 0x1a, object: ids::UVERBS_OBJECT_QP, req: &IB_UVERBS_MODIFY_QP, req_min: 112, resp: None, resp_min: 0, min_enforced: true, takes_uhw: false, has_resp: false, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "qp_handle", offset: 64, in_resp: false, object: ids::UVERBS_OBJECT_QP, access: Access::Read, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_DESTROY_QP", short_name: "DESTROY_QP", number: 27, extended: false, write_cmd: 0x1b, object: ids::UVERBS_OBJECT_QP, req: &IB_UVERBS_DESTROY_QP, req_min: 16, resp: Some(&IB_UVERBS_DESTROY_QP_RESP), resp_min: 4, min_enforced: true, takes_uhw: false, has_resp: true, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "qp_handle", offset: 8, in_resp: false, object: ids::UVERBS_OBJECT_QP, access: Access::Destroy, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_POST_SEND", short_name: "POST_SEND", number: 28, extended: false, write_cmd: 0x1c, object: ids::UVERBS_OBJECT_QP, req: &IB_UVERBS_POST_SEND, req_min: 24, resp: Some(&IB_UVERBS_POST_SEND_RESP), resp_min: 4, min_enforced: true, takes_uhw: false, has_resp: true, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::SendWrs, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "qp_handle", offset: 8, in_resp: false, object: ids::UVERBS_OBJECT_QP, access: Access::Read, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_POST_RECV", short_name: "POST_RECV", number: 29, extended: false, write_cmd: 0x1d, object: ids::UVERBS_OBJECT_QP, req: &IB_UVERBS_POST_RECV, req_min: 24, resp: Some(&IB_UVERBS_POST_RECV_RESP), resp_min: 4, min_enforced: true, takes_uhw: false, has_resp: true, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::RecvWrs, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "qp_handle", offset: 8, in_resp: false, object: ids::UVERBS_OBJECT_QP, access: Access::Read, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_ATTACH_MCAST", short_name: "ATTACH_MCAST", number: 30, extended: false, write_cmd: 0x1e, object: ids::UVERBS_OBJECT_QP, req: &IB_UVERBS_ATTACH_MCAST, req_min: 24, resp: None, resp_min: 0, min_enforced: true, takes_uhw: false, has_resp: false, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "qp_handle", offset: 16, in_resp: false, object: ids::UVERBS_OBJECT_QP, access: Access::Read, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_DETACH_MCAST", short_name: "DETACH_MCAST", number: 31, extended: false, write_cmd: 0x1f, object: ids::UVERBS_OBJECT_QP, req: &IB_UVERBS_DETACH_MCAST, req_min: 24, resp: None, resp_min: 0, min_enforced: true, takes_uhw: false, has_resp: false, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "qp_handle", offset: 16, in_resp: false, object: ids::UVERBS_OBJECT_QP, access: Access::Read, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_CREATE_SRQ", short_name: "CREATE_SRQ", number: 32, extended: false, write_cmd: 0x20, object: ids::UVERBS_OBJECT_SRQ, req: &IB_UVERBS_CREATE_SRQ, req_min: 32, resp: Some(&IB_UVERBS_CREATE_SRQ_RESP), resp_min: 16, min_enforced: true, takes_uhw: true, has_resp: true, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "pd_handle", offset: 16, in_resp: false, object: ids::UVERBS_OBJECT_PD, access: Access::Read, when: &[] },
            HandleField { path: "srq_handle", offset: 0, in_resp: true, object: ids::UVERBS_OBJECT_SRQ, access: Access::New, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_MODIFY_SRQ", short_name: "MODIFY_SRQ", number: 33, extended: false, write_cmd: 0x21, object: ids::UVERBS_OBJECT_SRQ, req: &IB_UVERBS_MODIFY_SRQ, req_min: 16, resp: None, resp_min: 0, min_enforced: true, takes_uhw: true, has_resp: false, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "srq_handle", offset: 0, in_resp: false, object: ids::UVERBS_OBJECT_SRQ, access: Access::Read, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_QUERY_SRQ", short_name: "QUERY_SRQ", number: 34, extended: false, write_cmd: 0x22, object: ids::UVERBS_OBJECT_SRQ, req: &IB_UVERBS_QUERY_SRQ, req_min: 16, resp: Some(&IB_UVERBS_QUERY_SRQ_RESP), resp_min: 16, min_enforced: true, takes_uhw: false, has_resp: true, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "srq_handle", offset: 8, in_resp: false, object: ids::UVERBS_OBJECT_SRQ, access: Access::Read, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_DESTROY_SRQ", short_name: "DESTROY_SRQ", number: 35, extended: false, write_cmd: 0x23, object: ids::UVERBS_OBJECT_SRQ, req: &IB_UVERBS_DESTROY_SRQ, req_min: 16, resp: Some(&IB_UVERBS_DESTROY_SRQ_RESP), resp_min: 4, min_enforced: true, takes_uhw: false, has_resp: true, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "srq_handle", offset: 8, in_resp: false, object: ids::UVERBS_OBJECT_SRQ, access: Access::Destroy, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_POST_SRQ_RECV", short_name: "POST_SRQ_RECV", number: 36, extended: false, write_cmd: 0x24, object: ids::UVERBS_OBJECT_SRQ, req: &IB_UVERBS_POST_SRQ_RECV, req_min: 24, resp: Some(&IB_UVERBS_POST_SRQ_RECV_RESP), resp_min: 4, min_enforced: true, takes_uhw: false, has_resp: true, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::RecvWrs, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "srq_handle", offset: 8, in_resp: false, object: ids::UVERBS_OBJECT_SRQ, access: Access::Read, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_OPEN_XRCD", short_name: "OPEN_XRCD", number: 37, extended: false, write_cmd: 0x25, object: ids::UVERBS_OBJECT_XRCD, req: &IB_UVERBS_OPEN_XRCD, req_min: 16, resp: Some(&IB_UVERBS_OPEN_XRCD_RESP), resp_min: 4, min_enforced: true, takes_uhw: true, has_resp: true, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "xrcd_handle", offset: 0, in_resp: true, object: ids::UVERBS_OBJECT_XRCD, access: Access::New, when: &[] },
        ],
        fds: &[
            FdField { path: "fd", offset: 8, in_resp: false, object: None, none: NoFd::MinusOne },
        ],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_CLOSE_XRCD", short_name: "CLOSE_XRCD", number: 38, extended: false, write_cmd: 0x26, object: ids::UVERBS_OBJECT_XRCD, req: &IB_UVERBS_CLOSE_XRCD, req_min: 4, resp: None, resp_min: 0, min_enforced: true, takes_uhw: false, has_resp: false, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "xrcd_handle", offset: 0, in_resp: false, object: ids::UVERBS_OBJECT_XRCD, access: Access::Destroy, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_CREATE_XSRQ", short_name: "CREATE_XSRQ", number: 39, extended: false, write_cmd: 0x27, object: ids::UVERBS_OBJECT_SRQ, req: &IB_UVERBS_CREATE_XSRQ, req_min: 48, resp: Some(&IB_UVERBS_CREATE_SRQ_RESP), resp_min: 16, min_enforced: true, takes_uhw: true, has_resp: true, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "pd_handle", offset: 20, in_resp: false, object: ids::UVERBS_OBJECT_PD, access: Access::Read, when: &[] },
            HandleField { path: "xrcd_handle", offset: 40, in_resp: false, object: ids::UVERBS_OBJECT_XRCD, access: Access::Read, when: &[Test { field: "srq_type", offset: 16, size: 4, op: TestOp::Eq, value: 1 }] },
            HandleField { path: "cq_handle", offset: 44, in_resp: false, object: ids::UVERBS_OBJECT_CQ, access: Access::Read, when: &[Test { field: "srq_type", offset: 16, size: 4, op: TestOp::Eq, value: 1 }] },
            HandleField { path: "cq_handle", offset: 44, in_resp: false, object: ids::UVERBS_OBJECT_CQ, access: Access::Read, when: &[Test { field: "srq_type", offset: 16, size: 4, op: TestOp::Eq, value: 2 }] },
            HandleField { path: "srq_handle", offset: 0, in_resp: true, object: ids::UVERBS_OBJECT_SRQ, access: Access::New, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_CMD_OPEN_QP", short_name: "OPEN_QP", number: 40, extended: false, write_cmd: 0x28, object: ids::UVERBS_OBJECT_XRCD, req: &IB_UVERBS_OPEN_QP, req_min: 32, resp: Some(&IB_UVERBS_CREATE_QP_RESP), resp_min: 32, min_enforced: true, takes_uhw: true, has_resp: true, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "pd_handle", offset: 16, in_resp: false, object: ids::UVERBS_OBJECT_XRCD, access: Access::Read, when: &[] },
            HandleField { path: "qp_handle", offset: 0, in_resp: true, object: ids::UVERBS_OBJECT_QP, access: Access::New, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_EX_CMD_QUERY_DEVICE", short_name: "EX_QUERY_DEVICE", number: 1, extended: true, write_cmd: 0x80000001, object: ids::UVERBS_OBJECT_DEVICE, req: &IB_UVERBS_EX_QUERY_DEVICE, req_min: 8, resp: Some(&IB_UVERBS_EX_QUERY_DEVICE_RESP), resp_min: 184, min_enforced: false, takes_uhw: true, has_resp: false, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_EX_CMD_CREATE_CQ", short_name: "EX_CREATE_CQ", number: 18, extended: true, write_cmd: 0x80000012, object: ids::UVERBS_OBJECT_CQ, req: &IB_UVERBS_EX_CREATE_CQ, req_min: 32, resp: Some(&IB_UVERBS_EX_CREATE_CQ_RESP), resp_min: 16, min_enforced: false, takes_uhw: true, has_resp: false, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "base.cq_handle", offset: 0, in_resp: true, object: ids::UVERBS_OBJECT_CQ, access: Access::New, when: &[] },
        ],
        fds: &[
            FdField { path: "comp_channel", offset: 16, in_resp: false, object: Some(ids::UVERBS_OBJECT_COMP_CHANNEL), none: NoFd::Negative },
        ],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_EX_CMD_CREATE_QP", short_name: "EX_CREATE_QP", number: 24, extended: true, write_cmd: 0x80000018, object: ids::UVERBS_OBJECT_QP, req: &IB_UVERBS_EX_CREATE_QP, req_min: 52, resp: Some(&IB_UVERBS_EX_CREATE_QP_RESP), resp_min: 40, min_enforced: false, takes_uhw: true, has_resp: false, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "CAP_NET_RAW for RAW_PACKET and for create_flags SOURCE_QPN",
        handles: &[
            HandleField { path: "pd_handle", offset: 8, in_resp: false, object: ids::UVERBS_OBJECT_XRCD, access: Access::Read, when: &[Test { field: "qp_type", offset: 45, size: 1, op: TestOp::Eq, value: 10 }] },
            HandleField { path: "pd_handle", offset: 8, in_resp: false, object: ids::UVERBS_OBJECT_PD, access: Access::Read, when: &[Test { field: "qp_type", offset: 45, size: 1, op: TestOp::Ne, value: 10 }] },
            HandleField { path: "send_cq_handle", offset: 12, in_resp: false, object: ids::UVERBS_OBJECT_CQ, access: Access::Read, when: &[Test { field: "qp_type", offset: 45, size: 1, op: TestOp::Ne, value: 10 }, Test { field: "comp_mask", offset: 48, size: 4, op: TestOp::NoBit, value: 1 }] },
            HandleField { path: "send_cq_handle", offset: 12, in_resp: false, object: ids::UVERBS_OBJECT_CQ, access: Access::Read, when: &[Test { field: "qp_type", offset: 45, size: 1, op: TestOp::Ne, value: 10 }, Test { field: "comp_mask", offset: 48, size: 4, op: TestOp::AnyBit, value: 1 }, Test { field: "max_send_wr", offset: 24, size: 4, op: TestOp::Ne, value: 0 }] },
            HandleField { path: "recv_cq_handle", offset: 16, in_resp: false, object: ids::UVERBS_OBJECT_CQ, access: Access::Read, when: &[Test { field: "qp_type", offset: 45, size: 1, op: TestOp::Ne, value: 10 }, Test { field: "qp_type", offset: 45, size: 1, op: TestOp::Ne, value: 9 }, Test { field: "comp_mask", offset: 48, size: 4, op: TestOp::NoBit, value: 1 }] },
            HandleField { path: "srq_handle", offset: 20, in_resp: false, object: ids::UVERBS_OBJECT_SRQ, access: Access::Read, when: &[Test { field: "qp_type", offset: 45, size: 1, op: TestOp::Ne, value: 10 }, Test { field: "qp_type", offset: 45, size: 1, op: TestOp::Ne, value: 9 }, Test { field: "is_srq", offset: 46, size: 1, op: TestOp::Ne, value: 0 }] },
            HandleField { path: "rwq_ind_tbl_handle", offset: 56, in_resp: false, object: ids::UVERBS_OBJECT_RWQ_IND_TBL, access: Access::Read, when: &[Test { field: "comp_mask", offset: 48, size: 4, op: TestOp::AnyBit, value: 1 }] },
            HandleField { path: "base.qp_handle", offset: 0, in_resp: true, object: ids::UVERBS_OBJECT_QP, access: Access::New, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_EX_CMD_MODIFY_QP", short_name: "EX_MODIFY_QP", number: 26, extended: true, write_cmd: 0x8000001a, object: ids::UVERBS_OBJECT_QP, req: &IB_UVERBS_EX_MODIFY_QP, req_min: 112, resp: Some(&IB_UVERBS_EX_MODIFY_QP_RESP), resp_min: 8, min_enforced: false, takes_uhw: true, has_resp: false, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "base.qp_handle", offset: 64, in_resp: false, object: ids::UVERBS_OBJECT_QP, access: Access::Read, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_EX_CMD_CREATE_FLOW", short_name: "EX_CREATE_FLOW", number: 50, extended: true, write_cmd: 0x80000032, object: ids::UVERBS_OBJECT_FLOW, req: &IB_UVERBS_CREATE_FLOW, req_min: 24, resp: Some(&IB_UVERBS_CREATE_FLOW_RESP), resp_min: 8, min_enforced: false, takes_uhw: true, has_resp: false, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::FlowSpecs, trailing_wcs: false, cap: "CAP_NET_RAW",
        handles: &[
            HandleField { path: "qp_handle", offset: 4, in_resp: false, object: ids::UVERBS_OBJECT_QP, access: Access::Read, when: &[] },
            HandleField { path: "flow_handle", offset: 4, in_resp: true, object: ids::UVERBS_OBJECT_FLOW, access: Access::New, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_EX_CMD_DESTROY_FLOW", short_name: "EX_DESTROY_FLOW", number: 51, extended: true, write_cmd: 0x80000033, object: ids::UVERBS_OBJECT_FLOW, req: &IB_UVERBS_DESTROY_FLOW, req_min: 8, resp: None, resp_min: 0, min_enforced: false, takes_uhw: true, has_resp: false, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "flow_handle", offset: 4, in_resp: false, object: ids::UVERBS_OBJECT_FLOW, access: Access::Destroy, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_EX_CMD_CREATE_WQ", short_name: "EX_CREATE_WQ", number: 52, extended: true, write_cmd: 0x80000034, object: ids::UVERBS_OBJECT_WQ, req: &IB_UVERBS_EX_CREATE_WQ, req_min: 32, resp: Some(&IB_UVERBS_EX_CREATE_WQ_RESP), resp_min: 24, min_enforced: false, takes_uhw: true, has_resp: false, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "pd_handle", offset: 16, in_resp: false, object: ids::UVERBS_OBJECT_PD, access: Access::Read, when: &[] },
            HandleField { path: "cq_handle", offset: 20, in_resp: false, object: ids::UVERBS_OBJECT_CQ, access: Access::Read, when: &[] },
            HandleField { path: "wq_handle", offset: 8, in_resp: true, object: ids::UVERBS_OBJECT_WQ, access: Access::New, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_EX_CMD_MODIFY_WQ", short_name: "EX_MODIFY_WQ", number: 53, extended: true, write_cmd: 0x80000035, object: ids::UVERBS_OBJECT_WQ, req: &IB_UVERBS_EX_MODIFY_WQ, req_min: 16, resp: None, resp_min: 0, min_enforced: false, takes_uhw: true, has_resp: false, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "wq_handle", offset: 4, in_resp: false, object: ids::UVERBS_OBJECT_WQ, access: Access::Read, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_EX_CMD_DESTROY_WQ", short_name: "EX_DESTROY_WQ", number: 54, extended: true, write_cmd: 0x80000036, object: ids::UVERBS_OBJECT_WQ, req: &IB_UVERBS_EX_DESTROY_WQ, req_min: 8, resp: Some(&IB_UVERBS_EX_DESTROY_WQ_RESP), resp_min: 16, min_enforced: false, takes_uhw: true, has_resp: false, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "wq_handle", offset: 4, in_resp: false, object: ids::UVERBS_OBJECT_WQ, access: Access::Destroy, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL", short_name: "EX_CREATE_RWQ_IND_TBL", number: 55, extended: true, write_cmd: 0x80000037, object: ids::UVERBS_OBJECT_RWQ_IND_TBL, req: &IB_UVERBS_EX_CREATE_RWQ_IND_TABLE, req_min: 8, resp: Some(&IB_UVERBS_EX_CREATE_RWQ_IND_TABLE_RESP), resp_min: 16, min_enforced: false, takes_uhw: true, has_resp: false, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::WqHandles, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "ind_tbl_handle", offset: 8, in_resp: true, object: ids::UVERBS_OBJECT_RWQ_IND_TBL, access: Access::New, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_EX_CMD_DESTROY_RWQ_IND_TBL", short_name: "EX_DESTROY_RWQ_IND_TBL", number: 56, extended: true, write_cmd: 0x80000038, object: ids::UVERBS_OBJECT_RWQ_IND_TBL, req: &IB_UVERBS_EX_DESTROY_RWQ_IND_TABLE, req_min: 8, resp: None, resp_min: 0, min_enforced: false, takes_uhw: true, has_resp: false, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "ind_tbl_handle", offset: 4, in_resp: false, object: ids::UVERBS_OBJECT_RWQ_IND_TBL, access: Access::Destroy, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
    LegacySpec { name: "IB_USER_VERBS_EX_CMD_MODIFY_CQ", short_name: "EX_MODIFY_CQ", number: 57, extended: true, write_cmd: 0x80000039, object: ids::UVERBS_OBJECT_CQ, req: &IB_UVERBS_EX_MODIFY_CQ, req_min: 16, resp: None, resp_min: 0, min_enforced: false, takes_uhw: true, has_resp: false, creates_ucontext: false, kernels: ALL, trailing_in: Trailing::None, trailing_wcs: false, cap: "",
        handles: &[
            HandleField { path: "cq_handle", offset: 0, in_resp: false, object: ids::UVERBS_OBJECT_CQ, access: Access::Read, when: &[] },
        ],
        fds: &[],
        user_vas: &[],
    },
];

pub(crate) static UHW: &[UhwSpec] = &[
    UhwSpec { drivers: &[DriverId::MLX5], operations: &["CREATE_CQ"], name: "mlx5_ib_create_cq", size: 32, length_rule: "buf: entries*cqe_size where entries=roundup_pow2(cqe+1) (mlx5/cq.c create_cq_user); db: the one page containing db_addr (mlx5/doorbell.c)", fields: &[
        UhwField { name: "buf_addr", offset: 0, size: 8, role: UhwRole::VaPin, note: "va_pin" },
        UhwField { name: "db_addr", offset: 8, size: 8, role: UhwRole::VaPinPage, note: "va_pin_page" },
        UhwField { name: "cqe_size", offset: 16, size: 4, role: UhwRole::Len, note: "len_input" },
    ], plain: &[
        UhwField { name: "cqe_comp_en", offset: 20, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "cqe_comp_res_format", offset: 21, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "flags", offset: 22, size: 2, role: UhwRole::Plain, note: "" },
        UhwField { name: "uar_page_index", offset: 24, size: 2, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved0", offset: 26, size: 2, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved1", offset: 28, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::MLX5], operations: &["RESIZE_CQ"], name: "mlx5_ib_resize_cq", size: 16, length_rule: "entries*cqe_size", fields: &[
        UhwField { name: "buf_addr", offset: 0, size: 8, role: UhwRole::VaPin, note: "va_pin" },
        UhwField { name: "cqe_size", offset: 8, size: 2, role: UhwRole::Len, note: "len_input" },
    ], plain: &[
        UhwField { name: "reserved0", offset: 10, size: 2, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved1", offset: 12, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::MLX5], operations: &["CREATE_SRQ"], name: "mlx5_ib_create_srq", size: 32, length_rule: "buf size computed by kernel from max_wr/max_sge (mlx5/srq.c create_srq_user); db one page", fields: &[
        UhwField { name: "buf_addr", offset: 0, size: 8, role: UhwRole::VaPin, note: "va_pin" },
        UhwField { name: "db_addr", offset: 8, size: 8, role: UhwRole::VaPinPage, note: "va_pin_page" },
        UhwField { name: "uidx", offset: 24, size: 4, role: UhwRole::Other, note: "opaque" },
    ], plain: &[
        UhwField { name: "flags", offset: 16, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved0", offset: 20, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved1", offset: 28, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::MLX5], operations: &["CREATE_QP"], name: "mlx5_ib_create_qp", size: 56, length_rule: "RQ bytes rq_wqe_count<<rq_wqe_shift + SQ bytes sq_wqe_count<<6 at buf_addr; raw packet: RQ at buf_addr, SQ at sq_buf_addr; buf_addr==0 => no umem", fields: &[
        UhwField { name: "buf_addr", offset: 0, size: 8, role: UhwRole::VaPin, note: "va_pin" },
        UhwField { name: "db_addr", offset: 8, size: 8, role: UhwRole::VaPinPage, note: "va_pin_page" },
        UhwField { name: "sq_wqe_count", offset: 16, size: 4, role: UhwRole::Len, note: "len_input" },
        UhwField { name: "rq_wqe_count", offset: 20, size: 4, role: UhwRole::Len, note: "len_input" },
        UhwField { name: "rq_wqe_shift", offset: 24, size: 4, role: UhwRole::Len, note: "len_input" },
        UhwField { name: "sq_buf_addr", offset: 40, size: 8, role: UhwRole::VaPin, note: "va_pin(raw packet QP / UNDERLAY only; union with access_key)" },
    ], plain: &[
        UhwField { name: "flags", offset: 28, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "uidx", offset: 32, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "bfreg_index", offset: 36, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "access_key", offset: 40, size: 8, role: UhwRole::Plain, note: "" },
        UhwField { name: "ece_options", offset: 48, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "dci_streams", offset: 52, size: 2, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved", offset: 54, size: 2, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::MLX5], operations: &["CREATE_WQ"], name: "mlx5_ib_create_wq", size: 48, length_rule: "rq_wqe_count<<rq_wqe_shift", fields: &[
        UhwField { name: "buf_addr", offset: 0, size: 8, role: UhwRole::VaPin, note: "va_pin" },
        UhwField { name: "db_addr", offset: 8, size: 8, role: UhwRole::VaPinPage, note: "va_pin_page" },
        UhwField { name: "rq_wqe_count", offset: 16, size: 4, role: UhwRole::Len, note: "len_input" },
        UhwField { name: "rq_wqe_shift", offset: 20, size: 4, role: UhwRole::Len, note: "len_input" },
    ], plain: &[
        UhwField { name: "user_index", offset: 24, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "flags", offset: 28, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "comp_mask", offset: 32, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "single_stride_log_num_of_bytes", offset: 36, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "single_wqe_log_num_of_strides", offset: 40, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "two_byte_shift_en", offset: 44, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::MLX5], operations: &["CREATE_FLOW"], name: "mlx5_ib_flow_counters_data", size: 16, length_rule: "struct mlx5_ib_create_flow{ncounters_data,...; data[]} each entry's counters_data -> ncounters * sizeof(struct mlx5_ib_flow_counters_desc)(8) read by copy_from_user in mlx5/counters.c", fields: &[
        UhwField { name: "counters_data", offset: 0, size: 8, role: UhwRole::NestedIn, note: "nested_user_pointer_read" },
        UhwField { name: "ncounters", offset: 8, size: 4, role: UhwRole::Len, note: "len_input" },
    ], plain: &[
        UhwField { name: "reserved", offset: 12, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::MLX4], operations: &["CREATE_CQ"], name: "mlx4_ib_create_cq", size: 16, length_rule: "entries*cqe_size", fields: &[
        UhwField { name: "buf_addr", offset: 0, size: 8, role: UhwRole::VaPin, note: "va_pin (and, with SW_CQ_INIT, copy_to_user of 0xcc)" },
        UhwField { name: "db_addr", offset: 8, size: 8, role: UhwRole::VaPinPage, note: "va_pin_page" },
    ], plain: &[
    ] },
    UhwSpec { drivers: &[DriverId::MLX4], operations: &["RESIZE_CQ"], name: "mlx4_ib_resize_cq", size: 8, length_rule: "entries*cqe_size", fields: &[
        UhwField { name: "buf_addr", offset: 0, size: 8, role: UhwRole::VaPin, note: "va_pin" },
    ], plain: &[
    ] },
    UhwSpec { drivers: &[DriverId::MLX4], operations: &["CREATE_SRQ"], name: "mlx4_ib_create_srq", size: 16, length_rule: "kernel computed", fields: &[
        UhwField { name: "buf_addr", offset: 0, size: 8, role: UhwRole::VaPin, note: "va_pin" },
        UhwField { name: "db_addr", offset: 8, size: 8, role: UhwRole::VaPinPage, note: "va_pin_page" },
    ], plain: &[
    ] },
    UhwSpec { drivers: &[DriverId::MLX4], operations: &["CREATE_QP"], name: "mlx4_ib_create_qp", size: 24, length_rule: "rq from caps + sq (1<<log_sq_bb_count)<<log_sq_stride", fields: &[
        UhwField { name: "buf_addr", offset: 0, size: 8, role: UhwRole::VaPin, note: "va_pin" },
        UhwField { name: "db_addr", offset: 8, size: 8, role: UhwRole::VaPinPage, note: "va_pin_page (only if RQ)" },
        UhwField { name: "log_sq_bb_count", offset: 16, size: 1, role: UhwRole::Len, note: "len_input" },
        UhwField { name: "log_sq_stride", offset: 17, size: 1, role: UhwRole::Len, note: "len_input" },
    ], plain: &[
        UhwField { name: "sq_no_prefetch", offset: 18, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved", offset: 19, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "inl_recv_sz", offset: 20, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::MLX4], operations: &["CREATE_WQ"], name: "mlx4_ib_create_wq", size: 24, length_rule: "from max_wr/max_sge", fields: &[
        UhwField { name: "buf_addr", offset: 0, size: 8, role: UhwRole::VaPin, note: "va_pin" },
        UhwField { name: "db_addr", offset: 8, size: 8, role: UhwRole::VaPinPage, note: "va_pin_page" },
    ], plain: &[
        UhwField { name: "log_range_size", offset: 16, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved", offset: 17, size: 3, role: UhwRole::Plain, note: "" },
        UhwField { name: "comp_mask", offset: 20, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::MANA], operations: &["CREATE_CQ"], name: "mana_ib_create_cq", size: 16, length_rule: "cqe*64 (COMP_ENTRY_SIZE)", fields: &[
        UhwField { name: "buf_addr", offset: 0, size: 8, role: UhwRole::VaPin, note: "va_pin" },
    ], plain: &[
        UhwField { name: "flags", offset: 8, size: 2, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved0", offset: 10, size: 2, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved1", offset: 12, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::MANA], operations: &["CREATE_QP"], name: "mana_ib_create_qp", size: 16, length_rule: "sq_buf_size", fields: &[
        UhwField { name: "sq_buf_addr", offset: 0, size: 8, role: UhwRole::VaPin, note: "va_pin" },
        UhwField { name: "sq_buf_size", offset: 8, size: 4, role: UhwRole::Len, note: "len_input" },
    ], plain: &[
        UhwField { name: "port", offset: 12, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::MANA], operations: &["CREATE_QP"], name: "mana_ib_create_rc_qp", size: 48, length_rule: "queue_size[i]", fields: &[
        UhwField { name: "queue_buf", offset: 0, size: 32, role: UhwRole::VaPin, note: "va_pin[4]" },
        UhwField { name: "queue_size", offset: 32, size: 16, role: UhwRole::Len, note: "len_input[4]" },
    ], plain: &[
    ] },
    UhwSpec { drivers: &[DriverId::MANA], operations: &["CREATE_WQ"], name: "mana_ib_create_wq", size: 16, length_rule: "wq_buf_size", fields: &[
        UhwField { name: "wq_buf_addr", offset: 0, size: 8, role: UhwRole::VaPin, note: "va_pin" },
        UhwField { name: "wq_buf_size", offset: 8, size: 4, role: UhwRole::Len, note: "len_input" },
    ], plain: &[
        UhwField { name: "reserved", offset: 12, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::HNS], operations: &["CREATE_CQ"], name: "hns_roce_ib_create_cq", size: 24, length_rule: "kernel computed from cqe count", fields: &[
        UhwField { name: "buf_addr", offset: 0, size: 8, role: UhwRole::VaPin, note: "va_pin" },
        UhwField { name: "db_addr", offset: 8, size: 8, role: UhwRole::VaPinPage, note: "va_pin_page" },
    ], plain: &[
        UhwField { name: "cqe_size", offset: 16, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved", offset: 20, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::HNS], operations: &["CREATE_SRQ"], name: "hns_roce_ib_create_srq", size: 32, length_rule: "kernel computed", fields: &[
        UhwField { name: "buf_addr", offset: 0, size: 8, role: UhwRole::VaPin, note: "va_pin" },
        UhwField { name: "db_addr", offset: 8, size: 8, role: UhwRole::VaPinPage, note: "va_pin_page" },
        UhwField { name: "que_addr", offset: 16, size: 8, role: UhwRole::VaPin, note: "va_pin" },
    ], plain: &[
        UhwField { name: "req_cap_flags", offset: 24, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved", offset: 28, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::HNS], operations: &["CREATE_QP"], name: "hns_roce_ib_create_qp", size: 56, length_rule: "kernel computed + log_sq_*", fields: &[
        UhwField { name: "buf_addr", offset: 0, size: 8, role: UhwRole::VaPin, note: "va_pin" },
        UhwField { name: "db_addr", offset: 8, size: 8, role: UhwRole::VaPinPage, note: "va_pin_page" },
        UhwField { name: "sdb_addr", offset: 24, size: 8, role: UhwRole::VaPinPage, note: "va_pin_page" },
        UhwField { name: "log_sq_bb_count", offset: 16, size: 1, role: UhwRole::Len, note: "len_input" },
        UhwField { name: "log_sq_stride", offset: 17, size: 1, role: UhwRole::Len, note: "len_input" },
    ], plain: &[
        UhwField { name: "sq_no_prefetch", offset: 18, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved", offset: 19, size: 5, role: UhwRole::Plain, note: "" },
        UhwField { name: "comp_mask", offset: 32, size: 8, role: UhwRole::Plain, note: "" },
        UhwField { name: "create_flags", offset: 40, size: 8, role: UhwRole::Plain, note: "" },
        UhwField { name: "cong_type_flags", offset: 48, size: 8, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::ERDMA], operations: &["CREATE_CQ"], name: "erdma_ureq_create_cq", size: 24, length_rule: "qbuf_len", fields: &[
        UhwField { name: "db_record_va", offset: 0, size: 8, role: UhwRole::VaPinPage, note: "va_pin_page" },
        UhwField { name: "qbuf_va", offset: 8, size: 8, role: UhwRole::VaPin, note: "va_pin" },
        UhwField { name: "qbuf_len", offset: 16, size: 4, role: UhwRole::Len, note: "len_input" },
    ], plain: &[
        UhwField { name: "rsvd0", offset: 20, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::ERDMA], operations: &["CREATE_QP"], name: "erdma_ureq_create_qp", size: 24, length_rule: "qbuf_len", fields: &[
        UhwField { name: "db_record_va", offset: 0, size: 8, role: UhwRole::VaPinPage, note: "va_pin_page" },
        UhwField { name: "qbuf_va", offset: 8, size: 8, role: UhwRole::VaPin, note: "va_pin" },
        UhwField { name: "qbuf_len", offset: 16, size: 4, role: UhwRole::Len, note: "len_input" },
    ], plain: &[
        UhwField { name: "rsvd0", offset: 20, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::QEDR], operations: &["CREATE_CQ"], name: "qedr_create_cq_ureq", size: 16, length_rule: "len", fields: &[
        UhwField { name: "addr", offset: 0, size: 8, role: UhwRole::VaPin, note: "va_pin" },
        UhwField { name: "len", offset: 8, size: 8, role: UhwRole::Len, note: "len_input" },
    ], plain: &[
    ] },
    UhwSpec { drivers: &[DriverId::QEDR], operations: &["CREATE_QP"], name: "qedr_create_qp_ureq", size: 40, length_rule: "sq_len/rq_len", fields: &[
        UhwField { name: "qp_handle_hi", offset: 0, size: 4, role: UhwRole::Other, note: "opaque" },
        UhwField { name: "sq_addr", offset: 8, size: 8, role: UhwRole::VaPin, note: "va_pin" },
        UhwField { name: "sq_len", offset: 16, size: 8, role: UhwRole::Len, note: "len_input" },
        UhwField { name: "rq_addr", offset: 24, size: 8, role: UhwRole::VaPin, note: "va_pin" },
        UhwField { name: "rq_len", offset: 32, size: 8, role: UhwRole::Len, note: "len_input" },
    ], plain: &[
        UhwField { name: "qp_handle_lo", offset: 4, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::QEDR], operations: &["CREATE_SRQ"], name: "qedr_create_srq_ureq", size: 24, length_rule: "srq_len", fields: &[
        UhwField { name: "prod_pair_addr", offset: 0, size: 8, role: UhwRole::VaPin, note: "va_pin (sizeof(struct rdma_srq_producers))" },
        UhwField { name: "srq_addr", offset: 8, size: 8, role: UhwRole::VaPin, note: "va_pin" },
        UhwField { name: "srq_len", offset: 16, size: 8, role: UhwRole::Len, note: "len_input" },
    ], plain: &[
    ] },
    UhwSpec { drivers: &[DriverId::VMW_PVRDMA], operations: &["CREATE_CQ"], name: "pvrdma_create_cq", size: 16, length_rule: "buf_size", fields: &[
        UhwField { name: "buf_addr", offset: 0, size: 8, role: UhwRole::VaPin, note: "va_pin" },
        UhwField { name: "buf_size", offset: 8, size: 4, role: UhwRole::Len, note: "len_input" },
    ], plain: &[
        UhwField { name: "reserved", offset: 12, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::VMW_PVRDMA], operations: &["CREATE_SRQ"], name: "pvrdma_create_srq", size: 16, length_rule: "buf_size", fields: &[
        UhwField { name: "buf_addr", offset: 0, size: 8, role: UhwRole::VaPin, note: "va_pin" },
        UhwField { name: "buf_size", offset: 8, size: 4, role: UhwRole::Len, note: "len_input" },
    ], plain: &[
        UhwField { name: "reserved", offset: 12, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::VMW_PVRDMA], operations: &["CREATE_QP"], name: "pvrdma_create_qp", size: 32, length_rule: "rbuf_size/sbuf_size", fields: &[
        UhwField { name: "rbuf_addr", offset: 0, size: 8, role: UhwRole::VaPin, note: "va_pin" },
        UhwField { name: "sbuf_addr", offset: 8, size: 8, role: UhwRole::VaPin, note: "va_pin" },
        UhwField { name: "rbuf_size", offset: 16, size: 4, role: UhwRole::Len, note: "len_input" },
        UhwField { name: "sbuf_size", offset: 20, size: 4, role: UhwRole::Len, note: "len_input" },
        UhwField { name: "qp_addr", offset: 24, size: 8, role: UhwRole::Other, note: "unused by kernel" },
    ], plain: &[
    ] },
    UhwSpec { drivers: &[DriverId::IONIC], operations: &["CREATE_CQ"], name: "ionic_cq_req", size: 40, length_rule: "qdesc.size", fields: &[
        UhwField { name: "cq", offset: 0, size: 32, role: UhwRole::VaPin, note: "va_pin: struct ionic_qdesc[2] {u64 addr;u32 size;u16 mask;u8 depth_log2;u8 stride_log2}" },
    ], plain: &[
        UhwField { name: "udma_mask", offset: 32, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "rsvd", offset: 33, size: 7, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::IONIC], operations: &["CREATE_QP"], name: "ionic_qp_req", size: 40, length_rule: "qdesc.size", fields: &[
        UhwField { name: "sq", offset: 0, size: 16, role: UhwRole::VaPin, note: "va_pin ionic_qdesc" },
        UhwField { name: "rq", offset: 16, size: 16, role: UhwRole::VaPin, note: "va_pin ionic_qdesc" },
    ], plain: &[
        UhwField { name: "sq_spec", offset: 32, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "rq_spec", offset: 33, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "sq_cmb", offset: 34, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "rq_cmb", offset: 35, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "udma_mask", offset: 36, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "rsvd", offset: 37, size: 3, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::MTHCA], operations: &["CREATE_CQ"], name: "mthca_create_cq", size: 32, length_rule: "1 page each (mthca_map_user_db)", fields: &[
        UhwField { name: "lkey", offset: 0, size: 4, role: UhwRole::Other, note: "mr key of earlier REG_MR" },
        UhwField { name: "arm_db_page", offset: 8, size: 8, role: UhwRole::VaPinPage, note: "va_pin_page" },
        UhwField { name: "set_db_page", offset: 16, size: 8, role: UhwRole::VaPinPage, note: "va_pin_page" },
    ], plain: &[
        UhwField { name: "pdn", offset: 4, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "arm_db_index", offset: 24, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "set_db_index", offset: 28, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::MTHCA], operations: &["CREATE_SRQ"], name: "mthca_create_srq", size: 16, length_rule: "1 page", fields: &[
        UhwField { name: "lkey", offset: 0, size: 4, role: UhwRole::Other, note: "mr key" },
        UhwField { name: "db_page", offset: 8, size: 8, role: UhwRole::VaPinPage, note: "va_pin_page" },
    ], plain: &[
        UhwField { name: "db_index", offset: 4, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::MTHCA], operations: &["CREATE_QP"], name: "mthca_create_qp", size: 32, length_rule: "1 page each", fields: &[
        UhwField { name: "lkey", offset: 0, size: 4, role: UhwRole::Other, note: "mr key" },
        UhwField { name: "sq_db_page", offset: 8, size: 8, role: UhwRole::VaPinPage, note: "va_pin_page" },
        UhwField { name: "rq_db_page", offset: 16, size: 8, role: UhwRole::VaPinPage, note: "va_pin_page" },
    ], plain: &[
        UhwField { name: "reserved", offset: 4, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "sq_db_index", offset: 24, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "rq_db_index", offset: 28, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::BNXT_RE], operations: &["CREATE_CQ"], name: "bnxt_re_cq_req", size: 24, length_rule: "entries*sizeof(struct cq_base)=32", fields: &[
        UhwField { name: "cq_va", offset: 0, size: 8, role: UhwRole::VaPin, note: "va_pin" },
        UhwField { name: "cq_handle", offset: 8, size: 8, role: UhwRole::Other, note: "opaque" },
    ], plain: &[
        UhwField { name: "comp_mask", offset: 16, size: 8, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::BNXT_RE], operations: &["RESIZE_CQ"], name: "bnxt_re_resize_cq_req", size: 8, length_rule: "entries*32", fields: &[
        UhwField { name: "cq_va", offset: 0, size: 8, role: UhwRole::VaPin, note: "va_pin" },
    ], plain: &[
    ] },
    UhwSpec { drivers: &[DriverId::BNXT_RE], operations: &["CREATE_QP"], name: "bnxt_re_qp_req", size: 40, length_rule: "kernel computed, page aligned (bnxt_re_init_user_qp)", fields: &[
        UhwField { name: "qpsva", offset: 0, size: 8, role: UhwRole::VaPin, note: "va_pin" },
        UhwField { name: "qprva", offset: 8, size: 8, role: UhwRole::VaPin, note: "va_pin" },
        UhwField { name: "qp_handle", offset: 16, size: 8, role: UhwRole::Other, note: "opaque" },
    ], plain: &[
        UhwField { name: "comp_mask", offset: 24, size: 8, role: UhwRole::Plain, note: "" },
        UhwField { name: "sq_slots", offset: 32, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "sq_npsn", offset: 36, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::BNXT_RE], operations: &["CREATE_SRQ"], name: "bnxt_re_srq_req", size: 16, length_rule: "kernel computed", fields: &[
        UhwField { name: "srqva", offset: 0, size: 8, role: UhwRole::VaPin, note: "va_pin" },
        UhwField { name: "srq_handle", offset: 8, size: 8, role: UhwRole::Other, note: "opaque" },
    ], plain: &[
    ] },
    UhwSpec { drivers: &[DriverId::IRDMA], operations: &["REG_MR"], name: "irdma_mem_reg_req", size: 8, length_rule: "pinned range is the core REG_MR start/length", fields: &[
        UhwField { name: "reg_type", offset: 0, size: 2, role: UhwRole::Other, note: "kind: 0 MEM 1 QP 2 CQ 3 SRQ" },
        UhwField { name: "cq_pages", offset: 2, size: 2, role: UhwRole::Len, note: "len_input" },
        UhwField { name: "rq_pages", offset: 4, size: 2, role: UhwRole::Len, note: "len_input" },
        UhwField { name: "sq_pages", offset: 6, size: 2, role: UhwRole::Len, note: "len_input" },
    ], plain: &[
    ] },
    UhwSpec { drivers: &[DriverId::IRDMA], operations: &["CREATE_QP"], name: "irdma_create_qp_req", size: 16, length_rule: "", fields: &[
        UhwField { name: "user_wqe_bufs", offset: 0, size: 8, role: UhwRole::VaKey, note: "va_lookup_key(hca_va of earlier REG_MR reg_type QP); not dereferenced" },
        UhwField { name: "user_compl_ctx", offset: 8, size: 8, role: UhwRole::Other, note: "opaque" },
    ], plain: &[
    ] },
    UhwSpec { drivers: &[DriverId::IRDMA], operations: &["CREATE_CQ"], name: "irdma_create_cq_req", size: 16, length_rule: "", fields: &[
        UhwField { name: "user_cq_buf", offset: 0, size: 8, role: UhwRole::VaKey, note: "va_lookup_key" },
        UhwField { name: "user_shadow_area", offset: 8, size: 8, role: UhwRole::VaKey, note: "va_lookup_key" },
    ], plain: &[
    ] },
    UhwSpec { drivers: &[DriverId::IRDMA], operations: &["CREATE_SRQ"], name: "irdma_create_srq_req", size: 16, length_rule: "", fields: &[
        UhwField { name: "user_srq_buf", offset: 0, size: 8, role: UhwRole::VaKey, note: "va_lookup_key" },
        UhwField { name: "user_shadow_area", offset: 8, size: 8, role: UhwRole::VaKey, note: "va_lookup_key" },
    ], plain: &[
    ] },
    UhwSpec { drivers: &[DriverId::IRDMA], operations: &["RESIZE_CQ"], name: "irdma_resize_cq_req", size: 8, length_rule: "", fields: &[
        UhwField { name: "user_cq_buffer", offset: 0, size: 8, role: UhwRole::VaKey, note: "va_lookup_key" },
    ], plain: &[
    ] },
    UhwSpec { drivers: &[DriverId::RXE], operations: &["MODIFY_SRQ"], name: "rxe_modify_srq_cmd", size: 8, length_rule: "16 bytes copy_to_user in rxe_queue.c do_mmap_info", fields: &[
        UhwField { name: "mmap_info_addr", offset: 0, size: 8, role: UhwRole::NestedOut, note: "nested_user_pointer_WRITTEN (struct mminfo, 16 bytes)" },
    ], plain: &[
    ] },
    UhwSpec { drivers: &[DriverId::HFI1, DriverId::QIB], operations: &["MODIFY_SRQ"], name: "(raw) u64 offset_addr", size: 8, length_rule: "8", fields: &[
        UhwField { name: "offset_addr", offset: 0, size: 8, role: UhwRole::NestedOut, note: "nested_user_pointer_WRITTEN (8 bytes)" },
    ], plain: &[
    ] },
    UhwSpec { drivers: &[DriverId::USNIC], operations: &["CREATE_QP"], name: "usnic_ib_create_qp_cmd", size: 8, length_rule: "", fields: &[
        UhwField { name: "spec.trans_type", offset: 0, size: 4, role: UhwRole::Other, note: "kind" },
        UhwField { name: "spec.udp.sock_fd", offset: 4, size: 4, role: UhwRole::Fd, note: "FD NUMBER (sockfd_lookup in current fd table) when trans_type==UDP" },
    ], plain: &[
    ] },
    UhwSpec { drivers: &[DriverId::MLX5], operations: &["GET_CONTEXT"], name: "mlx5_ib_alloc_ucontext_req", size: 8, length_rule: "", fields: &[
    ], plain: &[
        UhwField { name: "total_num_bfregs", offset: 0, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "num_low_latency_bfregs", offset: 4, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::MLX5], operations: &["GET_CONTEXT"], name: "mlx5_ib_alloc_ucontext_req_v2", size: 32, length_rule: "", fields: &[
    ], plain: &[
        UhwField { name: "total_num_bfregs", offset: 0, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "num_low_latency_bfregs", offset: 4, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "flags", offset: 8, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "comp_mask", offset: 12, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "max_cqe_version", offset: 16, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved0", offset: 17, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved1", offset: 18, size: 2, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved2", offset: 20, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "lib_caps", offset: 24, size: 8, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::MLX5], operations: &["ALLOC_MW"], name: "mlx5_ib_alloc_mw", size: 8, length_rule: "", fields: &[
    ], plain: &[
        UhwField { name: "comp_mask", offset: 0, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "num_klms", offset: 4, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved1", offset: 5, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved2", offset: 6, size: 2, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::MLX5], operations: &["CREATE_QP"], name: "mlx5_ib_create_qp_rss", size: 152, length_rule: "", fields: &[
    ], plain: &[
        UhwField { name: "rx_hash_fields_mask", offset: 0, size: 8, role: UhwRole::Plain, note: "" },
        UhwField { name: "rx_hash_function", offset: 8, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "rx_key_len", offset: 9, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved", offset: 10, size: 6, role: UhwRole::Plain, note: "" },
        UhwField { name: "rx_hash_key", offset: 16, size: 128, role: UhwRole::Plain, note: "" },
        UhwField { name: "comp_mask", offset: 144, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "flags", offset: 148, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::MLX5], operations: &["MODIFY_QP"], name: "mlx5_ib_modify_qp", size: 16, length_rule: "", fields: &[
    ], plain: &[
        UhwField { name: "comp_mask", offset: 0, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "burst_info", offset: 4, size: 8, role: UhwRole::Plain, note: "" },
        UhwField { name: "ece_options", offset: 12, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::MLX5], operations: &["MODIFY_WQ"], name: "mlx5_ib_modify_wq", size: 8, length_rule: "", fields: &[
    ], plain: &[
        UhwField { name: "comp_mask", offset: 0, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved", offset: 4, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::MLX4], operations: &["CREATE_QP"], name: "mlx4_ib_create_qp_rss", size: 64, length_rule: "", fields: &[
    ], plain: &[
        UhwField { name: "rx_hash_fields_mask", offset: 0, size: 8, role: UhwRole::Plain, note: "" },
        UhwField { name: "rx_hash_function", offset: 8, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved", offset: 9, size: 7, role: UhwRole::Plain, note: "" },
        UhwField { name: "rx_hash_key", offset: 16, size: 40, role: UhwRole::Plain, note: "" },
        UhwField { name: "comp_mask", offset: 56, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved1", offset: 60, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::MLX4], operations: &["MODIFY_WQ"], name: "mlx4_ib_modify_wq", size: 8, length_rule: "", fields: &[
    ], plain: &[
        UhwField { name: "comp_mask", offset: 0, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved", offset: 4, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::MANA], operations: &["CREATE_QP"], name: "mana_ib_create_qp_rss", size: 64, length_rule: "", fields: &[
    ], plain: &[
        UhwField { name: "rx_hash_fields_mask", offset: 0, size: 8, role: UhwRole::Plain, note: "" },
        UhwField { name: "rx_hash_function", offset: 8, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved", offset: 9, size: 7, role: UhwRole::Plain, note: "" },
        UhwField { name: "rx_hash_key_len", offset: 16, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "rx_hash_key", offset: 20, size: 40, role: UhwRole::Plain, note: "" },
        UhwField { name: "port", offset: 60, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::HNS], operations: &["GET_CONTEXT"], name: "hns_roce_ib_alloc_ucontext", size: 8, length_rule: "", fields: &[
    ], plain: &[
        UhwField { name: "config", offset: 0, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved", offset: 4, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::IONIC], operations: &["GET_CONTEXT"], name: "ionic_ctx_req", size: 8, length_rule: "", fields: &[
    ], plain: &[
        UhwField { name: "rsvd", offset: 0, size: 8, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::IONIC], operations: &["CREATE_SRQ"], name: "ionic_srq_req", size: 24, length_rule: "", fields: &[
        UhwField { name: "rq", offset: 0, size: 16, role: UhwRole::VaPin, note: "va_pin ionic_qdesc" },
    ], plain: &[
        UhwField { name: "rq_spec", offset: 16, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "rq_cmb", offset: 17, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "udma_mask", offset: 18, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "rsvd", offset: 19, size: 5, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::MTHCA], operations: &["REG_MR"], name: "mthca_reg_mr", size: 8, length_rule: "", fields: &[
    ], plain: &[
        UhwField { name: "mr_attrs", offset: 0, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved", offset: 4, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::MTHCA], operations: &["RESIZE_CQ"], name: "mthca_resize_cq", size: 8, length_rule: "", fields: &[
        UhwField { name: "lkey", offset: 0, size: 4, role: UhwRole::Other, note: "mr key" },
    ], plain: &[
        UhwField { name: "reserved", offset: 4, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::BNXT_RE], operations: &["GET_CONTEXT"], name: "bnxt_re_uctx_req", size: 8, length_rule: "", fields: &[
    ], plain: &[
        UhwField { name: "comp_mask", offset: 0, size: 8, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::IRDMA], operations: &["GET_CONTEXT"], name: "irdma_alloc_ucontext_req", size: 16, length_rule: "", fields: &[
    ], plain: &[
        UhwField { name: "rsvd32", offset: 0, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "userspace_ver", offset: 4, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "rsvd8", offset: 5, size: 3, role: UhwRole::Plain, note: "" },
        UhwField { name: "comp_mask", offset: 8, size: 8, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::IRDMA], operations: &["MODIFY_QP"], name: "irdma_modify_qp_req", size: 8, length_rule: "", fields: &[
    ], plain: &[
        UhwField { name: "sq_flush", offset: 0, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "rq_flush", offset: 1, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "rsvd", offset: 2, size: 6, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::QEDR], operations: &["GET_CONTEXT"], name: "qedr_alloc_ucontext_req", size: 8, length_rule: "", fields: &[
    ], plain: &[
        UhwField { name: "context_flags", offset: 0, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved", offset: 4, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::QEDR], operations: &["ALLOC_PD"], name: "qedr_alloc_pd_ureq", size: 8, length_rule: "", fields: &[
    ], plain: &[
        UhwField { name: "rsvd1", offset: 0, size: 8, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::VMW_PVRDMA], operations: &["RESIZE_CQ"], name: "pvrdma_resize_cq", size: 16, length_rule: "", fields: &[
        UhwField { name: "buf_addr", offset: 0, size: 8, role: UhwRole::VaPin, note: "va_pin" },
        UhwField { name: "buf_size", offset: 8, size: 4, role: UhwRole::Len, note: "len_input" },
    ], plain: &[
        UhwField { name: "reserved", offset: 12, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::EFA], operations: &["GET_CONTEXT"], name: "efa_ibv_alloc_ucontext_cmd", size: 8, length_rule: "", fields: &[
    ], plain: &[
        UhwField { name: "supported_caps", offset: 0, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved_20", offset: 4, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::EFA], operations: &["CREATE_CQ"], name: "efa_ibv_create_cq", size: 16, length_rule: "", fields: &[
    ], plain: &[
        UhwField { name: "comp_mask", offset: 0, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "cq_entry_size", offset: 4, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "num_sub_cqs", offset: 8, size: 2, role: UhwRole::Plain, note: "" },
        UhwField { name: "flags", offset: 10, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved_58", offset: 11, size: 5, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::EFA], operations: &["CREATE_QP"], name: "efa_ibv_create_qp", size: 24, length_rule: "", fields: &[
    ], plain: &[
        UhwField { name: "comp_mask", offset: 0, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "rq_ring_size", offset: 4, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "sq_ring_size", offset: 8, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "driver_qp_type", offset: 12, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "flags", offset: 16, size: 2, role: UhwRole::Plain, note: "" },
        UhwField { name: "sl", offset: 18, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved_98", offset: 19, size: 5, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::CXGB4], operations: &["CREATE_CQ"], name: "c4iw_create_cq", size: 8, length_rule: "", fields: &[
    ], plain: &[
        UhwField { name: "flags", offset: 0, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved", offset: 4, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::OCRDMA], operations: &["ALLOC_PD"], name: "ocrdma_alloc_pd_ureq", size: 8, length_rule: "", fields: &[
    ], plain: &[
        UhwField { name: "rsvd", offset: 0, size: 8, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::OCRDMA], operations: &["CREATE_CQ"], name: "ocrdma_create_cq_ureq", size: 8, length_rule: "", fields: &[
    ], plain: &[
        UhwField { name: "dpp_cq", offset: 0, size: 4, role: UhwRole::Plain, note: "" },
        UhwField { name: "rsvd", offset: 4, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::OCRDMA], operations: &["CREATE_QP"], name: "ocrdma_create_qp_ureq", size: 8, length_rule: "", fields: &[
    ], plain: &[
        UhwField { name: "enable_dpp_cq", offset: 0, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "rsvd", offset: 1, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "dpp_cq_id", offset: 2, size: 2, role: UhwRole::Plain, note: "" },
        UhwField { name: "rsvd1", offset: 4, size: 4, role: UhwRole::Plain, note: "" },
    ] },
    UhwSpec { drivers: &[DriverId::SIW], operations: &["REG_MR"], name: "siw_ureq_reg_mr", size: 8, length_rule: "", fields: &[
    ], plain: &[
        UhwField { name: "stag_key", offset: 0, size: 1, role: UhwRole::Plain, note: "" },
        UhwField { name: "reserved", offset: 1, size: 3, role: UhwRole::Plain, note: "" },
        UhwField { name: "pad", offset: 4, size: 4, role: UhwRole::Plain, note: "" },
    ] },
];

/// The kernel's names of objects, methods, attributes and commands, as constants.
pub mod ids {
    use super::AttrId;
    use super::DriverId;
    use super::MethodId;
    use super::ObjectRef;

    /// Object, `core`.
    pub const UVERBS_OBJECT_DEVICE: ObjectRef = ObjectRef::core(0);
    /// Object, `core`.
    pub const UVERBS_OBJECT_PD: ObjectRef = ObjectRef::core(1);
    /// Object, `core`.
    pub const UVERBS_OBJECT_COMP_CHANNEL: ObjectRef = ObjectRef::core(2);
    /// Object, `core`.
    pub const UVERBS_OBJECT_CQ: ObjectRef = ObjectRef::core(3);
    /// Object, `core`.
    pub const UVERBS_OBJECT_QP: ObjectRef = ObjectRef::core(4);
    /// Object, `core`.
    pub const UVERBS_OBJECT_SRQ: ObjectRef = ObjectRef::core(5);
    /// Object, `core`.
    pub const UVERBS_OBJECT_AH: ObjectRef = ObjectRef::core(6);
    /// Object, `core`.
    pub const UVERBS_OBJECT_MR: ObjectRef = ObjectRef::core(7);
    /// Object, `core`.
    pub const UVERBS_OBJECT_MW: ObjectRef = ObjectRef::core(8);
    /// Object, `core`.
    pub const UVERBS_OBJECT_FLOW: ObjectRef = ObjectRef::core(9);
    /// Object, `core`.
    pub const UVERBS_OBJECT_XRCD: ObjectRef = ObjectRef::core(10);
    /// Object, `core`.
    pub const UVERBS_OBJECT_RWQ_IND_TBL: ObjectRef = ObjectRef::core(11);
    /// Object, `core`.
    pub const UVERBS_OBJECT_WQ: ObjectRef = ObjectRef::core(12);
    /// Object, `core`.
    pub const UVERBS_OBJECT_FLOW_ACTION: ObjectRef = ObjectRef::core(13);
    /// Object, `core`.
    pub const UVERBS_OBJECT_DM: ObjectRef = ObjectRef::core(14);
    /// Object, `core`.
    pub const UVERBS_OBJECT_COUNTERS: ObjectRef = ObjectRef::core(15);
    /// Object, `core`.
    pub const UVERBS_OBJECT_ASYNC_EVENT: ObjectRef = ObjectRef::core(16);
    /// Object, `core`.
    pub const UVERBS_OBJECT_DMAH: ObjectRef = ObjectRef::core(17);
    /// Object, `core`.
    pub const UVERBS_OBJECT_DMABUF: ObjectRef = ObjectRef::core(18);
    /// Object, `mlx5`.
    pub const MLX5_IB_OBJECT_DEVX: ObjectRef = ObjectRef::of(DriverId::MLX5, 0x1000);
    /// Object, `bnxt_re`.
    pub const BNXT_RE_OBJECT_ALLOC_PAGE: ObjectRef = ObjectRef::of(DriverId::BNXT_RE, 0x1000);
    /// Object, `mlx5`.
    pub const MLX5_IB_OBJECT_DEVX_OBJ: ObjectRef = ObjectRef::of(DriverId::MLX5, 0x1001);
    /// Object, `bnxt_re`.
    pub const BNXT_RE_OBJECT_NOTIFY_DRV: ObjectRef = ObjectRef::of(DriverId::BNXT_RE, 0x1001);
    /// Object, `mlx5`.
    pub const MLX5_IB_OBJECT_DEVX_UMEM: ObjectRef = ObjectRef::of(DriverId::MLX5, 0x1002);
    /// Object, `bnxt_re`.
    pub const BNXT_RE_OBJECT_GET_TOGGLE_MEM: ObjectRef = ObjectRef::of(DriverId::BNXT_RE, 0x1002);
    /// Object, `mlx5`.
    pub const MLX5_IB_OBJECT_FLOW_MATCHER: ObjectRef = ObjectRef::of(DriverId::MLX5, 0x1003);
    /// Object, `bnxt_re`.
    pub const BNXT_RE_OBJECT_DBR: ObjectRef = ObjectRef::of(DriverId::BNXT_RE, 0x1003);
    /// Object, `mlx5`.
    pub const MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD: ObjectRef = ObjectRef::of(DriverId::MLX5, 0x1004);
    /// Object, `bnxt_re`.
    pub const BNXT_RE_OBJECT_DEFAULT_DBR: ObjectRef = ObjectRef::of(DriverId::BNXT_RE, 0x1004);
    /// Object, `mlx5`.
    pub const MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD: ObjectRef = ObjectRef::of(DriverId::MLX5, 0x1005);
    /// Object, `mlx5`.
    pub const MLX5_IB_OBJECT_VAR: ObjectRef = ObjectRef::of(DriverId::MLX5, 0x1006);
    /// Object, `mlx5`.
    pub const MLX5_IB_OBJECT_PP: ObjectRef = ObjectRef::of(DriverId::MLX5, 0x1007);
    /// Object, `mlx5`.
    pub const MLX5_IB_OBJECT_UAR: ObjectRef = ObjectRef::of(DriverId::MLX5, 0x1008);
    /// Object, `mlx5`.
    pub const MLX5_IB_OBJECT_STEERING_ANCHOR: ObjectRef = ObjectRef::of(DriverId::MLX5, 0x1009);
    /// Method of `UVERBS_OBJECT_DEVICE`.
    pub const UVERBS_METHOD_INVOKE_WRITE: MethodId = MethodId(0x0000);
    /// Method of `UVERBS_OBJECT_DEVICE`.
    pub const UVERBS_METHOD_INFO_HANDLES: MethodId = MethodId(0x0001);
    /// Method of `UVERBS_OBJECT_DEVICE`.
    pub const UVERBS_METHOD_QUERY_PORT: MethodId = MethodId(0x0002);
    /// Method of `UVERBS_OBJECT_DEVICE`.
    pub const UVERBS_METHOD_GET_CONTEXT: MethodId = MethodId(0x0003);
    /// Method of `UVERBS_OBJECT_DEVICE`.
    pub const UVERBS_METHOD_QUERY_CONTEXT: MethodId = MethodId(0x0004);
    /// Method of `UVERBS_OBJECT_DEVICE`.
    pub const UVERBS_METHOD_QUERY_GID_TABLE: MethodId = MethodId(0x0005);
    /// Method of `UVERBS_OBJECT_DEVICE`.
    pub const UVERBS_METHOD_QUERY_GID_ENTRY: MethodId = MethodId(0x0006);
    /// Method of `UVERBS_OBJECT_DEVICE`.
    pub const UVERBS_METHOD_QUERY_PORT_SPEED: MethodId = MethodId(0x0007);
    /// Method of `UVERBS_OBJECT_DEVICE`.
    pub const MLX5_IB_METHOD_QUERY_PORT: MethodId = MethodId(0x1000);
    /// Method of `UVERBS_OBJECT_DEVICE`.
    pub const MLX5_IB_METHOD_GET_DATA_DIRECT_SYSFS_PATH: MethodId = MethodId(0x1001);
    /// Method of `UVERBS_OBJECT_PD`.
    pub const UVERBS_METHOD_PD_DESTROY: MethodId = MethodId(0x0000);
    /// Method of `UVERBS_OBJECT_PD`.
    pub const MLX5_IB_METHOD_PD_QUERY: MethodId = MethodId(0x1000);
    /// Method of `UVERBS_OBJECT_CQ`.
    pub const UVERBS_METHOD_CQ_CREATE: MethodId = MethodId(0x0000);
    /// Method of `UVERBS_OBJECT_CQ`.
    pub const UVERBS_METHOD_CQ_DESTROY: MethodId = MethodId(0x0001);
    /// Method of `UVERBS_OBJECT_QP`.
    pub const UVERBS_METHOD_QP_CREATE: MethodId = MethodId(0x0000);
    /// Method of `UVERBS_OBJECT_QP`.
    pub const UVERBS_METHOD_QP_DESTROY: MethodId = MethodId(0x0001);
    /// Method of `UVERBS_OBJECT_SRQ`.
    pub const UVERBS_METHOD_SRQ_CREATE: MethodId = MethodId(0x0000);
    /// Method of `UVERBS_OBJECT_SRQ`.
    pub const UVERBS_METHOD_SRQ_DESTROY: MethodId = MethodId(0x0001);
    /// Method of `UVERBS_OBJECT_AH`.
    pub const UVERBS_METHOD_AH_DESTROY: MethodId = MethodId(0x0000);
    /// Method of `UVERBS_OBJECT_MR`.
    pub const UVERBS_METHOD_DM_MR_REG: MethodId = MethodId(0x0000);
    /// Method of `UVERBS_OBJECT_MR`.
    pub const UVERBS_METHOD_MR_DESTROY: MethodId = MethodId(0x0001);
    /// Method of `UVERBS_OBJECT_MR`.
    pub const UVERBS_METHOD_ADVISE_MR: MethodId = MethodId(0x0002);
    /// Method of `UVERBS_OBJECT_MR`.
    pub const UVERBS_METHOD_QUERY_MR: MethodId = MethodId(0x0003);
    /// Method of `UVERBS_OBJECT_MR`.
    pub const UVERBS_METHOD_REG_DMABUF_MR: MethodId = MethodId(0x0004);
    /// Method of `UVERBS_OBJECT_MR`.
    pub const UVERBS_METHOD_REG_MR: MethodId = MethodId(0x0005);
    /// Method of `UVERBS_OBJECT_MR`.
    pub const EFA_IB_METHOD_MR_QUERY: MethodId = MethodId(0x1000);
    /// Method of `UVERBS_OBJECT_MW`.
    pub const UVERBS_METHOD_MW_DESTROY: MethodId = MethodId(0x0000);
    /// Method of `UVERBS_OBJECT_FLOW`.
    pub const UVERBS_METHOD_FLOW_DESTROY: MethodId = MethodId(0x0000);
    /// Method of `UVERBS_OBJECT_FLOW`.
    pub const MLX5_IB_METHOD_CREATE_FLOW: MethodId = MethodId(0x1000);
    /// Method of `UVERBS_OBJECT_FLOW`.
    pub const MLX5_IB_METHOD_DESTROY_FLOW: MethodId = MethodId(0x1001);
    /// Method of `UVERBS_OBJECT_XRCD`.
    pub const UVERBS_METHOD_XRCD_DESTROY: MethodId = MethodId(0x0000);
    /// Method of `UVERBS_OBJECT_RWQ_IND_TBL`.
    pub const UVERBS_METHOD_RWQ_IND_TBL_DESTROY: MethodId = MethodId(0x0000);
    /// Method of `UVERBS_OBJECT_WQ`.
    pub const UVERBS_METHOD_WQ_CREATE: MethodId = MethodId(0x0000);
    /// Method of `UVERBS_OBJECT_WQ`.
    pub const UVERBS_METHOD_WQ_DESTROY: MethodId = MethodId(0x0001);
    /// Method of `UVERBS_OBJECT_FLOW_ACTION`.
    pub const UVERBS_METHOD_FLOW_ACTION_DESTROY: MethodId = MethodId(0x0001);
    /// Method of `UVERBS_OBJECT_FLOW_ACTION`.
    pub const MLX5_IB_METHOD_FLOW_ACTION_CREATE_MODIFY_HEADER: MethodId = MethodId(0x1000);
    /// Method of `UVERBS_OBJECT_FLOW_ACTION`.
    pub const MLX5_IB_METHOD_FLOW_ACTION_CREATE_PACKET_REFORMAT: MethodId = MethodId(0x1001);
    /// Method of `UVERBS_OBJECT_DM`.
    pub const UVERBS_METHOD_DM_ALLOC: MethodId = MethodId(0x0000);
    /// Method of `UVERBS_OBJECT_DM`.
    pub const UVERBS_METHOD_DM_FREE: MethodId = MethodId(0x0001);
    /// Method of `UVERBS_OBJECT_DM`.
    pub const MLX5_IB_METHOD_DM_MAP_OP_ADDR: MethodId = MethodId(0x1000);
    /// Method of `UVERBS_OBJECT_DM`.
    pub const MLX5_IB_METHOD_DM_QUERY: MethodId = MethodId(0x1001);
    /// Method of `UVERBS_OBJECT_COUNTERS`.
    pub const UVERBS_METHOD_COUNTERS_CREATE: MethodId = MethodId(0x0000);
    /// Method of `UVERBS_OBJECT_COUNTERS`.
    pub const UVERBS_METHOD_COUNTERS_DESTROY: MethodId = MethodId(0x0001);
    /// Method of `UVERBS_OBJECT_COUNTERS`.
    pub const UVERBS_METHOD_COUNTERS_READ: MethodId = MethodId(0x0002);
    /// Method of `UVERBS_OBJECT_ASYNC_EVENT`.
    pub const UVERBS_METHOD_ASYNC_EVENT_ALLOC: MethodId = MethodId(0x0000);
    /// Method of `UVERBS_OBJECT_DMAH`.
    pub const UVERBS_METHOD_DMAH_ALLOC: MethodId = MethodId(0x0000);
    /// Method of `UVERBS_OBJECT_DMAH`.
    pub const UVERBS_METHOD_DMAH_FREE: MethodId = MethodId(0x0001);
    /// Method of `UVERBS_OBJECT_DMABUF`.
    pub const UVERBS_METHOD_DMABUF_ALLOC: MethodId = MethodId(0x0000);
    /// Method of `MLX5_IB_OBJECT_DEVX`.
    pub const MLX5_IB_METHOD_DEVX_OTHER: MethodId = MethodId(0x1000);
    /// Method of `BNXT_RE_OBJECT_ALLOC_PAGE`.
    pub const BNXT_RE_METHOD_ALLOC_PAGE: MethodId = MethodId(0x1000);
    /// Method of `MLX5_IB_OBJECT_DEVX`.
    pub const MLX5_IB_METHOD_DEVX_QUERY_UAR: MethodId = MethodId(0x1001);
    /// Method of `BNXT_RE_OBJECT_ALLOC_PAGE`.
    pub const BNXT_RE_METHOD_DESTROY_PAGE: MethodId = MethodId(0x1001);
    /// Method of `MLX5_IB_OBJECT_DEVX`.
    pub const MLX5_IB_METHOD_DEVX_QUERY_EQN: MethodId = MethodId(0x1002);
    /// Method of `MLX5_IB_OBJECT_DEVX`.
    pub const MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT: MethodId = MethodId(0x1003);
    /// Method of `MLX5_IB_OBJECT_DEVX_OBJ`.
    pub const MLX5_IB_METHOD_DEVX_OBJ_CREATE: MethodId = MethodId(0x1000);
    /// Method of `BNXT_RE_OBJECT_NOTIFY_DRV`.
    pub const BNXT_RE_METHOD_NOTIFY_DRV: MethodId = MethodId(0x1000);
    /// Method of `MLX5_IB_OBJECT_DEVX_OBJ`.
    pub const MLX5_IB_METHOD_DEVX_OBJ_DESTROY: MethodId = MethodId(0x1001);
    /// Method of `MLX5_IB_OBJECT_DEVX_OBJ`.
    pub const MLX5_IB_METHOD_DEVX_OBJ_MODIFY: MethodId = MethodId(0x1002);
    /// Method of `MLX5_IB_OBJECT_DEVX_OBJ`.
    pub const MLX5_IB_METHOD_DEVX_OBJ_QUERY: MethodId = MethodId(0x1003);
    /// Method of `MLX5_IB_OBJECT_DEVX_OBJ`.
    pub const MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY: MethodId = MethodId(0x1004);
    /// Method of `MLX5_IB_OBJECT_DEVX_UMEM`.
    pub const MLX5_IB_METHOD_DEVX_UMEM_REG: MethodId = MethodId(0x1000);
    /// Method of `BNXT_RE_OBJECT_GET_TOGGLE_MEM`.
    pub const BNXT_RE_METHOD_GET_TOGGLE_MEM: MethodId = MethodId(0x1000);
    /// Method of `MLX5_IB_OBJECT_DEVX_UMEM`.
    pub const MLX5_IB_METHOD_DEVX_UMEM_DEREG: MethodId = MethodId(0x1001);
    /// Method of `BNXT_RE_OBJECT_GET_TOGGLE_MEM`.
    pub const BNXT_RE_METHOD_RELEASE_TOGGLE_MEM: MethodId = MethodId(0x1001);
    /// Method of `MLX5_IB_OBJECT_FLOW_MATCHER`.
    pub const MLX5_IB_METHOD_FLOW_MATCHER_CREATE: MethodId = MethodId(0x1000);
    /// Method of `BNXT_RE_OBJECT_DBR`.
    pub const BNXT_RE_METHOD_DBR_ALLOC: MethodId = MethodId(0x1000);
    /// Method of `MLX5_IB_OBJECT_FLOW_MATCHER`.
    pub const MLX5_IB_METHOD_FLOW_MATCHER_DESTROY: MethodId = MethodId(0x1001);
    /// Method of `BNXT_RE_OBJECT_DBR`.
    pub const BNXT_RE_METHOD_DBR_FREE: MethodId = MethodId(0x1001);
    /// Method of `MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD`.
    pub const MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC: MethodId = MethodId(0x1000);
    /// Method of `BNXT_RE_OBJECT_DEFAULT_DBR`.
    pub const BNXT_RE_METHOD_GET_DEFAULT_DBR: MethodId = MethodId(0x1002);
    /// Method of `MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD`.
    pub const MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC: MethodId = MethodId(0x1000);
    /// Method of `MLX5_IB_OBJECT_VAR`.
    pub const MLX5_IB_METHOD_VAR_OBJ_ALLOC: MethodId = MethodId(0x1000);
    /// Method of `MLX5_IB_OBJECT_VAR`.
    pub const MLX5_IB_METHOD_VAR_OBJ_DESTROY: MethodId = MethodId(0x1001);
    /// Method of `MLX5_IB_OBJECT_PP`.
    pub const MLX5_IB_METHOD_PP_OBJ_ALLOC: MethodId = MethodId(0x1000);
    /// Method of `MLX5_IB_OBJECT_PP`.
    pub const MLX5_IB_METHOD_PP_OBJ_DESTROY: MethodId = MethodId(0x1001);
    /// Method of `MLX5_IB_OBJECT_UAR`.
    pub const MLX5_IB_METHOD_UAR_OBJ_ALLOC: MethodId = MethodId(0x1000);
    /// Method of `MLX5_IB_OBJECT_UAR`.
    pub const MLX5_IB_METHOD_UAR_OBJ_DESTROY: MethodId = MethodId(0x1001);
    /// Method of `MLX5_IB_OBJECT_STEERING_ANCHOR`.
    pub const MLX5_IB_METHOD_STEERING_ANCHOR_CREATE: MethodId = MethodId(0x1000);
    /// Method of `MLX5_IB_OBJECT_STEERING_ANCHOR`.
    pub const MLX5_IB_METHOD_STEERING_ANCHOR_DESTROY: MethodId = MethodId(0x1001);
    /// Attribute of `BNXT_RE_METHOD_DBR_ALLOC`.
    pub const BNXT_RE_ALLOC_DBR_ATTR: AttrId = AttrId(0x1001);
    /// Attribute of `BNXT_RE_METHOD_DBR_ALLOC`.
    pub const BNXT_RE_ALLOC_DBR_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `BNXT_RE_METHOD_DBR_ALLOC`.
    pub const BNXT_RE_ALLOC_DBR_OFFSET: AttrId = AttrId(0x1002);
    /// Attribute of `BNXT_RE_METHOD_ALLOC_PAGE`.
    pub const BNXT_RE_ALLOC_PAGE_DPI: AttrId = AttrId(0x1002);
    /// Attribute of `BNXT_RE_METHOD_ALLOC_PAGE`.
    pub const BNXT_RE_ALLOC_PAGE_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `BNXT_RE_METHOD_ALLOC_PAGE`.
    pub const BNXT_RE_ALLOC_PAGE_MMAP_LENGTH: AttrId = AttrId(0x1004);
    /// Attribute of `BNXT_RE_METHOD_ALLOC_PAGE`.
    pub const BNXT_RE_ALLOC_PAGE_MMAP_OFFSET: AttrId = AttrId(0x1003);
    /// Attribute of `BNXT_RE_METHOD_ALLOC_PAGE`.
    pub const BNXT_RE_ALLOC_PAGE_TYPE: AttrId = AttrId(0x1001);
    /// Attribute of `UVERBS_METHOD_QP_CREATE`.
    pub const BNXT_RE_CREATE_QP_ATTR_DBR_HANDLE: AttrId = AttrId(0x1002);
    /// Attribute of `BNXT_RE_METHOD_GET_DEFAULT_DBR`.
    pub const BNXT_RE_DEFAULT_DBR_ATTR: AttrId = AttrId(0x1000);
    /// Attribute of `BNXT_RE_METHOD_DESTROY_PAGE`.
    pub const BNXT_RE_DESTROY_PAGE_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `BNXT_RE_METHOD_DBR_FREE`.
    pub const BNXT_RE_FREE_DBR_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `BNXT_RE_METHOD_RELEASE_TOGGLE_MEM`.
    pub const BNXT_RE_RELEASE_TOGGLE_MEM_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `BNXT_RE_METHOD_GET_TOGGLE_MEM`.
    pub const BNXT_RE_TOGGLE_MEM_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `BNXT_RE_METHOD_GET_TOGGLE_MEM`.
    pub const BNXT_RE_TOGGLE_MEM_MMAP_LENGTH: AttrId = AttrId(0x1005);
    /// Attribute of `BNXT_RE_METHOD_GET_TOGGLE_MEM`.
    pub const BNXT_RE_TOGGLE_MEM_MMAP_OFFSET: AttrId = AttrId(0x1004);
    /// Attribute of `BNXT_RE_METHOD_GET_TOGGLE_MEM`.
    pub const BNXT_RE_TOGGLE_MEM_MMAP_PAGE: AttrId = AttrId(0x1003);
    /// Attribute of `BNXT_RE_METHOD_GET_TOGGLE_MEM`.
    pub const BNXT_RE_TOGGLE_MEM_RES_ID: AttrId = AttrId(0x1002);
    /// Attribute of `BNXT_RE_METHOD_GET_TOGGLE_MEM`.
    pub const BNXT_RE_TOGGLE_MEM_TYPE: AttrId = AttrId(0x1001);
    /// Attribute of `EFA_IB_METHOD_MR_QUERY`.
    pub const EFA_IB_ATTR_QUERY_MR_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `EFA_IB_METHOD_MR_QUERY`.
    pub const EFA_IB_ATTR_QUERY_MR_RESP_IC_ID_VALIDITY: AttrId = AttrId(0x1001);
    /// Attribute of `EFA_IB_METHOD_MR_QUERY`.
    pub const EFA_IB_ATTR_QUERY_MR_RESP_RDMA_READ_IC_ID: AttrId = AttrId(0x1003);
    /// Attribute of `EFA_IB_METHOD_MR_QUERY`.
    pub const EFA_IB_ATTR_QUERY_MR_RESP_RDMA_RECV_IC_ID: AttrId = AttrId(0x1004);
    /// Attribute of `EFA_IB_METHOD_MR_QUERY`.
    pub const EFA_IB_ATTR_QUERY_MR_RESP_RECV_IC_ID: AttrId = AttrId(0x1002);
    /// Attribute of `UVERBS_METHOD_DM_ALLOC`.
    pub const MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE: AttrId = AttrId(0x1002);
    /// Attribute of `UVERBS_METHOD_DM_ALLOC`.
    pub const MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX: AttrId = AttrId(0x1001);
    /// Attribute of `UVERBS_METHOD_DM_ALLOC`.
    pub const MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET: AttrId = AttrId(0x1000);
    /// Attribute of `UVERBS_METHOD_CQ_CREATE`.
    pub const MLX5_IB_ATTR_CREATE_CQ_DBR_BUF_UMEM: AttrId = AttrId(0x1003);
    /// Attribute of `UVERBS_METHOD_CQ_CREATE`.
    pub const MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX: AttrId = AttrId(0x1002);
    /// Attribute of `MLX5_IB_METHOD_CREATE_FLOW`.
    pub const MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX: AttrId = AttrId(0x1007);
    /// Attribute of `MLX5_IB_METHOD_CREATE_FLOW`.
    pub const MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET: AttrId = AttrId(0x1008);
    /// Attribute of `MLX5_IB_METHOD_CREATE_FLOW`.
    pub const MLX5_IB_ATTR_CREATE_FLOW_ARR_FLOW_ACTIONS: AttrId = AttrId(0x1005);
    /// Attribute of `MLX5_IB_METHOD_CREATE_FLOW`.
    pub const MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX: AttrId = AttrId(0x1003);
    /// Attribute of `MLX5_IB_METHOD_CREATE_FLOW`.
    pub const MLX5_IB_ATTR_CREATE_FLOW_DEST_QP: AttrId = AttrId(0x1002);
    /// Attribute of `MLX5_IB_METHOD_CREATE_FLOW`.
    pub const MLX5_IB_ATTR_CREATE_FLOW_FLAGS: AttrId = AttrId(0x1009);
    /// Attribute of `MLX5_IB_METHOD_CREATE_FLOW`.
    pub const MLX5_IB_ATTR_CREATE_FLOW_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_CREATE_FLOW`.
    pub const MLX5_IB_ATTR_CREATE_FLOW_MATCHER: AttrId = AttrId(0x1004);
    /// Attribute of `MLX5_IB_METHOD_CREATE_FLOW`.
    pub const MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE: AttrId = AttrId(0x1001);
    /// Attribute of `MLX5_IB_METHOD_CREATE_FLOW`.
    pub const MLX5_IB_ATTR_CREATE_FLOW_TAG: AttrId = AttrId(0x1006);
    /// Attribute of `MLX5_IB_METHOD_FLOW_ACTION_CREATE_MODIFY_HEADER`.
    pub const MLX5_IB_ATTR_CREATE_MODIFY_HEADER_ACTIONS_PRM: AttrId = AttrId(0x1001);
    /// Attribute of `MLX5_IB_METHOD_FLOW_ACTION_CREATE_MODIFY_HEADER`.
    pub const MLX5_IB_ATTR_CREATE_MODIFY_HEADER_FT_TYPE: AttrId = AttrId(0x1002);
    /// Attribute of `MLX5_IB_METHOD_FLOW_ACTION_CREATE_MODIFY_HEADER`.
    pub const MLX5_IB_ATTR_CREATE_MODIFY_HEADER_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_FLOW_ACTION_CREATE_PACKET_REFORMAT`.
    pub const MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_DATA_BUF: AttrId = AttrId(0x1003);
    /// Attribute of `MLX5_IB_METHOD_FLOW_ACTION_CREATE_PACKET_REFORMAT`.
    pub const MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_FT_TYPE: AttrId = AttrId(0x1002);
    /// Attribute of `MLX5_IB_METHOD_FLOW_ACTION_CREATE_PACKET_REFORMAT`.
    pub const MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_FLOW_ACTION_CREATE_PACKET_REFORMAT`.
    pub const MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_TYPE: AttrId = AttrId(0x1001);
    /// Attribute of `UVERBS_METHOD_QP_CREATE`.
    pub const MLX5_IB_ATTR_CREATE_QP_DBR_BUF_UMEM: AttrId = AttrId(0x1002);
    /// Attribute of `MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC`.
    pub const MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC`.
    pub const MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS: AttrId = AttrId(0x1001);
    /// Attribute of `MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC`.
    pub const MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_DEVX_OBJ_CREATE`.
    pub const MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN: AttrId = AttrId(0x1001);
    /// Attribute of `MLX5_IB_METHOD_DEVX_OBJ_CREATE`.
    pub const MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT: AttrId = AttrId(0x1002);
    /// Attribute of `MLX5_IB_METHOD_DEVX_OBJ_CREATE`.
    pub const MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_DEVX_OBJ_DESTROY`.
    pub const MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_DEVX_OBJ_MODIFY`.
    pub const MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN: AttrId = AttrId(0x1001);
    /// Attribute of `MLX5_IB_METHOD_DEVX_OBJ_MODIFY`.
    pub const MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT: AttrId = AttrId(0x1002);
    /// Attribute of `MLX5_IB_METHOD_DEVX_OBJ_MODIFY`.
    pub const MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY`.
    pub const MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD: AttrId = AttrId(0x1002);
    /// Attribute of `MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY`.
    pub const MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN: AttrId = AttrId(0x1004);
    /// Attribute of `MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY`.
    pub const MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID: AttrId = AttrId(0x1003);
    /// Attribute of `MLX5_IB_METHOD_DEVX_OBJ_QUERY`.
    pub const MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN: AttrId = AttrId(0x1001);
    /// Attribute of `MLX5_IB_METHOD_DEVX_OBJ_QUERY`.
    pub const MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT: AttrId = AttrId(0x1002);
    /// Attribute of `MLX5_IB_METHOD_DEVX_OBJ_QUERY`.
    pub const MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_DEVX_OTHER`.
    pub const MLX5_IB_ATTR_DEVX_OTHER_CMD_IN: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_DEVX_OTHER`.
    pub const MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT: AttrId = AttrId(0x1001);
    /// Attribute of `MLX5_IB_METHOD_DEVX_QUERY_EQN`.
    pub const MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN: AttrId = AttrId(0x1001);
    /// Attribute of `MLX5_IB_METHOD_DEVX_QUERY_EQN`.
    pub const MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_DEVX_QUERY_UAR`.
    pub const MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX: AttrId = AttrId(0x1001);
    /// Attribute of `MLX5_IB_METHOD_DEVX_QUERY_UAR`.
    pub const MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT`.
    pub const MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE: AttrId = AttrId(0x1004);
    /// Attribute of `MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT`.
    pub const MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT`.
    pub const MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM: AttrId = AttrId(0x1003);
    /// Attribute of `MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT`.
    pub const MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE: AttrId = AttrId(0x1001);
    /// Attribute of `MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT`.
    pub const MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST: AttrId = AttrId(0x1002);
    /// Attribute of `MLX5_IB_METHOD_DEVX_UMEM_DEREG`.
    pub const MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_DEVX_UMEM_REG`.
    pub const MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS: AttrId = AttrId(0x1003);
    /// Attribute of `MLX5_IB_METHOD_DEVX_UMEM_REG`.
    pub const MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR: AttrId = AttrId(0x1001);
    /// Attribute of `MLX5_IB_METHOD_DEVX_UMEM_REG`.
    pub const MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD: AttrId = AttrId(0x1006);
    /// Attribute of `MLX5_IB_METHOD_DEVX_UMEM_REG`.
    pub const MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_DEVX_UMEM_REG`.
    pub const MLX5_IB_ATTR_DEVX_UMEM_REG_LEN: AttrId = AttrId(0x1002);
    /// Attribute of `MLX5_IB_METHOD_DEVX_UMEM_REG`.
    pub const MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID: AttrId = AttrId(0x1004);
    /// Attribute of `MLX5_IB_METHOD_DEVX_UMEM_REG`.
    pub const MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP: AttrId = AttrId(0x1005);
    /// Attribute of `MLX5_IB_METHOD_DM_MAP_OP_ADDR`.
    pub const MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_DM_MAP_OP_ADDR`.
    pub const MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP: AttrId = AttrId(0x1001);
    /// Attribute of `MLX5_IB_METHOD_DM_MAP_OP_ADDR`.
    pub const MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_PAGE_INDEX: AttrId = AttrId(0x1003);
    /// Attribute of `MLX5_IB_METHOD_DM_MAP_OP_ADDR`.
    pub const MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_START_OFFSET: AttrId = AttrId(0x1002);
    /// Attribute of `MLX5_IB_METHOD_FLOW_MATCHER_CREATE`.
    pub const MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_FLOW_MATCHER_DESTROY`.
    pub const MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_FLOW_MATCHER_CREATE`.
    pub const MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS: AttrId = AttrId(0x1004);
    /// Attribute of `MLX5_IB_METHOD_FLOW_MATCHER_CREATE`.
    pub const MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE: AttrId = AttrId(0x1002);
    /// Attribute of `MLX5_IB_METHOD_FLOW_MATCHER_CREATE`.
    pub const MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE: AttrId = AttrId(0x1005);
    /// Attribute of `MLX5_IB_METHOD_FLOW_MATCHER_CREATE`.
    pub const MLX5_IB_ATTR_FLOW_MATCHER_IB_PORT: AttrId = AttrId(0x1006);
    /// Attribute of `MLX5_IB_METHOD_FLOW_MATCHER_CREATE`.
    pub const MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA: AttrId = AttrId(0x1003);
    /// Attribute of `MLX5_IB_METHOD_FLOW_MATCHER_CREATE`.
    pub const MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK: AttrId = AttrId(0x1001);
    /// Attribute of `MLX5_IB_METHOD_GET_DATA_DIRECT_SYSFS_PATH`.
    pub const MLX5_IB_ATTR_GET_DATA_DIRECT_SYSFS_PATH: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_PP_OBJ_ALLOC`.
    pub const MLX5_IB_ATTR_PP_OBJ_ALLOC_CTX: AttrId = AttrId(0x1001);
    /// Attribute of `MLX5_IB_METHOD_PP_OBJ_ALLOC`.
    pub const MLX5_IB_ATTR_PP_OBJ_ALLOC_FLAGS: AttrId = AttrId(0x1002);
    /// Attribute of `MLX5_IB_METHOD_PP_OBJ_ALLOC`.
    pub const MLX5_IB_ATTR_PP_OBJ_ALLOC_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_PP_OBJ_ALLOC`.
    pub const MLX5_IB_ATTR_PP_OBJ_ALLOC_INDEX: AttrId = AttrId(0x1003);
    /// Attribute of `MLX5_IB_METHOD_PP_OBJ_DESTROY`.
    pub const MLX5_IB_ATTR_PP_OBJ_DESTROY_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `UVERBS_METHOD_QUERY_CONTEXT`.
    pub const MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_DM_QUERY`.
    pub const MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_DM_QUERY`.
    pub const MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH: AttrId = AttrId(0x1003);
    /// Attribute of `MLX5_IB_METHOD_DM_QUERY`.
    pub const MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX: AttrId = AttrId(0x1002);
    /// Attribute of `MLX5_IB_METHOD_DM_QUERY`.
    pub const MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET: AttrId = AttrId(0x1001);
    /// Attribute of `MLX5_IB_METHOD_PD_QUERY`.
    pub const MLX5_IB_ATTR_QUERY_PD_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_PD_QUERY`.
    pub const MLX5_IB_ATTR_QUERY_PD_RESP_PDN: AttrId = AttrId(0x1001);
    /// Attribute of `MLX5_IB_METHOD_QUERY_PORT`.
    pub const MLX5_IB_ATTR_QUERY_PORT: AttrId = AttrId(0x1001);
    /// Attribute of `MLX5_IB_METHOD_QUERY_PORT`.
    pub const MLX5_IB_ATTR_QUERY_PORT_PORT_NUM: AttrId = AttrId(0x1000);
    /// Attribute of `UVERBS_METHOD_REG_DMABUF_MR`.
    pub const MLX5_IB_ATTR_REG_DMABUF_MR_ACCESS_FLAGS: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_STEERING_ANCHOR_CREATE`.
    pub const MLX5_IB_ATTR_STEERING_ANCHOR_CREATE_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_STEERING_ANCHOR_DESTROY`.
    pub const MLX5_IB_ATTR_STEERING_ANCHOR_DESTROY_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_STEERING_ANCHOR_CREATE`.
    pub const MLX5_IB_ATTR_STEERING_ANCHOR_FT_ID: AttrId = AttrId(0x1003);
    /// Attribute of `MLX5_IB_METHOD_STEERING_ANCHOR_CREATE`.
    pub const MLX5_IB_ATTR_STEERING_ANCHOR_FT_TYPE: AttrId = AttrId(0x1001);
    /// Attribute of `MLX5_IB_METHOD_STEERING_ANCHOR_CREATE`.
    pub const MLX5_IB_ATTR_STEERING_ANCHOR_PRIORITY: AttrId = AttrId(0x1002);
    /// Attribute of `MLX5_IB_METHOD_UAR_OBJ_ALLOC`.
    pub const MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_UAR_OBJ_ALLOC`.
    pub const MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH: AttrId = AttrId(0x1003);
    /// Attribute of `MLX5_IB_METHOD_UAR_OBJ_ALLOC`.
    pub const MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET: AttrId = AttrId(0x1002);
    /// Attribute of `MLX5_IB_METHOD_UAR_OBJ_ALLOC`.
    pub const MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID: AttrId = AttrId(0x1004);
    /// Attribute of `MLX5_IB_METHOD_UAR_OBJ_ALLOC`.
    pub const MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE: AttrId = AttrId(0x1001);
    /// Attribute of `MLX5_IB_METHOD_UAR_OBJ_DESTROY`.
    pub const MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_VAR_OBJ_ALLOC`.
    pub const MLX5_IB_ATTR_VAR_OBJ_ALLOC_FLAGS: AttrId = AttrId(0x1004);
    /// Attribute of `MLX5_IB_METHOD_VAR_OBJ_ALLOC`.
    pub const MLX5_IB_ATTR_VAR_OBJ_ALLOC_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `MLX5_IB_METHOD_VAR_OBJ_ALLOC`.
    pub const MLX5_IB_ATTR_VAR_OBJ_ALLOC_MMAP_LENGTH: AttrId = AttrId(0x1002);
    /// Attribute of `MLX5_IB_METHOD_VAR_OBJ_ALLOC`.
    pub const MLX5_IB_ATTR_VAR_OBJ_ALLOC_MMAP_OFFSET: AttrId = AttrId(0x1001);
    /// Attribute of `MLX5_IB_METHOD_VAR_OBJ_ALLOC`.
    pub const MLX5_IB_ATTR_VAR_OBJ_ALLOC_PAGE_ID: AttrId = AttrId(0x1003);
    /// Attribute of `MLX5_IB_METHOD_VAR_OBJ_DESTROY`.
    pub const MLX5_IB_ATTR_VAR_OBJ_DESTROY_HANDLE: AttrId = AttrId(0x1000);
    /// Attribute of `UVERBS_METHOD_ADVISE_MR`.
    pub const UVERBS_ATTR_ADVISE_MR_ADVICE: AttrId = AttrId(0x0001);
    /// Attribute of `UVERBS_METHOD_ADVISE_MR`.
    pub const UVERBS_ATTR_ADVISE_MR_FLAGS: AttrId = AttrId(0x0002);
    /// Attribute of `UVERBS_METHOD_ADVISE_MR`.
    pub const UVERBS_ATTR_ADVISE_MR_PD_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_ADVISE_MR`.
    pub const UVERBS_ATTR_ADVISE_MR_SGE_LIST: AttrId = AttrId(0x0003);
    /// Attribute of `UVERBS_METHOD_DMABUF_ALLOC`.
    pub const UVERBS_ATTR_ALLOC_DMABUF_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_DMABUF_ALLOC`.
    pub const UVERBS_ATTR_ALLOC_DMABUF_PGOFF: AttrId = AttrId(0x0001);
    /// Attribute of `UVERBS_METHOD_DMAH_ALLOC`.
    pub const UVERBS_ATTR_ALLOC_DMAH_CPU_ID: AttrId = AttrId(0x0001);
    /// Attribute of `UVERBS_METHOD_DMAH_ALLOC`.
    pub const UVERBS_ATTR_ALLOC_DMAH_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_DMAH_ALLOC`.
    pub const UVERBS_ATTR_ALLOC_DMAH_PH: AttrId = AttrId(0x0003);
    /// Attribute of `UVERBS_METHOD_DMAH_ALLOC`.
    pub const UVERBS_ATTR_ALLOC_DMAH_TPH_MEM_TYPE: AttrId = AttrId(0x0002);
    /// Attribute of `UVERBS_METHOD_DM_ALLOC`.
    pub const UVERBS_ATTR_ALLOC_DM_ALIGNMENT: AttrId = AttrId(0x0002);
    /// Attribute of `UVERBS_METHOD_DM_ALLOC`.
    pub const UVERBS_ATTR_ALLOC_DM_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_DM_ALLOC`.
    pub const UVERBS_ATTR_ALLOC_DM_LENGTH: AttrId = AttrId(0x0001);
    /// Attribute of `UVERBS_METHOD_ASYNC_EVENT_ALLOC`.
    pub const UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_INVOKE_WRITE`.
    pub const UVERBS_ATTR_CORE_IN: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_INVOKE_WRITE`.
    pub const UVERBS_ATTR_CORE_OUT: AttrId = AttrId(0x0001);
    /// Attribute of `UVERBS_METHOD_COUNTERS_CREATE`.
    pub const UVERBS_ATTR_CREATE_COUNTERS_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_CQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_CQ_BUFFER_FD: AttrId = AttrId(0x000a);
    /// Attribute of `UVERBS_METHOD_CQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_CQ_BUFFER_LENGTH: AttrId = AttrId(0x0009);
    /// Attribute of `UVERBS_METHOD_CQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_CQ_BUFFER_OFFSET: AttrId = AttrId(0x000b);
    /// Attribute of `UVERBS_METHOD_CQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_CQ_BUFFER_VA: AttrId = AttrId(0x0008);
    /// Attribute of `UVERBS_METHOD_CQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_CQ_BUF_UMEM: AttrId = AttrId(0x000c);
    /// Attribute of `UVERBS_METHOD_CQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL: AttrId = AttrId(0x0003);
    /// Attribute of `UVERBS_METHOD_CQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_CQ_COMP_VECTOR: AttrId = AttrId(0x0004);
    /// Attribute of `UVERBS_METHOD_CQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_CQ_CQE: AttrId = AttrId(0x0001);
    /// Attribute of `UVERBS_METHOD_CQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_CQ_EVENT_FD: AttrId = AttrId(0x0007);
    /// Attribute of `UVERBS_METHOD_CQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_CQ_FLAGS: AttrId = AttrId(0x0005);
    /// Attribute of `UVERBS_METHOD_CQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_CQ_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_CQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_CQ_RESP_CQE: AttrId = AttrId(0x0006);
    /// Attribute of `UVERBS_METHOD_CQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_CQ_USER_HANDLE: AttrId = AttrId(0x0002);
    /// Attribute of `UVERBS_METHOD_QP_CREATE`.
    pub const UVERBS_ATTR_CREATE_QP_BUF_UMEM: AttrId = AttrId(0x000f);
    /// Attribute of `UVERBS_METHOD_QP_CREATE`.
    pub const UVERBS_ATTR_CREATE_QP_CAP: AttrId = AttrId(0x0008);
    /// Attribute of `UVERBS_METHOD_QP_CREATE`.
    pub const UVERBS_ATTR_CREATE_QP_EVENT_FD: AttrId = AttrId(0x000c);
    /// Attribute of `UVERBS_METHOD_QP_CREATE`.
    pub const UVERBS_ATTR_CREATE_QP_FLAGS: AttrId = AttrId(0x000a);
    /// Attribute of `UVERBS_METHOD_QP_CREATE`.
    pub const UVERBS_ATTR_CREATE_QP_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_QP_CREATE`.
    pub const UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE: AttrId = AttrId(0x0006);
    /// Attribute of `UVERBS_METHOD_QP_CREATE`.
    pub const UVERBS_ATTR_CREATE_QP_PD_HANDLE: AttrId = AttrId(0x0002);
    /// Attribute of `UVERBS_METHOD_QP_CREATE`.
    pub const UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE: AttrId = AttrId(0x0005);
    /// Attribute of `UVERBS_METHOD_QP_CREATE`.
    pub const UVERBS_ATTR_CREATE_QP_RESP_CAP: AttrId = AttrId(0x000d);
    /// Attribute of `UVERBS_METHOD_QP_CREATE`.
    pub const UVERBS_ATTR_CREATE_QP_RESP_QP_NUM: AttrId = AttrId(0x000e);
    /// Attribute of `UVERBS_METHOD_QP_CREATE`.
    pub const UVERBS_ATTR_CREATE_QP_RQ_BUF_UMEM: AttrId = AttrId(0x0010);
    /// Attribute of `UVERBS_METHOD_QP_CREATE`.
    pub const UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE: AttrId = AttrId(0x0004);
    /// Attribute of `UVERBS_METHOD_QP_CREATE`.
    pub const UVERBS_ATTR_CREATE_QP_SOURCE_QPN: AttrId = AttrId(0x000b);
    /// Attribute of `UVERBS_METHOD_QP_CREATE`.
    pub const UVERBS_ATTR_CREATE_QP_SQ_BUF_UMEM: AttrId = AttrId(0x0011);
    /// Attribute of `UVERBS_METHOD_QP_CREATE`.
    pub const UVERBS_ATTR_CREATE_QP_SRQ_HANDLE: AttrId = AttrId(0x0003);
    /// Attribute of `UVERBS_METHOD_QP_CREATE`.
    pub const UVERBS_ATTR_CREATE_QP_TYPE: AttrId = AttrId(0x0009);
    /// Attribute of `UVERBS_METHOD_QP_CREATE`.
    pub const UVERBS_ATTR_CREATE_QP_USER_HANDLE: AttrId = AttrId(0x0007);
    /// Attribute of `UVERBS_METHOD_QP_CREATE`.
    pub const UVERBS_ATTR_CREATE_QP_XRCD_HANDLE: AttrId = AttrId(0x0001);
    /// Attribute of `UVERBS_METHOD_SRQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE: AttrId = AttrId(0x0003);
    /// Attribute of `UVERBS_METHOD_SRQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_SRQ_EVENT_FD: AttrId = AttrId(0x000a);
    /// Attribute of `UVERBS_METHOD_SRQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_SRQ_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_SRQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_SRQ_LIMIT: AttrId = AttrId(0x0007);
    /// Attribute of `UVERBS_METHOD_SRQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_SRQ_MAX_NUM_TAGS: AttrId = AttrId(0x0008);
    /// Attribute of `UVERBS_METHOD_SRQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_SRQ_MAX_SGE: AttrId = AttrId(0x0006);
    /// Attribute of `UVERBS_METHOD_SRQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_SRQ_MAX_WR: AttrId = AttrId(0x0005);
    /// Attribute of `UVERBS_METHOD_SRQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_SRQ_PD_HANDLE: AttrId = AttrId(0x0001);
    /// Attribute of `UVERBS_METHOD_SRQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE: AttrId = AttrId(0x000c);
    /// Attribute of `UVERBS_METHOD_SRQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR: AttrId = AttrId(0x000b);
    /// Attribute of `UVERBS_METHOD_SRQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM: AttrId = AttrId(0x000d);
    /// Attribute of `UVERBS_METHOD_SRQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_SRQ_TYPE: AttrId = AttrId(0x0009);
    /// Attribute of `UVERBS_METHOD_SRQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_SRQ_USER_HANDLE: AttrId = AttrId(0x0004);
    /// Attribute of `UVERBS_METHOD_SRQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE: AttrId = AttrId(0x0002);
    /// Attribute of `UVERBS_METHOD_WQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_WQ_CQ_HANDLE: AttrId = AttrId(0x0002);
    /// Attribute of `UVERBS_METHOD_WQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_WQ_EVENT_FD: AttrId = AttrId(0x0005);
    /// Attribute of `UVERBS_METHOD_WQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_WQ_FLAGS: AttrId = AttrId(0x0008);
    /// Attribute of `UVERBS_METHOD_WQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_WQ_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_WQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_WQ_MAX_SGE: AttrId = AttrId(0x0007);
    /// Attribute of `UVERBS_METHOD_WQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_WQ_MAX_WR: AttrId = AttrId(0x0006);
    /// Attribute of `UVERBS_METHOD_WQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_WQ_PD_HANDLE: AttrId = AttrId(0x0001);
    /// Attribute of `UVERBS_METHOD_WQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE: AttrId = AttrId(0x000a);
    /// Attribute of `UVERBS_METHOD_WQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR: AttrId = AttrId(0x0009);
    /// Attribute of `UVERBS_METHOD_WQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM: AttrId = AttrId(0x000b);
    /// Attribute of `UVERBS_METHOD_WQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_WQ_TYPE: AttrId = AttrId(0x0004);
    /// Attribute of `UVERBS_METHOD_WQ_CREATE`.
    pub const UVERBS_ATTR_CREATE_WQ_USER_HANDLE: AttrId = AttrId(0x0003);
    /// Attribute of `UVERBS_METHOD_AH_DESTROY`.
    pub const UVERBS_ATTR_DESTROY_AH_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_COUNTERS_DESTROY`.
    pub const UVERBS_ATTR_DESTROY_COUNTERS_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_CQ_DESTROY`.
    pub const UVERBS_ATTR_DESTROY_CQ_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_CQ_DESTROY`.
    pub const UVERBS_ATTR_DESTROY_CQ_RESP: AttrId = AttrId(0x0001);
    /// Attribute of `UVERBS_METHOD_FLOW_ACTION_DESTROY`.
    pub const UVERBS_ATTR_DESTROY_FLOW_ACTION_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_FLOW_DESTROY`.
    pub const UVERBS_ATTR_DESTROY_FLOW_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_MR_DESTROY`.
    pub const UVERBS_ATTR_DESTROY_MR_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_MW_DESTROY`.
    pub const UVERBS_ATTR_DESTROY_MW_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_PD_DESTROY`.
    pub const UVERBS_ATTR_DESTROY_PD_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_QP_DESTROY`.
    pub const UVERBS_ATTR_DESTROY_QP_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_QP_DESTROY`.
    pub const UVERBS_ATTR_DESTROY_QP_RESP: AttrId = AttrId(0x0001);
    /// Attribute of `UVERBS_METHOD_RWQ_IND_TBL_DESTROY`.
    pub const UVERBS_ATTR_DESTROY_RWQ_IND_TBL_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_SRQ_DESTROY`.
    pub const UVERBS_ATTR_DESTROY_SRQ_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_SRQ_DESTROY`.
    pub const UVERBS_ATTR_DESTROY_SRQ_RESP: AttrId = AttrId(0x0001);
    /// Attribute of `UVERBS_METHOD_WQ_DESTROY`.
    pub const UVERBS_ATTR_DESTROY_WQ_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_WQ_DESTROY`.
    pub const UVERBS_ATTR_DESTROY_WQ_RESP: AttrId = AttrId(0x0001);
    /// Attribute of `UVERBS_METHOD_XRCD_DESTROY`.
    pub const UVERBS_ATTR_DESTROY_XRCD_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_DMAH_FREE`.
    pub const UVERBS_ATTR_FREE_DMA_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_DM_FREE`.
    pub const UVERBS_ATTR_FREE_DM_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_GET_CONTEXT`.
    pub const UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT: AttrId = AttrId(0x0001);
    /// Attribute of `UVERBS_METHOD_GET_CONTEXT`.
    pub const UVERBS_ATTR_GET_CONTEXT_FD_ARR: AttrId = AttrId(0x0002);
    /// Attribute of `UVERBS_METHOD_GET_CONTEXT`.
    pub const UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_INFO_HANDLES`.
    pub const UVERBS_ATTR_INFO_HANDLES_LIST: AttrId = AttrId(0x0002);
    /// Attribute of `UVERBS_METHOD_INFO_HANDLES`.
    pub const UVERBS_ATTR_INFO_OBJECT_ID: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_INFO_HANDLES`.
    pub const UVERBS_ATTR_INFO_TOTAL_HANDLES: AttrId = AttrId(0x0001);
    /// Attribute of `UVERBS_METHOD_QUERY_CONTEXT`.
    pub const UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT: AttrId = AttrId(0x0001);
    /// Attribute of `UVERBS_METHOD_QUERY_CONTEXT`.
    pub const UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_QUERY_GID_ENTRY`.
    pub const UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS: AttrId = AttrId(0x0002);
    /// Attribute of `UVERBS_METHOD_QUERY_GID_ENTRY`.
    pub const UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX: AttrId = AttrId(0x0001);
    /// Attribute of `UVERBS_METHOD_QUERY_GID_ENTRY`.
    pub const UVERBS_ATTR_QUERY_GID_ENTRY_PORT: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_QUERY_GID_ENTRY`.
    pub const UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY: AttrId = AttrId(0x0003);
    /// Attribute of `UVERBS_METHOD_QUERY_GID_TABLE`.
    pub const UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_QUERY_GID_TABLE`.
    pub const UVERBS_ATTR_QUERY_GID_TABLE_FLAGS: AttrId = AttrId(0x0001);
    /// Attribute of `UVERBS_METHOD_QUERY_GID_TABLE`.
    pub const UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES: AttrId = AttrId(0x0002);
    /// Attribute of `UVERBS_METHOD_QUERY_GID_TABLE`.
    pub const UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES: AttrId = AttrId(0x0003);
    /// Attribute of `UVERBS_METHOD_QUERY_MR`.
    pub const UVERBS_ATTR_QUERY_MR_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_QUERY_MR`.
    pub const UVERBS_ATTR_QUERY_MR_RESP_IOVA: AttrId = AttrId(0x0004);
    /// Attribute of `UVERBS_METHOD_QUERY_MR`.
    pub const UVERBS_ATTR_QUERY_MR_RESP_LENGTH: AttrId = AttrId(0x0003);
    /// Attribute of `UVERBS_METHOD_QUERY_MR`.
    pub const UVERBS_ATTR_QUERY_MR_RESP_LKEY: AttrId = AttrId(0x0001);
    /// Attribute of `UVERBS_METHOD_QUERY_MR`.
    pub const UVERBS_ATTR_QUERY_MR_RESP_RKEY: AttrId = AttrId(0x0002);
    /// Attribute of `UVERBS_METHOD_QUERY_PORT`.
    pub const UVERBS_ATTR_QUERY_PORT_PORT_NUM: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_QUERY_PORT`.
    pub const UVERBS_ATTR_QUERY_PORT_RESP: AttrId = AttrId(0x0001);
    /// Attribute of `UVERBS_METHOD_QUERY_PORT_SPEED`.
    pub const UVERBS_ATTR_QUERY_PORT_SPEED_PORT_NUM: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_QUERY_PORT_SPEED`.
    pub const UVERBS_ATTR_QUERY_PORT_SPEED_RESP: AttrId = AttrId(0x0001);
    /// Attribute of `UVERBS_METHOD_COUNTERS_READ`.
    pub const UVERBS_ATTR_READ_COUNTERS_BUFF: AttrId = AttrId(0x0001);
    /// Attribute of `UVERBS_METHOD_COUNTERS_READ`.
    pub const UVERBS_ATTR_READ_COUNTERS_FLAGS: AttrId = AttrId(0x0002);
    /// Attribute of `UVERBS_METHOD_COUNTERS_READ`.
    pub const UVERBS_ATTR_READ_COUNTERS_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_REG_DMABUF_MR`.
    pub const UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS: AttrId = AttrId(0x0006);
    /// Attribute of `UVERBS_METHOD_REG_DMABUF_MR`.
    pub const UVERBS_ATTR_REG_DMABUF_MR_FD: AttrId = AttrId(0x0005);
    /// Attribute of `UVERBS_METHOD_REG_DMABUF_MR`.
    pub const UVERBS_ATTR_REG_DMABUF_MR_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_REG_DMABUF_MR`.
    pub const UVERBS_ATTR_REG_DMABUF_MR_IOVA: AttrId = AttrId(0x0004);
    /// Attribute of `UVERBS_METHOD_REG_DMABUF_MR`.
    pub const UVERBS_ATTR_REG_DMABUF_MR_LENGTH: AttrId = AttrId(0x0003);
    /// Attribute of `UVERBS_METHOD_REG_DMABUF_MR`.
    pub const UVERBS_ATTR_REG_DMABUF_MR_OFFSET: AttrId = AttrId(0x0002);
    /// Attribute of `UVERBS_METHOD_REG_DMABUF_MR`.
    pub const UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE: AttrId = AttrId(0x0001);
    /// Attribute of `UVERBS_METHOD_REG_DMABUF_MR`.
    pub const UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY: AttrId = AttrId(0x0007);
    /// Attribute of `UVERBS_METHOD_REG_DMABUF_MR`.
    pub const UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY: AttrId = AttrId(0x0008);
    /// Attribute of `UVERBS_METHOD_DM_MR_REG`.
    pub const UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS: AttrId = AttrId(0x0004);
    /// Attribute of `UVERBS_METHOD_DM_MR_REG`.
    pub const UVERBS_ATTR_REG_DM_MR_DM_HANDLE: AttrId = AttrId(0x0005);
    /// Attribute of `UVERBS_METHOD_DM_MR_REG`.
    pub const UVERBS_ATTR_REG_DM_MR_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_DM_MR_REG`.
    pub const UVERBS_ATTR_REG_DM_MR_LENGTH: AttrId = AttrId(0x0002);
    /// Attribute of `UVERBS_METHOD_DM_MR_REG`.
    pub const UVERBS_ATTR_REG_DM_MR_OFFSET: AttrId = AttrId(0x0001);
    /// Attribute of `UVERBS_METHOD_DM_MR_REG`.
    pub const UVERBS_ATTR_REG_DM_MR_PD_HANDLE: AttrId = AttrId(0x0003);
    /// Attribute of `UVERBS_METHOD_DM_MR_REG`.
    pub const UVERBS_ATTR_REG_DM_MR_RESP_LKEY: AttrId = AttrId(0x0006);
    /// Attribute of `UVERBS_METHOD_DM_MR_REG`.
    pub const UVERBS_ATTR_REG_DM_MR_RESP_RKEY: AttrId = AttrId(0x0007);
    /// Attribute of `UVERBS_METHOD_REG_MR`.
    pub const UVERBS_ATTR_REG_MR_ACCESS_FLAGS: AttrId = AttrId(0x0006);
    /// Attribute of `UVERBS_METHOD_REG_MR`.
    pub const UVERBS_ATTR_REG_MR_ADDR: AttrId = AttrId(0x0004);
    /// Attribute of `UVERBS_METHOD_REG_MR`.
    pub const UVERBS_ATTR_REG_MR_DMA_HANDLE: AttrId = AttrId(0x0002);
    /// Attribute of `UVERBS_METHOD_REG_MR`.
    pub const UVERBS_ATTR_REG_MR_FD: AttrId = AttrId(0x0007);
    /// Attribute of `UVERBS_METHOD_REG_MR`.
    pub const UVERBS_ATTR_REG_MR_FD_OFFSET: AttrId = AttrId(0x0008);
    /// Attribute of `UVERBS_METHOD_REG_MR`.
    pub const UVERBS_ATTR_REG_MR_HANDLE: AttrId = AttrId(0x0000);
    /// Attribute of `UVERBS_METHOD_REG_MR`.
    pub const UVERBS_ATTR_REG_MR_IOVA: AttrId = AttrId(0x0003);
    /// Attribute of `UVERBS_METHOD_REG_MR`.
    pub const UVERBS_ATTR_REG_MR_LENGTH: AttrId = AttrId(0x0005);
    /// Attribute of `UVERBS_METHOD_REG_MR`.
    pub const UVERBS_ATTR_REG_MR_PD_HANDLE: AttrId = AttrId(0x0001);
    /// Attribute of `UVERBS_METHOD_REG_MR`.
    pub const UVERBS_ATTR_REG_MR_RESP_LKEY: AttrId = AttrId(0x0009);
    /// Attribute of `UVERBS_METHOD_REG_MR`.
    pub const UVERBS_ATTR_REG_MR_RESP_RKEY: AttrId = AttrId(0x000a);
    /// Attribute of `UVERBS_METHOD_INVOKE_WRITE`.
    pub const UVERBS_ATTR_UHW_IN: AttrId = AttrId(0x1000);
    /// Attribute of `UVERBS_METHOD_INVOKE_WRITE`.
    pub const UVERBS_ATTR_UHW_OUT: AttrId = AttrId(0x1001);
    /// Attribute of `UVERBS_METHOD_INVOKE_WRITE`.
    pub const UVERBS_ATTR_WRITE_CMD: AttrId = AttrId(0x0002);
    /// `struct ib_uverbs_get_context`.
    pub const IB_USER_VERBS_CMD_GET_CONTEXT: u64 = 0x0;
    /// `struct ib_uverbs_query_device`.
    pub const IB_USER_VERBS_CMD_QUERY_DEVICE: u64 = 0x1;
    /// `struct ib_uverbs_query_port`.
    pub const IB_USER_VERBS_CMD_QUERY_PORT: u64 = 0x2;
    /// `struct ib_uverbs_alloc_pd`.
    pub const IB_USER_VERBS_CMD_ALLOC_PD: u64 = 0x3;
    /// `struct ib_uverbs_dealloc_pd`.
    pub const IB_USER_VERBS_CMD_DEALLOC_PD: u64 = 0x4;
    /// `struct ib_uverbs_create_ah`.
    pub const IB_USER_VERBS_CMD_CREATE_AH: u64 = 0x5;
    /// `struct ib_uverbs_destroy_ah`.
    pub const IB_USER_VERBS_CMD_DESTROY_AH: u64 = 0x8;
    /// `struct ib_uverbs_reg_mr`.
    pub const IB_USER_VERBS_CMD_REG_MR: u64 = 0x9;
    /// `struct ib_uverbs_rereg_mr`.
    pub const IB_USER_VERBS_CMD_REREG_MR: u64 = 0xb;
    /// `struct ib_uverbs_dereg_mr`.
    pub const IB_USER_VERBS_CMD_DEREG_MR: u64 = 0xd;
    /// `struct ib_uverbs_alloc_mw`.
    pub const IB_USER_VERBS_CMD_ALLOC_MW: u64 = 0xe;
    /// `struct ib_uverbs_dealloc_mw`.
    pub const IB_USER_VERBS_CMD_DEALLOC_MW: u64 = 0x10;
    /// `struct ib_uverbs_create_comp_channel`.
    pub const IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL: u64 = 0x11;
    /// `struct ib_uverbs_create_cq`.
    pub const IB_USER_VERBS_CMD_CREATE_CQ: u64 = 0x12;
    /// `struct ib_uverbs_resize_cq`.
    pub const IB_USER_VERBS_CMD_RESIZE_CQ: u64 = 0x13;
    /// `struct ib_uverbs_destroy_cq`.
    pub const IB_USER_VERBS_CMD_DESTROY_CQ: u64 = 0x14;
    /// `struct ib_uverbs_poll_cq`.
    pub const IB_USER_VERBS_CMD_POLL_CQ: u64 = 0x15;
    /// `struct ib_uverbs_req_notify_cq`.
    pub const IB_USER_VERBS_CMD_REQ_NOTIFY_CQ: u64 = 0x17;
    /// `struct ib_uverbs_create_qp`.
    pub const IB_USER_VERBS_CMD_CREATE_QP: u64 = 0x18;
    /// `struct ib_uverbs_query_qp`.
    pub const IB_USER_VERBS_CMD_QUERY_QP: u64 = 0x19;
    /// `struct ib_uverbs_modify_qp`.
    pub const IB_USER_VERBS_CMD_MODIFY_QP: u64 = 0x1a;
    /// `struct ib_uverbs_destroy_qp`.
    pub const IB_USER_VERBS_CMD_DESTROY_QP: u64 = 0x1b;
    /// `struct ib_uverbs_post_send`.
    pub const IB_USER_VERBS_CMD_POST_SEND: u64 = 0x1c;
    /// `struct ib_uverbs_post_recv`.
    pub const IB_USER_VERBS_CMD_POST_RECV: u64 = 0x1d;
    /// `struct ib_uverbs_attach_mcast`.
    pub const IB_USER_VERBS_CMD_ATTACH_MCAST: u64 = 0x1e;
    /// `struct ib_uverbs_detach_mcast`.
    pub const IB_USER_VERBS_CMD_DETACH_MCAST: u64 = 0x1f;
    /// `struct ib_uverbs_create_srq`.
    pub const IB_USER_VERBS_CMD_CREATE_SRQ: u64 = 0x20;
    /// `struct ib_uverbs_modify_srq`.
    pub const IB_USER_VERBS_CMD_MODIFY_SRQ: u64 = 0x21;
    /// `struct ib_uverbs_query_srq`.
    pub const IB_USER_VERBS_CMD_QUERY_SRQ: u64 = 0x22;
    /// `struct ib_uverbs_destroy_srq`.
    pub const IB_USER_VERBS_CMD_DESTROY_SRQ: u64 = 0x23;
    /// `struct ib_uverbs_post_srq_recv`.
    pub const IB_USER_VERBS_CMD_POST_SRQ_RECV: u64 = 0x24;
    /// `struct ib_uverbs_open_xrcd`.
    pub const IB_USER_VERBS_CMD_OPEN_XRCD: u64 = 0x25;
    /// `struct ib_uverbs_close_xrcd`.
    pub const IB_USER_VERBS_CMD_CLOSE_XRCD: u64 = 0x26;
    /// `struct ib_uverbs_create_xsrq`.
    pub const IB_USER_VERBS_CMD_CREATE_XSRQ: u64 = 0x27;
    /// `struct ib_uverbs_open_qp`.
    pub const IB_USER_VERBS_CMD_OPEN_QP: u64 = 0x28;
    /// `struct ib_uverbs_ex_query_device`.
    pub const IB_USER_VERBS_EX_CMD_QUERY_DEVICE: u64 = 0x80000001;
    /// `struct ib_uverbs_ex_create_cq`.
    pub const IB_USER_VERBS_EX_CMD_CREATE_CQ: u64 = 0x80000012;
    /// `struct ib_uverbs_ex_create_qp`.
    pub const IB_USER_VERBS_EX_CMD_CREATE_QP: u64 = 0x80000018;
    /// `struct ib_uverbs_ex_modify_qp`.
    pub const IB_USER_VERBS_EX_CMD_MODIFY_QP: u64 = 0x8000001a;
    /// `struct ib_uverbs_create_flow`.
    pub const IB_USER_VERBS_EX_CMD_CREATE_FLOW: u64 = 0x80000032;
    /// `struct ib_uverbs_destroy_flow`.
    pub const IB_USER_VERBS_EX_CMD_DESTROY_FLOW: u64 = 0x80000033;
    /// `struct ib_uverbs_ex_create_wq`.
    pub const IB_USER_VERBS_EX_CMD_CREATE_WQ: u64 = 0x80000034;
    /// `struct ib_uverbs_ex_modify_wq`.
    pub const IB_USER_VERBS_EX_CMD_MODIFY_WQ: u64 = 0x80000035;
    /// `struct ib_uverbs_ex_destroy_wq`.
    pub const IB_USER_VERBS_EX_CMD_DESTROY_WQ: u64 = 0x80000036;
    /// `struct ib_uverbs_ex_create_rwq_ind_table`.
    pub const IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL: u64 = 0x80000037;
    /// `struct ib_uverbs_ex_destroy_rwq_ind_table`.
    pub const IB_USER_VERBS_EX_CMD_DESTROY_RWQ_IND_TBL: u64 = 0x80000038;
    /// `struct ib_uverbs_ex_modify_cq`.
    pub const IB_USER_VERBS_EX_CMD_MODIFY_CQ: u64 = 0x80000039;
}
