//! The optional inputs of the core's methods that pass with their method.
//!
//! A profile names methods, not attributes. With a method pass the attributes that the kernel demands
//! for it, and of the optional ones those of this list. Every other one is refused, but for `everything`:
//! an attribute that a newer kernel adds is out of reach until somebody has looked at it, even if the
//! tables have it. Private input and the legacy commands are judged by themselves. A driver's own method
//! passes whole, since a profile names that driver.

use std::collections::HashSet;
use std::sync::LazyLock;

use verbgate_abi::ids;
use verbgate_abi::table;
use verbgate_abi::table::AttrSpec;
use verbgate_abi::table::MethodSpec;
use verbgate_abi::table::Provider;
use verbgate_abi::wire::AttrId;

use super::MethodKey;
use super::key;

/// Attributes, and why they pass with their methods.
const PASS: &[(&[&str], &str)] = &[
    (
        &[
            "CREATE_CQ_COMP_CHANNEL",
            "CREATE_CQ_EVENT_FD",
            "CREATE_QP_XRCD_HANDLE",
            "CREATE_QP_PD_HANDLE",
            "CREATE_QP_SRQ_HANDLE",
            "CREATE_QP_SEND_CQ_HANDLE",
            "CREATE_QP_RECV_CQ_HANDLE",
            "CREATE_QP_EVENT_FD",
            "CREATE_SRQ_XRCD_HANDLE",
            "CREATE_SRQ_CQ_HANDLE",
            "CREATE_SRQ_EVENT_FD",
            "CREATE_WQ_CQ_HANDLE",
            "CREATE_WQ_EVENT_FD",
            "REG_MR_DMA_HANDLE",
        ],
        "an object of the guest's own ucontext, which the policy has let the guest make",
    ),
    (
        &[
            "CREATE_CQ_BUFFER_VA",
            "CREATE_CQ_BUFFER_LENGTH",
            "CREATE_CQ_BUFFER_FD",
            "CREATE_CQ_BUFFER_OFFSET",
            "CREATE_CQ_BUF_UMEM",
            "CREATE_QP_BUF_UMEM",
            "CREATE_QP_RQ_BUF_UMEM",
            "CREATE_QP_SQ_BUF_UMEM",
            "REG_MR_ADDR",
            "REG_MR_FD",
            "REG_MR_FD_OFFSET",
        ],
        "the guest's own memory or dma-buf, pinned in the guest's rights",
    ),
    (&["REG_DM_MR_ACCESS_FLAGS", "REG_DMABUF_MR_ACCESS_FLAGS"], "a value that rules.access judges"),
    (
        &[
            "CREATE_CQ_FLAGS",
            "CREATE_QP_FLAGS",
            "CREATE_SRQ_MAX_NUM_TAGS",
            "QUERY_GID_TABLE_FLAGS",
            "READ_COUNTERS_FLAGS",
            "ALLOC_DMAH_TPH_MEM_TYPE",
            "ALLOC_DMAH_PH",
        ],
        "the manner of the guest's own object or answer, which nobody else sees",
    ),
    (
        // cpumask_test_cpu(.., current->cpus_ptr), drivers/infiniband/core/uverbs_std_types_dmah.c.
        &["ALLOC_DMAH_CPU_ID"],
        "a processor on which the stub may run, or the kernel refuses",
    ),
    (
        // ib_get_ucaps, drivers/infiniband/core/ucaps.c.
        &["GET_CONTEXT_FD_ARR"],
        "open nodes of the guest's own, which say what else the guest may do",
    ),
];

/// By which optional inputs a guest would reach more than its own.
const REASONS: [(AttrId, &str); 2] = [
    // UD with a source number of one's choice speaks for another queue pair; the ioctl path does
    // not ask for CAP_NET_RAW, as the legacy command does.
    (ids::UVERBS_ATTR_CREATE_QP_SOURCE_QPN, super::refusal::SOURCE_QPN),
    // Receives what flow steering spreads.
    (ids::UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, "indirection table not granted"),
];

static PASSING: LazyLock<HashSet<(MethodKey, AttrId)>> = LazyLock::new(|| {
    let named = |spec: &&AttrSpec| {
        is_optional(spec) && PASS.iter().any(|(names, _)| names.contains(&spec.short_name()))
    };
    let of = |method: &'static MethodSpec| {
        method.attrs.iter().filter(named).map(move |spec| (key(method), spec.id))
    };
    table::methods()
        .iter()
        .filter(|method| method.provider == Provider::Core)
        .flat_map(of)
        .collect()
});

/// An optional input of the core's that nobody judges by another rule.
fn is_optional(spec: &AttrSpec) -> bool {
    spec.provider == Provider::Core && !spec.mandatory && !spec.is_output() && !spec.is_uhw_in()
}

/// Makes the table, which the first request would wait for.
pub(crate) fn prepare() {
    LazyLock::force(&PASSING);
}

/// Why an attribute does not pass with its method, if it does not.
pub(super) fn withheld(method: &MethodSpec, spec: &AttrSpec) -> Option<&'static str> {
    if method.provider != Provider::Core {
        return None;
    }
    if spec.provider != Provider::Core {
        // mlx5's and bnxt_re's name doorbells, pages and kinds of memory beyond what the core knows.
        let added = !spec.is_output() && !spec.mandatory;
        return added.then_some("driver attribute not granted");
    }
    // What INVOKE_WRITE carries is a command, which is judged.
    if !is_optional(spec) || method.is_invoke_write() || PASSING.contains(&(key(method), spec.id)) {
        return None;
    }
    let of_create =
        method.object == ids::UVERBS_OBJECT_QP && method.id == ids::UVERBS_METHOD_QP_CREATE;
    let known = REASONS.iter().find(|(id, _)| of_create && *id == spec.id);
    Some(known.map_or("attribute not granted", |(_, reason)| reason))
}

#[cfg(test)]
mod tests {
    use verbgate_abi::residue::RESIDUE;
    use verbgate_abi::residue::Why;
    use verbgate_abi::table::AttrKind;
    use verbgate_abi::table::FdPayload;
    use verbgate_abi::table::Kernels;

    use super::*;

    fn optional() -> impl Iterator<Item = (&'static MethodSpec, &'static AttrSpec)> {
        let methods = table::methods()
            .iter()
            .filter(|method| method.provider == Provider::Core && !method.is_invoke_write());
        methods.flat_map(|method| {
            method.attrs.iter().filter(|spec| is_optional(spec)).map(move |spec| (method, spec))
        })
    }

    #[test]
    fn every_row_is_of_one_attribute_and_has_a_reason() {
        let rows: Vec<&str> = PASS.iter().flat_map(|(names, _)| names.iter().copied()).collect();
        for name in &rows {
            let found = optional().filter(|(_, spec)| spec.short_name() == *name);
            assert_eq!(found.count(), 1, "{name}");
        }
        assert_eq!(rows.len(), PASSING.len());
        assert!(PASS.iter().all(|(_, why)| why.len() > 20));
    }

    /// Somebody has decided of each optional attribute: this fails when the tables grow.
    #[test]
    fn two_optional_attributes_do_not_pass_and_all_others_have_a_reason() {
        let mut refused: Vec<&str> = optional()
            .filter(|(method, spec)| withheld(method, spec).is_some())
            .map(|(_, spec)| spec.short_name())
            .collect();
        refused.sort_unstable();
        assert_eq!(refused, ["CREATE_QP_IND_TABLE_HANDLE", "CREATE_QP_SOURCE_QPN"]);
    }

    #[test]
    fn an_attribute_that_nobody_has_looked_at_does_not_pass() {
        let method = table::methods().iter().find(|method| method.full_name() == "MR.REG_MR");
        let of = |mandatory| AttrSpec {
            name: "UVERBS_ATTR_REG_MR_OF_TOMORROW",
            id: AttrId(0xfff),
            provider: Provider::Core,
            kind: AttrKind::ConstIn,
            mandatory,
            kernels: Kernels::empty(),
            fd_payload: FdPayload::None,
            ctype: "",
        };
        assert_eq!(withheld(method.unwrap(), &of(false)), Some("attribute not granted"));
        assert_eq!(withheld(method.unwrap(), &of(true)), None);
    }

    /// A racing thread could add these, so a judgement of them would be none.
    #[test]
    fn an_attribute_that_can_be_smuggled_in_passes_anyhow() {
        let not_judged = RESIDUE.iter().filter(|row| row.why == Why::NotJudged);
        for row in not_judged {
            let of = |method: &&MethodSpec| method.name == row.method;
            let method = table::methods().iter().find(of).unwrap();
            let spec = method.attrs.iter().find(|spec| spec.name == row.attr).unwrap();
            assert_eq!(withheld(method, spec), None, "{}", row.attr);
        }
    }
}
