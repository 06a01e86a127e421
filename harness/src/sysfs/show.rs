//! A drawing of a host, as a tree.

use std::fmt::Write as _;
use std::net::Ipv6Addr;

use serde_json::json;
use verbgate_sysfs::Snapshot;
use verbgate_sysfs::gids;
use verbgate_sysfs::snapshot::Attrs;
use verbgate_sysfs::snapshot::Rdma;
use verbgate_sysfs::snapshot::TreeDevice;

/// A drawn thing: a line, the known names, and the things below.
#[derive(Debug)]
struct Item {
    line: String,
    facts: serde_json::Map<String, serde_json::Value>,
    children: Vec<Item>,
}

/// The drawing for people.
pub(super) fn text(snapshot: &Snapshot) -> String {
    let mut out = String::new();
    for item in items(snapshot) {
        draw(&item, 0, &mut out);
    }
    out
}

fn draw(item: &Item, depth: usize, out: &mut String) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{}{}", "  ".repeat(depth), item.line);
    item.children.iter().for_each(|child| draw(child, depth + 1, out));
}

/// The same as JSON.
pub(super) fn json(snapshot: &Snapshot) -> serde_json::Value {
    items(snapshot).into_iter().map(to_json).collect()
}

fn to_json(item: Item) -> serde_json::Value {
    let mut facts = item.facts;
    if !item.children.is_empty() {
        facts.insert("children".to_owned(), item.children.into_iter().map(to_json).collect());
    }
    facts.into()
}

fn items(snapshot: &Snapshot) -> Vec<Item> {
    let roots =
        snapshot.devices.iter().filter(|device| parent_of(snapshot, &device.path).is_none());
    let mut items: Vec<Item> = roots.map(|root| of_device(snapshot, root)).collect();
    let loose = snapshot.rdma.iter().filter(|rdma| parent_of(snapshot, &rdma.path).is_none());
    items.extend(loose.map(|rdma| of_rdma(snapshot, rdma)));
    items
}

/// The nearest device above a path.
fn parent_of<'a>(snapshot: &'a Snapshot, path: &str) -> Option<&'a TreeDevice> {
    let above = |device: &&TreeDevice| {
        path.strip_prefix(&*device.path).is_some_and(|rest| rest.starts_with('/'))
    };
    snapshot.devices.iter().filter(above).max_by_key(|device| device.path.len())
}

fn of_device(snapshot: &Snapshot, device: &TreeDevice) -> Item {
    let attr = |name| text_of(&device.attrs, name);
    let kind = match device.class() {
        None => device.subsystem.as_deref().unwrap_or("root complex"),
        Some(0x0300 | 0x0302 | 0x0380 | 0x1200) => "GPU",
        Some(0x0200 | 0x0207 | 0x0c06) => "NIC",
        Some(0x0600) => "host bridge",
        Some(0x0604) => "bridge",
        Some(0x0680) => "switch",
        Some(_) => "function",
    };
    let mut line = format!("{} {kind}", device.name());
    if let Some((vendor, id)) = attr("vendor").zip(attr("device")) {
        let _ =
            write!(line, " {}:{}", vendor.trim_start_matches("0x"), id.trim_start_matches("0x"));
    }
    if let Some((width, speed)) = attr("current_link_width").zip(attr("current_link_speed")) {
        let _ = write!(line, " x{width} {speed}");
    }
    if let Some(node) = attr("numa_node").filter(|node| *node != "-1") {
        let _ = write!(line, " node {node}");
    }
    let mut facts = facts([
        ("name", json!(device.name())),
        ("type", json!(kind)),
        ("path", json!(device.path)),
        ("driver", json!(device.driver)),
    ]);
    for name in
        ["class", "vendor", "device", "numa_node", "current_link_width", "current_link_speed"]
    {
        facts.extend(attr(name).map(|value| (name.to_owned(), json!(value))));
    }
    let mut children: Vec<Item> = Vec::new();
    for netdev in snapshot.netdevs.iter().filter(|n| n.parent.as_ref() == Some(&device.path)) {
        let state = text_of(&netdev.attrs, "operstate").unwrap_or("unknown");
        let address = text_of(&netdev.attrs, "address");
        children.push(Item {
            line: format!("{} interface {state}", netdev.name),
            facts: self::facts([
                ("name", json!(netdev.name)),
                ("type", json!("interface")),
                ("operstate", json!(state)),
                ("address", json!(address)),
            ]),
            children: Vec::new(),
        });
    }
    let own = |path: &str| parent_of(snapshot, path).is_some_and(|d| d.path == device.path);
    children.extend(snapshot.rdma.iter().filter(|r| own(&r.path)).map(|r| of_rdma(snapshot, r)));
    children
        .extend(snapshot.devices.iter().filter(|d| own(&d.path)).map(|d| of_device(snapshot, d)));
    Item { line, facts, children }
}

fn of_rdma(snapshot: &Snapshot, rdma: &Rdma) -> Item {
    let node = snapshot.verbs.iter().find(|v| v.ibdev == rdma.name).map(|v| &*v.name);
    Item {
        line: format!("{} RDMA device {}", rdma.name, node.unwrap_or("without node")),
        facts: facts([
            ("ifname", json!(rdma.name)),
            ("type", json!("RDMA device")),
            ("uverbs", json!(node)),
            ("node_guid", json!(text_of(&rdma.attrs, "node_guid"))),
        ]),
        children: rdma.ports().map(|port| of_port(rdma, port)).collect(),
    }
}

fn of_port(rdma: &Rdma, port: u32) -> Item {
    let attr = |name: &str| text_of(&rdma.attrs, &format!("ports/{port}/{name}"));
    let state = attr("state").map(|state| state.split_once(": ").map_or(state, |(_, word)| word));
    let shown = [state, attr("link_layer"), attr("rate")];
    let shown: Vec<&str> = shown.into_iter().flatten().collect();
    let mut children = Vec::new();
    for index in rdma.gids(port) {
        let Some(gid) = attr(&format!("gids/{index}")).and_then(gids::parse) else {
            continue;
        };
        if gid == [0; 16] {
            continue;
        }
        let gid = Ipv6Addr::from(gid);
        let kind = attr(&format!("gid_attrs/types/{index}"));
        let netdev = attr(&format!("gid_attrs/ndevs/{index}"));
        let more = kind.into_iter().chain(netdev).map(|word| format!(" {word}"));
        children.push(Item {
            line: format!("GID {index} {gid}{}", more.collect::<String>()),
            facts: facts([
                ("index", json!(index)),
                ("gid", json!(gid.to_string())),
                ("type", json!(kind)),
                ("netdev", json!(netdev)),
            ]),
            children: Vec::new(),
        });
    }
    Item {
        line: format!("port {port} {}", shown.join(" ")),
        facts: facts([
            ("port", json!(port)),
            ("state", json!(state)),
            ("link_layer", json!(attr("link_layer"))),
            ("rate", json!(attr("rate"))),
        ]),
        children,
    }
}

fn text_of<'a>(attrs: &'a Attrs, name: &str) -> Option<&'a str> {
    attrs.get(name)?.text().filter(|text| !text.is_empty())
}

/// The known facts; unknown facts have no key.
fn facts<const N: usize>(
    known: [(&str, serde_json::Value); N],
) -> serde_json::Map<String, serde_json::Value> {
    let known = known.into_iter().filter(|(_, value)| !value.is_null());
    known.map(|(name, value)| (name.to_owned(), value)).collect()
}
