//! Whether the policies let a command to the connection manager pass: by its peer, and by the port of its
//! id.

use verbgate_abi::cm;
use verbgate_abi::cm::OwnPort;
use verbgate_abi::cm::Peer;

use crate::policy::Beyond;
use crate::policy::Policy;

/// Judges whom a command speaks to, by its number and structure.
///
/// # Errors
/// The rule, and the address.
pub(super) fn check_peer<'a>(
    mut policies: impl Iterator<Item = &'a Policy>,
    cmd: u32,
    body: &[u8],
) -> Result<(), Beyond> {
    let peer = match cm::peer(cmd, body) {
        Peer::Nobody => return Ok(()),
        Peer::Address(peer) => Some(peer),
        Peer::Unknown => None,
    };
    policies.try_for_each(|policy| policy.check_peer(peer))
}

/// Judges the port that a command gives an id; one of the kernel's choice passes.
///
/// # Errors
/// The rule, and the port.
pub(super) fn check_port<'a>(
    mut policies: impl Iterator<Item = &'a Policy>,
    port: OwnPort,
) -> Result<(), Beyond> {
    let port = match port {
        OwnPort::Nothing | OwnPort::Number(0) => return Ok(()),
        OwnPort::Unknown => None,
        OwnPort::Number(port) => Some(port),
    };
    policies.try_for_each(|policy| policy.check_port(port))
}

/// The port of an id that is to listen: what the kernel would choose is none that the policy has.
pub(super) fn to_listen_at(bound: OwnPort) -> OwnPort {
    if bound == OwnPort::Number(0) { OwnPort::Unknown } else { bound }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn own(rules: &str) -> Policy {
        Policy::read(&format!("name = \"own\"\nextends = \"standard\"\n{rules}\n")).unwrap()
    }

    #[test]
    fn a_peer_beyond_the_ranges_is_refused_in_every_command_that_names_one() {
        let peers = own("rules.peers = [\"10.7.0.0/16\", \"fe80::/64\"]");
        let (any, all) = (own(""), own("rules.peers = [\"::/0\"]"));
        let v4 = |addr: [u8; 4]| [&[2, 0, 0x12, 0xb7][..], &addr].concat();
        let v6 = |family: u8, addr: &str| {
            let addr: Ipv6Addr = addr.parse().unwrap();
            [&[family, 0, 0x12, 0xb7, 0, 0, 0, 0][..], &addr.octets()].concat()
        };
        let addresses = [
            (v4([10, 7, 1, 2]), true),
            (v4([10, 8, 1, 2]), false),
            (v6(10, "fe80::1"), true),
            (v6(10, "fd00::1"), false),
            (v6(10, "::ffff:10.7.1.2"), true),
            (v6(27, "fe80::1"), true),
            (v6(27, "fe81::1"), false),
            // AF_UNIX, and a family that is none.
            (vec![1, 0, 0, 0], false),
            (vec![0; 4], false),
        ];
        // RESOLVE_IP, RESOLVE_ADDR, JOIN_IP_MCAST, JOIN_MCAST: where the address is.
        for (cmd, at) in [(3, 28), (21, 144), (16, 16), (22, 24)] {
            for (address, passes) in &addresses {
                let mut body = vec![0; cm::command(cmd).unwrap().len];
                // RESOLVE_IP's holds an address of IPv6, and no more.
                let len = address.len().min(body.len() - at);
                body[at..at + len].copy_from_slice(&address[..len]);
                let of = |policies: &[&Policy]| check_peer(policies.iter().copied(), cmd, &body);
                assert_eq!(of(&[&peers]).is_ok(), *passes, "{cmd} {address:?}");
                // Whichever of the policies has the rule.
                assert_eq!(of(&[&any, &peers]).is_ok(), *passes, "{cmd} {address:?}");
                assert!(of(&[&any, &any]).is_ok(), "{cmd} {address:?}");
                let known = [2, 10, 27].contains(&address[0]);
                assert_eq!(of(&[&all]).is_ok(), known, "{cmd} {address:?}");
            }
        }
        // A service by its name is nobody's address.
        let body = vec![0; cm::command(23).unwrap().len];
        assert!(check_peer([&peers].into_iter(), 23, &body).is_err());
        assert!(check_peer([&any].into_iter(), 23, &body).is_ok());
        // Path records are whose the guest writes into them; the other options are of the id alone.
        let mut body = vec![0; cm::command(14).unwrap().len];
        for (level, name, passes) in
            [(1_u32, 1_u32, false), (0, 1, true), (0, 0, true), (1, 2, true)]
        {
            body[12..16].copy_from_slice(&level.to_ne_bytes());
            body[16..20].copy_from_slice(&name.to_ne_bytes());
            let of = |policy: &Policy| check_peer([policy].into_iter(), 14, &body).is_ok();
            assert_eq!(of(&peers), passes, "{level} {name}");
            assert!(of(&any));
        }
        // CONNECT goes to whom RESOLVE_ADDR has named.
        assert!(check_peer([&own("rules.peers = []")].into_iter(), 6, &[9; 288]).is_ok());
    }

    #[test]
    fn an_id_is_bound_to_granted_ports_and_listens_at_no_other() {
        let policy = own("rules.ports = [\"7000-7100\", \"18515\"]");
        let narrowed = own("rules.ports = [\"7001\"]");
        let any = own("");
        let of = |policies: &[&Policy], port| check_port(policies.iter().copied(), port).is_ok();
        for (port, passes) in
            [(6999, false), (7000, true), (7100, true), (7101, false), (18515, true), (80, false)]
        {
            let number = OwnPort::Number(port);
            assert_eq!(of(&[&policy], number), passes, "{port}");
            assert_eq!(of(&[&any, &policy], to_listen_at(number)), passes, "{port}");
            assert!(of(&[&any], number) && !of(&[&policy, &narrowed], number), "{port}");
        }
        assert!(of(&[&policy, &narrowed], OwnPort::Number(7001)));
        // Who connects gets a port of the kernel's choice; and nobody listens there.
        let chosen = OwnPort::Number(0);
        assert!(of(&[&policy], chosen) && !of(&[&policy], to_listen_at(chosen)));
        assert!(of(&[&policy], OwnPort::Nothing) && !of(&[&policy], OwnPort::Unknown));
        assert!(of(&[&any], OwnPort::Unknown) && of(&[&any], to_listen_at(chosen)));
        assert!(!of(&[&own("rules.ports = []")], OwnPort::Number(1)));
        assert_eq!(Policy::read_all(&policy.texts()).unwrap(), policy);
        for slip in ["0-7", "9-8", "65536", "a", "1-2-3", ""] {
            let text = format!("name = \"a\"\nrules.ports = [{slip:?}]\n");
            let error = Policy::read(&text).unwrap_err().to_string();
            assert!(error.contains("no range of ports"), "{slip}: {error}");
        }
    }
}
