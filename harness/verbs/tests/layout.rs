//! The declarations of libibverbs against the machine's own header, by the C compiler.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::mem::offset_of;
use std::mem::size_of;
use std::path::Path;
use std::process::Command;

use verbgate_verbs::ffi;
use verbgate_verbs::ffi::extended::InitAttrEx;
use verbgate_verbs::ffi::extended::QueuePairEx;

/// The C expression and what it must be.
fn expected() -> Vec<(&'static str, usize)> {
    vec![
        ("offsetof(struct ibv_context, ops.poll_cq)", offset_of!(ffi::RawContext, poll_cq)),
        (
            "offsetof(struct ibv_context, ops.req_notify_cq)",
            offset_of!(ffi::RawContext, req_notify_cq),
        ),
        ("offsetof(struct ibv_context, ops.post_send)", offset_of!(ffi::RawContext, post_send)),
        ("offsetof(struct ibv_context, ops.post_recv)", offset_of!(ffi::RawContext, post_recv)),
        ("offsetof(struct ibv_context, cmd_fd)", offset_of!(ffi::RawContext, cmd_fd)),
        ("offsetof(struct ibv_comp_channel, fd)", offset_of!(ffi::CompletionChannel, fd)),
        ("offsetof(struct ibv_mr, lkey)", offset_of!(ffi::MemoryRegion, lkey)),
        ("offsetof(struct ibv_mr, rkey)", offset_of!(ffi::MemoryRegion, rkey)),
        ("offsetof(struct ibv_qp, qp_num)", offset_of!(ffi::RawQueuePair, qp_num)),
        ("offsetof(struct ibv_device_attr, max_qp_wr)", offset_of!(ffi::DeviceAttr, max_qp_wr)),
        ("offsetof(struct ibv_device_attr, max_sge)", offset_of!(ffi::DeviceAttr, max_sge)),
        ("offsetof(struct ibv_device_attr, max_cqe)", offset_of!(ffi::DeviceAttr, max_cqe)),
        (
            "offsetof(struct ibv_device_attr, max_qp_rd_atom)",
            offset_of!(ffi::DeviceAttr, max_qp_rd_atom),
        ),
        ("offsetof(struct ibv_device_attr, atomic_cap)", offset_of!(ffi::DeviceAttr, atomic_cap)),
        ("sizeof(struct ibv_device_attr)", size_of::<ffi::DeviceAttr>()),
        ("offsetof(struct ibv_port_attr, max_msg_sz)", offset_of!(ffi::PortAttr, max_msg_sz)),
        ("offsetof(struct ibv_port_attr, lid)", offset_of!(ffi::PortAttr, lid)),
        ("sizeof(struct ibv_port_attr)", size_of::<ffi::PortAttr>()),
        ("sizeof(struct ibv_qp_init_attr)", size_of::<ffi::QueuePairInitAttr>()),
        ("offsetof(struct ibv_qp_init_attr, cap)", offset_of!(ffi::QueuePairInitAttr, cap)),
        ("sizeof(struct ibv_ah_attr)", size_of::<ffi::AddressAttr>()),
        ("offsetof(struct ibv_ah_attr, grh.sgid_index)", offset_of!(ffi::AddressAttr, sgid_index)),
        ("offsetof(struct ibv_ah_attr, is_global)", offset_of!(ffi::AddressAttr, is_global)),
        ("sizeof(struct ibv_qp_attr)", size_of::<ffi::QueuePairAttr>()),
        ("offsetof(struct ibv_qp_attr, ah_attr)", offset_of!(ffi::QueuePairAttr, ah_attr)),
        ("offsetof(struct ibv_qp_attr, timeout)", offset_of!(ffi::QueuePairAttr, timeout)),
        ("sizeof(struct ibv_send_wr)", size_of::<ffi::SendRequest>()),
        ("offsetof(struct ibv_send_wr, imm_data)", offset_of!(ffi::SendRequest, imm_data)),
        ("offsetof(struct ibv_send_wr, wr.rdma.rkey)", offset_of!(ffi::SendRequest, compare_add)),
        ("offsetof(struct ibv_send_wr, wr.atomic.swap)", offset_of!(ffi::SendRequest, swap)),
        ("offsetof(struct ibv_send_wr, wr.atomic.rkey)", offset_of!(ffi::SendRequest, atomic_rkey)),
        ("offsetof(struct ibv_send_wr, qp_type)", offset_of!(ffi::SendRequest, xrc_remote_srqn)),
        ("sizeof(struct ibv_recv_wr)", size_of::<ffi::ReceiveRequest>()),
        ("sizeof(struct ibv_wc)", size_of::<ffi::Completion>()),
        ("offsetof(struct ibv_wc, qp_num)", offset_of!(ffi::Completion, qp_num)),
        ("offsetof(struct ibv_send_wr, wr.ud.ah)", offset_of!(ffi::SendRequest, remote_addr)),
        (
            "offsetof(struct ibv_send_wr, wr.ud.remote_qpn)",
            offset_of!(ffi::SendRequest, compare_add),
        ),
        ("offsetof(struct ibv_qp_ex, wr_id)", offset_of!(QueuePairEx, wr_id)),
        ("offsetof(struct ibv_qp_ex, wr_flags)", offset_of!(QueuePairEx, wr_flags)),
        ("offsetof(struct ibv_qp_ex, wr_rdma_read)", offset_of!(QueuePairEx, wr_rdma_read)),
        ("offsetof(struct ibv_qp_ex, wr_send_imm)", offset_of!(QueuePairEx, wr_send_imm)),
        ("offsetof(struct ibv_qp_ex, wr_set_ud_addr)", offset_of!(QueuePairEx, wr_set_ud_addr)),
        (
            "offsetof(struct ibv_qp_ex, wr_set_inline_data)",
            offset_of!(QueuePairEx, wr_set_inline_data),
        ),
        ("offsetof(struct ibv_qp_ex, wr_set_sge_list)", offset_of!(QueuePairEx, wr_set_sge_list)),
        ("offsetof(struct ibv_qp_ex, wr_start)", offset_of!(QueuePairEx, wr_start)),
        ("offsetof(struct ibv_qp_ex, wr_abort)", offset_of!(QueuePairEx, wr_abort)),
        ("sizeof(struct ibv_qp_init_attr_ex)", size_of::<InitAttrEx>()),
        ("offsetof(struct ibv_qp_init_attr_ex, comp_mask)", offset_of!(InitAttrEx, comp_mask)),
        ("offsetof(struct ibv_qp_init_attr_ex, pd)", offset_of!(InitAttrEx, pd)),
        (
            "offsetof(struct ibv_qp_init_attr_ex, send_ops_flags)",
            offset_of!(InitAttrEx, send_ops_flags),
        ),
        ("sizeof(struct ibv_grh)", verbgate_verbs::GRH),
        ("IBV_QPT_UD", 4),
        ("IBV_QPT_DRIVER", 0xff),
        ("IBV_QP_QKEY", 1 << 6),
        ("IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM", 3),
        ("IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM", 12),
        ("IBV_QP_EX_WITH_RDMA_READ", 16),
        ("IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS", 65),
        ("IBV_QPT_RC", 2),
        ("IBV_QPS_RTS", 3),
        ("IBV_QPS_ERR", 6),
        ("IBV_SEND_SIGNALED", 2),
        ("IBV_SEND_INLINE", 8),
        ("IBV_WR_ATOMIC_FETCH_AND_ADD", 6),
        ("IBV_ACCESS_REMOTE_ATOMIC", 8),
    ]
}

#[test]
fn structures_are_as_the_header_has_them() {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        println!("SKIPPED: needs infiniband/verbs.h, of the package libibverbs-dev");
        return;
    }
    let expected = expected();
    let mut source = "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\n\
                      int main(void) {\n"
        .to_owned();
    for (index, (expression, _)) in expected.iter().enumerate() {
        writeln!(source, "printf(\"{index} %zu\\n\", (size_t)({expression}));").unwrap();
    }
    source += "return 0; }\n";
    let dir = tempfile::tempdir().unwrap();
    let (file, program) = (dir.path().join("layout.c"), dir.path().join("layout"));
    std::fs::write(&file, source).unwrap();
    match Command::new("cc").arg("-o").arg(&program).arg(&file).status() {
        Err(e) => return println!("SKIPPED: needs a C compiler: {e}"),
        Ok(status) => assert!(status.success()),
    }
    let output = Command::new(&program).output().unwrap();
    let found: BTreeMap<usize, usize> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(index, value)| (index.parse().unwrap(), value.parse().unwrap()))
        .collect();
    assert_eq!(found.len(), expected.len());
    for (index, (expression, ours)) in expected.iter().enumerate() {
        assert_eq!(found.get(&index), Some(ours), "{expression}");
    }
}
