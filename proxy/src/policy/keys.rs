//! The keys of a policy file, for the manual page and for the JSON schema. A test compares the list
//! with the keys that are read.

/// What a key holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holds {
    /// A text.
    Text,
    /// A list of texts.
    Texts,
    /// A number.
    Number,
    /// A list of numbers.
    Numbers,
    /// `true` or `false`.
    Flag,
    /// A table of this name.
    Table(&'static str),
    /// A list of such tables.
    Tables(&'static str),
    /// Such tables, by names of one's own.
    Named(&'static str),
    /// Texts, by names of one's own.
    NamedTexts,
    /// Such tables, by two names: a command or a driver's operation, and a field.
    Fields(&'static str),
    /// The same, where `"any"` stands for every value.
    FieldsOrAny(&'static str),
}

/// A key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The kind of table that has the key.
    pub table: &'static str,
    /// The key.
    pub name: &'static str,
    /// What the key holds.
    pub holds: Holds,
    /// Whether the key must be there.
    pub needed: bool,
    /// What the key means.
    pub text: &'static str,
}

const fn key(table: &'static str, name: &'static str, holds: Holds, text: &'static str) -> Key {
    Key { table, name, holds, needed: false, text }
}

const fn needed(key: Key) -> Key {
    Key { needed: true, ..key }
}

/// The table that a whole file is.
pub const FILE: &str = "file";

/// All keys.
#[rustfmt::skip]
pub const KEYS: [Key; 86] = [
    needed(key(FILE, "version", Holds::Number, "Version of the schema: 1.")),
    key(FILE, "profile", Holds::Named("profile"), "Profiles, each by a name of your own. Every file of the directory knows the profiles of all files."),
    key(FILE, "tenant", Holds::Named("tenant"), "Tenants, each by a name of your own."),

    key("profile", "name", Holds::Text, "Name of a profile that an embedding program brings; in a file, the heading is the name."),
    key("profile", "extends", Holds::Text, "Profile to begin with: standard, hpc, full, or one of these files. Without the key, a profile grants nothing but what the profile names."),
    key("profile", "everything", Holds::Flag, "Grants every method, command, queue pair type, attribute and private input. For tests, and for programs that you would trust with the device."),
    key("profile", "rdma_cm", Holds::Flag, "Whether programs get the connection manager, /dev/infiniband/rdma_cm."),
    key("profile", "qp_types", Holds::Texts, "Queue pair types to add: RC, UC, UD, RAW_PACKET, XRC_INI, XRC_TGT, efa:SRD, mlx5:DC."),
    key("profile", "methods", Holds::Texts, "Methods to add, as `verbgate abi list` prints them, with the attributes that the kernel demands, and the optional ones of the core that reach no further than the method. DEVICE.QUERY_PORT is the core's, mlx5:DEVICE.QUERY_PORT is a driver's own."),
    key("profile", "commands", Holds::Texts, "Legacy commands to add, as `verbgate abi list` prints them."),
    key("profile", "remove", Holds::Table("remove"), "Names to take away from the profile that this one extends."),
    key("profile", "rules", Holds::Table("rules"), "Limits on values. A key replaces the same key of the profile that this one extends."),
    key("profile", "private", Holds::FieldsOrAny("private field"), "Fields of drivers' private input that pass, by driver:OPERATION and by the field's name in include/uapi/rdma. Addresses, lengths and handles pass with the operation; all other bytes must be zero."),

    key("remove", "qp_types", Holds::Texts, "Queue pair types. Remove UD, mlx5:DC and efa:SRD where peers must be bound (rules.peers): their work requests name destinations, which nobody checks."),
    key("remove", "methods", Holds::Texts, "Methods."),
    key("remove", "commands", Holds::Texts, "Legacy commands."),

    key("rules", "access", Holds::Texts, "Access flags that memory regions and queue pairs may have: LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC, MW_BIND, ZERO_BASED, ON_DEMAND, HUGETLB, FLUSH_GLOBAL, FLUSH_PERSISTENT, RELAXED_ORDERING."),
    key("rules", "region_bytes", Holds::Table("predicate"), "Bytes of a memory region."),
    key("rules", "peers", Holds::Texts, "Ranges of addresses, as 10.7.0.0/16 or fe80::/64, of the destinations of connections, alternate paths, address handles, multicast groups and rdma_cm. Datagrams of UD, mlx5:DC and efa:SRD name their destination in the work request, which nobody checks: remove these types, too."),
    key("rules", "ports", Holds::Texts, "Ranges of ports, as 1024-65535, that ids of rdma_cm may be bound to by number and may listen at. A port of the kernel's choice passes for who connects, and not for who listens; a service of InfiniBand (AF_IB) does not pass."),
    key("rules", "peer_qp", Holds::Table("predicate"), "Numbers of destination queue pairs. The standard profile has min = 2: 0 and 1 belong to the fabric's managers."),
    key("rules", "service_level", Holds::Table("predicate"), "Service level (RoCE: priority) of paths."),
    key("rules", "traffic_class", Holds::Table("predicate"), "Traffic class of paths: DSCP and ECN of RoCE v2."),
    key("rules", "static_rate", Holds::Table("predicate"), "Rate of paths, enum ib_rate; 0 is the port's."),
    key("rules", "rate_limit", Holds::Table("predicate"), "Rate limit of a queue pair, in kilobits a second."),
    key("rules", "vector", Holds::Table("predicate"), "Completion vectors: the processors that are interrupted. Which processor a vector interrupts the kernel does not tell programs; /proc/interrupts has the drivers' names of interrupts, with their counts. So a word, such as \"cpuset\", is refused: write numbers, and bind the interrupts (irqbalance, /proc/irq)."),
    key("rules", "pkeys", Holds::Numbers, "P_Keys that queue pairs and rdma_cm may have, full or limited members alike."),
    key("rules", "gid_types", Holds::Texts, "Types of the source GID: IB, RoCE v1, RoCE v2. GIDs of other types are shown and cannot be used."),
    key("rules", "quota", Holds::Table("quota"), "The most that the tenant may hold, all sandboxes of the tenant together; of a profile without a tenant, each sandbox. A key replaces the same key of the profile. Refused with EAGAIN, as the kernel's rdma cgroup refuses, and mr_bytes, cqe and wr with ENOMEM. Descriptors of events are not counted: RLIMIT_NOFILE bounds them."),
    key("rules", "rate", Holds::Table("rate"), "How often the tenant makes requests of devices and of rdma_cm, all sandboxes of the tenant together; of a profile without a tenant, each sandbox. Data moves without requests."),
    key("rules", "rates", Holds::Table("rates"), "How often the tenant makes requests of a class of verbs, besides the rate of all requests. Requests that move data (Soft-RoCE's doorbells), and drivers' own methods, are of no class."),
    key("rules", "shared_ud", Holds::Flag, "Whether queue pairs of UD and mlx5:DC pass where others speak by the port, of RoCE, and the driver is none of efa, irdma, bnxt_re and ionic. There, the sender writes the index of the source GID into the work request, which nobody checks, and can speak as another tenant: for tenants who trust each other. The profile full has it."),
    key("rules", "fields", Holds::Fields("predicate"), "Any number of a request, by command or method, and by field or attribute, as `verbgate abi list` prints them."),

    needed(key("tenant", "match", Holds::Table("match"), "Who the tenant is. All conditions that are given must hold. A sandbox that matches no tenant gets no RDMA; a sandbox that matches two is refused.")),
    needed(key("tenant", "profile", Holds::Text, "The tenant's profile.")),
    key("tenant", "rules", Holds::Table("rules"), "Limits on values, in the place of those that the profile has for the same values."),
    needed(key("tenant", "devices", Holds::Tables("device"), "The tenant's devices.")),
    key("tenant", "memlock", Holds::Number, "Bytes that a process of the tenant's may lock, and so register (RLIMIT_MEMLOCK): of programs of verbgate run, which must be root's to be given more, and of containers of verbgate oci and verbgate agent. Programs that are not root's fail at 8 MiB without the key, where the engine says nothing. 9223372036854775807 is no limit."),
    key("tenant", "refuse_capabilities", Holds::Texts, "Capabilities with which `verbgate agent` refuses a container of the tenant's, since an agent cannot cut them: NET_RAW. Without the key, the agent warns of CAP_NET_RAW, which engines give every container."),

    key("match", "annotation", Holds::NamedTexts, "Annotations of the container, with patterns: * stands for any text, ? for any character. Match only annotations that the engine sets itself, such as io.kubernetes.cri.sandbox-namespace; who writes a pod can write others."),
    key("match", "uid", Holds::Number, "The user who starts verbgate run. Containers have none."),
    key("match", "unit", Holds::Text, "Pattern of the systemd unit: the outermost .service or .scope of the cgroup's path, because users name the units below that."),
    key("match", "cgroup", Holds::Text, "Pattern of the path in the cgroup hierarchy: of the program that starts verbgate run, or of the container."),
    key("match", "claim", Holds::Text, "Pattern of NAMESPACE/NAME of the claims (Kubernetes' Dynamic Resource Allocation) by which verbgate dra gives the container its devices. All claims of the container must match. The namespace is Kubernetes' word; who writes a claim chooses its name."),
    key("match", "claim_tenant", Holds::Text, "Pattern of the tenant that the DeviceClass of the container's claims names in its parameters for verbgate.org. All claims of the container must match. Who may use the class is Kubernetes' decision, by a quota or a policy of admission."),

    key("device", "pci", Holds::Text, "PCI address, as 0000:3b:00.2."),
    key("device", "name", Holds::Text, "Pattern of the device's name or its node's: mlx5_3, uverbs3; * means every device. A device with pci and name must have both."),
    key("device", "ports", Holds::Numbers, "Ports by which requests may speak, from 1; all without the key."),

    key("quota", "ucontexts", Holds::Number, "Opens of verbs devices."),
    key("quota", "objects", Holds::Number, "Objects of all kinds together, drivers' own included."),
    key("quota", "pd", Holds::Number, "Protection domains."),
    key("quota", "mr", Holds::Number, "Memory regions."),
    key("quota", "mw", Holds::Number, "Memory windows."),
    key("quota", "cq", Holds::Number, "Completion queues."),
    key("quota", "qp", Holds::Number, "Queue pairs."),
    key("quota", "srq", Holds::Number, "Shared receive queues."),
    key("quota", "wq", Holds::Number, "Work queues."),
    key("quota", "ah", Holds::Number, "Address handles."),
    key("quota", "dm", Holds::Number, "Regions of device memory."),
    key("quota", "flow", Holds::Number, "Steering rules."),
    key("quota", "xrcd", Holds::Number, "XRC domains."),
    key("quota", "mr_bytes", Holds::Number, "Bytes of memory regions, but for those that are paged on demand. When regions of different lengths are deregistered, the smallest is given back first, since a guest could lie about which it was."),
    key("quota", "cqe", Holds::Number, "Entries of completion queues; as mr_bytes."),
    key("quota", "wr", Holds::Number, "Work requests that queue pairs and receive queues hold; as mr_bytes."),
    key("quota", "cm_ids", Holds::Number, "Ids of rdma_cm. An id that a peer's connection makes counts, and is not refused."),
    key("quota", "multicast", Holds::Number, "Multicast groups that ids of rdma_cm have joined, and that queue pairs are attached to: a program that joins by rdma_cm and receives takes two. A queue pair that is attached to one group twice takes two until its device is closed, unless it is detached twice."),
    key("quota", "ports", Holds::Number, "Ports of rdma_cm: one for each id that was bound, listens, or has resolved an address."),
    key("quota", "backlog", Holds::Number, "Connections that may wait at all listening ids of rdma_cm together. An id that asks for more than is left gets the rest, and one that leaves the number to the kernel asks for 128."),

    needed(key("rate", "per_s", Holds::Number, "Requests in a second.")),
    key("rate", "burst", Holds::Number, "Requests at once; per_s without the key."),
    key("rate", "exceed", Holds::Text, "\"wait\" (without the key, too): a request beyond the rate waits. \"EAGAIN\": it fails."),

    key("rates", "memory", Holds::Table("class rate"), "Of memory regions, memory windows and device memory."),
    key("rates", "queues", Holds::Table("class rate"), "Of completion queues, shared receive queues and work queues."),
    key("rates", "connections", Holds::Table("class rate"), "Of queue pairs, address handles, steering rules and XRC domains."),
    key("rates", "rdma_cm", Holds::Table("class rate"), "Commands of the connection manager."),

    needed(key("class rate", "per_s", Holds::Number, "Requests in a second.")),
    key("class rate", "burst", Holds::Number, "Requests at once; per_s without the key."),
    key("class rate", "exceed", Holds::Text, "As of rate."),
    key("class rate", "warm", Holds::Table("tier"), "The rate of a tenant that holds some of the quota of what the class makes: mr or mr_bytes, cq or cqe, qp or wr, cm_ids, whichever is nearest to its bound."),
    key("class rate", "hot", Holds::Table("tier"), "The same of a tenant that holds most of the quota."),

    needed(key("tier", "from", Holds::Number, "From this part of the quota on, in percent.")),
    needed(key("tier", "per_s", Holds::Number, "Requests in a second, and at once.")),

    key("predicate", "only", Holds::Numbers, "One of these numbers."),
    key("predicate", "min", Holds::Number, "At least this number."),
    key("predicate", "max", Holds::Number, "At most this number."),
    key("predicate", "mask", Holds::Number, "No bits but these."),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::text::FileText;
    use super::*;

    /// The keys that serde would take in the place of an unknown one.
    fn read(text: &str) -> BTreeSet<String> {
        let error = toml::from_str::<FileText>(text).unwrap_err();
        let words = error.message().split('`').skip(1).step_by(2).map(str::to_owned);
        words.filter(|word| word != "zzz").collect()
    }

    #[test]
    fn every_key_that_is_read_is_explained_and_no_other() {
        let begin = "version = 1\n";
        for (table, text) in [
            (FILE, "zzz = 1"),
            ("profile", "[profile.a]\nzzz = 1"),
            ("remove", "[profile.a.remove]\nzzz = 1"),
            ("rules", "[tenant.a.rules]\nzzz = 1"),
            ("tenant", "[tenant.a]\nzzz = 1"),
            ("match", "[tenant.a.match]\nzzz = 1"),
            ("device", "[tenant.a]\nmatch = {}\nprofile = \"\"\ndevices = [{ zzz = 1 }]"),
            ("predicate", "[profile.a.rules.static_rate]\nzzz = 1"),
            ("quota", "[profile.a.rules.quota]\nzzz = 1"),
            ("rate", "[profile.a.rules.rate]\nzzz = 1"),
            ("rates", "[profile.a.rules.rates]\nzzz = 1"),
            ("class rate", "[profile.a.rules.rates.memory]\nzzz = 1"),
            ("tier", "[profile.a.rules.rates.memory]\nper_s = 1\nhot = { zzz = 1 }"),
        ] {
            let known = KEYS.iter().filter(|key| key.table == table);
            let known: BTreeSet<String> = known.map(|key| key.name.to_owned()).collect();
            assert_eq!(read(&format!("{begin}{text}\n")), known, "{table}");
        }
    }

    #[test]
    fn every_table_that_a_key_holds_is_one() {
        for key in KEYS {
            let (Holds::Table(of) | Holds::Tables(of) | Holds::Named(of) | Holds::Fields(of)) =
                key.holds
            else {
                continue;
            };
            assert!(KEYS.iter().any(|other| other.table == of), "{}", key.name);
            assert!(key.text.ends_with('.'), "{}", key.name);
        }
    }
}
