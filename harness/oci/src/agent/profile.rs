//! `verbgate oci profile`: the filter's table ([`verbgate_sys::seccomp::rules`]) in the form of the
//! OCI runtime specification (config-linux.md, "Seccomp"), from which runtimes make a filter.
//!
//! A profile's filter compares arguments one by one, and the first matching rule of a call counts.
//! Such a filter cannot add two arguments (to find the end of a range of addresses), nor say "from
//! .. to" of one argument. So the profile asks about more calls than our filter, and never about
//! fewer. The supervisor judges these calls by our filter, and lets the others through
//! ([`verbgate_sandbox::Guard::behind`]).
//!
//! The profile leaves out `write` and `writev` unless the user wants them: runc itself writes
//! between installing the filter and passing the listener on, and refuses all rules about `write`
//! (crun takes them).

use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;
use std::path::PathBuf;

use anyhow::Error;
use anyhow::anyhow;
use serde::Deserialize;
use serde::Serialize;
use serde_json::Value;
use serde_json::json;
use verbgate_sandbox::Windows;
use verbgate_sys::arch::Native;
use verbgate_sys::seccomp::filter;
use verbgate_sys::seccomp::rules;
use verbgate_sys::seccomp::rules::Rule;
use verbgate_sys::seccomp::rules::Verdict;
use verbgate_sys::seccomp::rules::When;
use verbgate_sys::window::AddrWindow;
use verbgate_sys::window::FdWindow;

/// Rules about these are only there if they are wanted.
const WRITES: [&str; 2] = ["write", "writev"];

/// The soft RLIMIT_NOFILE for which the profile is made; a guest with a lower one holds its
/// descriptors outside of the window, which only means that a stub may keep a device open until
/// its next request.
const DESCRIPTORS: u64 = 1024;

/// Options of a profile.
#[derive(Clone, Debug)]
pub struct ProfileOptions {
    /// The agent's socket, as the runtime finds it.
    pub listener: PathBuf,
    /// Whether requests wait for their answers without being interrupted by signals: for runtimes
    /// with libseccomp 2.6 or newer.
    pub wait_killable: bool,
    /// Whether write(2) is watched, too: for crun; runc refuses such a profile.
    pub write: bool,
    /// Whether 32-bit programs run, without RDMA.
    pub compat: bool,
}

/// The parameters of a profile, which the runtime passes to the agent as `metadata`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MadeFor {
    /// The upper word of the addresses that are guarded.
    addresses: u32,
    /// The first of the descriptor numbers that are watched, and how many.
    descriptors: (u32, u32),
    /// Whether writes to those are.
    write: bool,
    /// Whether 32-bit programs run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    compat: bool,
    /// Tells rules of different builds apart.
    rules: String,
}

impl MadeFor {
    fn new(addrs: AddrWindow, fds: FdWindow, write: bool, compat: bool) -> Result<Self, Error> {
        let mut hasher = DefaultHasher::new();
        format!("{:?}", filter::with::<Native>(addrs, fds, compat)?).hash(&mut hasher);
        let rules = format!("{:016x}", hasher.finish());
        let (addresses, descriptors) = (addrs.hi(), (fds.first, fds.len));
        Ok(Self { addresses, descriptors, write, compat, rules })
    }

    /// The windows of a profile that was printed by this build, or one with the same rules, and
    /// whether it watches writes.
    pub(super) fn read(metadata: &str) -> Result<(Windows, bool), Error> {
        let anew = "print the profile again with: verbgate oci profile";
        let read: Self = serde_json::from_str(metadata).map_err(|_| {
            anyhow!("the profile's listenerMetadata {metadata:?} is not verbgate's; {anew}")
        })?;
        let addrs = AddrWindow::at(read.addresses);
        let fds = FdWindow { first: read.descriptors.0, len: read.descriptors.1 };
        if fds.first.checked_add(fds.len).is_none_or(|end| end > 1 << 20)
            || Self::new(addrs, fds, read.write, read.compat)? != read
        {
            return Err(anyhow!("the profile was printed by another build of verbgate; {anew}"));
        }
        Ok((Windows::new(addrs, fds, read.compat), read.write))
    }
}

/// Whether a profile is one of verbgate's, by its `listenerMetadata`.
pub(crate) fn is_ours(metadata: &str) -> bool {
    serde_json::from_str::<MadeFor>(metadata).is_ok()
}

/// Prints the profile.
///
/// # Errors
/// When this kernel has none of the addresses that the profile guards.
pub fn print(options: &ProfileOptions) -> Result<u8, Error> {
    verbgate_host::output::print(&format!("{:#}\n", whole(options)?))?;
    Ok(0)
}

/// The profile, as `linux.seccomp` of a `config.json`.
pub(crate) fn whole(options: &ProfileOptions) -> Result<Value, Error> {
    let (addrs, fds) = (AddrWindow::probe()?, FdWindow::under(DESCRIPTORS));
    let mut profile = profile(addrs, fds, options.write, options.compat);
    if let Some(object) = profile.as_object_mut() {
        object.insert("listenerPath".into(), json!(options.listener));
        let made_for =
            serde_json::to_string(&MadeFor::new(addrs, fds, options.write, options.compat)?)?;
        object.insert("listenerMetadata".into(), made_for.into());
        if options.wait_killable {
            object.insert("flags".into(), json!(["SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV"]));
        }
    }
    Ok(profile)
}

/// A comparison of one argument: `LinuxSeccompArg`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Arg {
    index: u32,
    value: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_two: Option<u64>,
    op: &'static str,
}

/// The bits of a mask are these; the others, the upper word of an int among them, do not count.
fn masked(index: u32, mask: u64, bits: u64) -> Arg {
    Arg { index, value: mask, value_two: Some(bits), op: "SCMP_CMP_MASKED_EQ" }
}

fn profile(addrs: AddrWindow, fds: FdWindow, write: bool, compat: bool) -> Value {
    let mut rules = rules::native::<Native>();
    if compat {
        // Libseccomp knows a call by its name, and asks about those of both kinds.
        let named: Vec<_> = rules.iter().map(|rule| (rule.name, rule.when)).collect();
        let twins = rules::compat::<Native>().into_iter();
        rules.extend(twins.filter(|twin| !named.contains(&(twin.name, twin.when))));
    }
    let mut syscalls: Vec<(Vec<&str>, Verdict, Vec<Arg>)> = Vec::new();
    let is_wanted = |rule: &&Rule| write || !WRITES.contains(&rule.name);
    for rule in rules.iter().filter(is_wanted) {
        let verdict = rule.verdict;
        for args in said(rule, addrs, fds) {
            let same = syscalls.iter_mut().find(|(_, one, of)| *one == verdict && *of == args);
            match same {
                Some((names, ..)) => names.push(rule.name),
                None => syscalls.push((vec![rule.name], verdict, args)),
            }
        }
    }
    let syscalls: Vec<Value> = syscalls
        .into_iter()
        .map(|(names, verdict, args)| match verdict {
            Verdict::Notify => json!({"names": names, "action": "SCMP_ACT_NOTIFY", "args": args}),
            Verdict::Fail(errno) => json!({
                "names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": errno, "args": args,
            }),
        })
        .collect();
    json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": ARCHITECTURES.get(..1 + usize::from(compat)),
        "syscalls": syscalls,
    })
}

/// The native ABI, and the compat one: libseccomp ends a thread that makes a call by the numbers of one that is not named.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURES: [&str; 2] = ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"];
#[cfg(target_arch = "aarch64")]
const ARCHITECTURES: [&str; 2] = ["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"];

/// The calls of a rule, and maybe more: any of these, each of which is all of its comparisons.
fn said(rule: &Rule, addrs: AddrWindow, fds: FdWindow) -> Vec<Vec<Arg>> {
    // The kernel takes the top byte for a tag (arm64).
    const HI: u64 = 0x00ff_ffff_0000_0000;
    match rule.when {
        When::Always => vec![vec![]],
        When::Words(words) => {
            let one = |word: &rules::Word| masked(word.arg, word.mask.into(), word.value.into());
            vec![words.iter().map(one).collect()]
        }
        When::Fd(arg) => blocks(fds).map(|(mask, value)| vec![masked(arg, mask, value)]).collect(),
        When::FdWords(arg, words) => {
            let one = |word: &rules::Word| masked(word.arg, word.mask.into(), word.value.into());
            let all = |(mask, value)| {
                std::iter::once(masked(arg, mask, value)).chain(words.iter().map(one)).collect()
            };
            blocks(fds).map(all).collect()
        }
        // Not those of few descriptors, which stubs make.
        When::FdRange => vec![vec![Arg {
            index: 1,
            value: fds.first.into(),
            value_two: None,
            op: "SCMP_CMP_GE",
        }]],
        When::SharesFile => vec![vec![
            masked(3, 0x21, 1),
            Arg { index: 4, value: 0, value_two: None, op: "SCMP_CMP_NE" },
        ]],
        // What meets a window of 4 GiB begins in it; or in the 4 GiB before; or is longer.
        When::Range { addr, len } => vec![
            vec![masked(addr, HI, addrs.base())],
            vec![masked(addr, HI, addrs.base().wrapping_sub(1 << 32))],
            vec![Arg { index: len, value: u32::MAX.into(), value_two: None, op: "SCMP_CMP_GT" }],
        ],
    }
}

/// The numbers of a window as few blocks of which each is one comparison: mask and value.
fn blocks(fds: FdWindow) -> impl Iterator<Item = (u64, u64)> {
    let mut first = fds.first;
    std::iter::from_fn(move || {
        let left = fds.end().checked_sub(first).filter(|left| *left > 0)?;
        // The largest that begins here and does not reach beyond the end.
        let aligned = 1 << first.trailing_zeros().min(31);
        let len = if left < aligned { 1 << left.ilog2() } else { aligned };
        let block = (u64::from(!(len - 1)), u64::from(first));
        first += len;
        Some(block)
    })
}

#[cfg(test)]
mod tests {
    use verbgate_sys::arch::Arch;
    use verbgate_sys::arch::stub_fd;
    use verbgate_sys::seccomp::bpf::RET_ALLOW;

    use verbgate_sys::seccomp::bpf::interpret;

    use super::*;

    const W: AddrWindow = AddrWindow::at(0x6ae0);
    const F: FdWindow = FdWindow { first: 960, len: 64 };

    /// As libseccomp does; seccomp_rule_add(3).
    fn matches(args: &[Arg], of: [u64; 6]) -> bool {
        args.iter().all(|arg| {
            let is = of[usize::try_from(arg.index).unwrap()];
            match arg.op {
                "SCMP_CMP_MASKED_EQ" => is & arg.value == arg.value_two.unwrap(),
                "SCMP_CMP_GT" => is > arg.value,
                "SCMP_CMP_GE" => is >= arg.value,
                "SCMP_CMP_NE" => is != arg.value,
                other => panic!("{other}"),
            }
        })
    }

    #[test]
    fn blocks_are_the_window_and_nothing_else() {
        for fds in [F, FdWindow::under(1024), FdWindow::under(1 << 20), FdWindow::under(30)] {
            let has = |n: u32| blocks(fds).any(|(mask, value)| u64::from(n) & mask == value);
            assert!((0..20_000).all(|n| has(n) == fds.contains(n.cast_signed())), "{fds:?}");
            assert!(blocks(fds).count() < 16);
        }
    }

    /// Whatever ours does not simply allow, the profile has a rule about.
    #[test]
    fn the_profile_asks_about_no_less_than_the_filter() {
        let program = filter::program::<Native>(W, F).unwrap();
        let words = [
            0,
            1,
            2,
            3,
            6,
            16,
            20,
            21,
            31,
            33,
            35,
            43,
            256,
            0x4206,
            0o40000,
            0x5412,
            0x541c,
            959,
            960,
            1000,
            1023,
            1024,
            0xc018_1b01,
            1 << 32 | 960,
            u64::from(u32::MAX),
            1 << 32,
            W.base() - 0x1000,
            W.base() - (1 << 32),
            W.base(),
            W.base() + 0x1000,
            W.base() + (1 << 32),
            W.base() * 2,
        ];
        let rules = rules::native::<Native>();
        let mut asked = 0;
        for rule in &rules {
            let of_call: Vec<_> = rules.iter().filter(|one| one.nr == rule.nr).collect();
            for a in words {
                for b in words {
                    for c in words {
                        let args = [a, b, c, 0, a, 0];
                        let ours = interpret(&program, rule.nr, Native::AUDIT, args).unwrap();
                        if ours == RET_ALLOW {
                            continue;
                        }
                        asked += 1;
                        assert!(
                            of_call
                                .iter()
                                .any(|one| said(one, W, F).iter().any(|s| matches(s, args))),
                            "{} {args:x?}",
                            rule.name
                        );
                    }
                }
            }
        }
        assert!(asked > 10_000, "{asked}");
    }

    /// What a stub does, and is made to do, while nobody answers it.
    #[test]
    fn a_stub_is_asked_about_its_requests_only() {
        let n = Native::NUMBERS;
        let rules = rules::native::<Native>();
        for (nr, args) in [
            (n.close_range, [u64::from(stub_fd::NEW), stub_fd::LAST.into(), 0, 0, 0, 0]),
            (n.sockets.sendmsg, [stub_fd::SOCKET.into(), 1 << 46, 0x4040, 0, 0, 0]),
            (n.clone, [0x0005_0b00, 0, 0, 0, 0, 0]),
            (n.mseal, [W.base(), 4096, 0, 0, 0, 0]),
            (n.exit, [0; 6]),
        ] {
            let of_call = rules.iter().filter(|rule| rule.nr == nr);
            let mut said = of_call.flat_map(|rule| said(rule, W, F));
            assert!(!said.any(|said| matches(&said, args)), "call {nr}");
        }
    }

    /// What fails without being asked about must fail by ours, too: nobody would judge it.
    #[test]
    fn what_fails_is_said_exactly() {
        for rule in rules::native::<Native>() {
            if let Verdict::Fail(_) = rule.verdict {
                assert!(matches!(rule.when, When::Always | When::Words(_)), "{rule:?}");
            }
        }
    }

    #[test]
    fn a_profile_of_another_build_is_refused() {
        let ours = MadeFor::new(W, F, false, false).unwrap();
        let text = serde_json::to_string(&ours).unwrap();
        assert_eq!(MadeFor::read(&text).unwrap(), (Windows::new(W, F, false), false));
        for other in [
            text.replace("rules\":\"", "rules\":\"0"),
            text.replace("27360", "27361"),
            text.replace("960", "961"),
            "{}".into(),
        ] {
            let error = MadeFor::read(&other).unwrap_err().to_string();
            assert!(error.contains("verbgate oci profile"), "{error}");
        }
    }
}
