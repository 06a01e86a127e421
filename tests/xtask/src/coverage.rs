//! `cargo xtask coverage`: what of the kernel's tables a driver was really asked for.
//!
//! The cases of the lab run as ever, and each sandbox in them writes a trace. Of a case that passes, what
//! the sandbox did ended as it did natively (that is what cases compare), so its traces count: a request
//! that the kernel executed, and one that the kernel refused, in the same words in both places.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use serde::Deserialize;
use verbgate_abi::legacy;
use verbgate_abi::table;
use verbgate_abi::table::MethodSpec;
use verbgate_abi::table::ObjectClass;
use verbgate_abi::table::Provider;
use verbgate_lab::Arch;
use verbgate_lab::KERNELS;
use verbgate_lab::Kernel;
use verbgate_lab::Limit;
use verbgate_lab::Vmm;
use verbgate_tests::cases;
use verbgate_tests::cases::Case;
use verbgate_tests::cases::Device;
use verbgate_tests::world::UNFINISHED;

use crate::broker;
use crate::guest::Programs;
use crate::guest::TESTS;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Kernel of the lab; may be repeated. [default: 6.1, 6.12, 7.2]
    #[arg(long = "kernel", value_name = "K")]
    kernels: Vec<String>,
    /// Part of a name: run only the cases whose names hold WORD; may be repeated. [default: all]
    #[arg(long = "case", value_name = "WORD")]
    cases: Vec<String>,
    /// Count also the cases of earlier runs. [default: begin anew]
    #[arg(long)]
    add: bool,
    /// Folder with traces of an earlier run; may be repeated; run nothing.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["kernels", "cases", "add"])]
    traces: Vec<PathBuf>,
}

/// Each method of the tables: executed by the cases of the lab, or why not.
const METHODS: &str = include_str!("../../data/coverage.txt");
/// The kernel that the list is of.
const LISTED: &str = "6.12";

/// How long a machine may say nothing: the longest case.
const LIMIT: Limit = Limit::Silence(Duration::from_secs(25 * 60));

/// Why anything but a method was not executed, by the beginning of its name: the first that fits.
const REASONS: &[(&str, &str)] = &[
    (
        "mlx5:MLX5_IB_ATTR_CREATE_FLOW_DEST",
        "the lab's model of mlx5 has no receivers of raw packets",
    ),
    ("mlx5:", "only mlx5 has it, and the lab's model of mlx5 does not offer what it is for"),
    ("bnxt_re:", "only bnxt_re has it, and the lab has no model of bnxt_re"),
    ("DMAH.", "only mlx5 takes hints for DMA (7.2)"),
    ("DMABUF.", "only mlx5 gives its pages out as a dma-buf (7.2)"),
    ("WQ.", "mlx5 has work queues without queue pairs on Ethernet ports alone"),
    ("RWQ_IND_TBL.", "mlx5 has work queues without queue pairs on Ethernet ports alone"),
];

/// What the list says of a method: nothing of one that is executed.
fn listed(name: &str) -> Option<&'static str> {
    METHODS.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

const UNKNOWN: &str = "none of these cases asks for it";

/// A line of a trace, as `verbgate trace --json` writes it.
#[derive(Debug, Deserialize)]
struct Record {
    method: Option<String>,
    command: Option<String>,
    #[serde(default)]
    attributes: Vec<Attribute>,
    private: Option<String>,
    result: Option<i64>,
}

#[derive(Debug, Deserialize)]
struct Attribute {
    name: String,
}

/// What was executed: of each name, whether it ever succeeded.
#[derive(Debug, Default)]
struct Seen {
    methods: BTreeMap<String, bool>,
    commands: BTreeMap<String, bool>,
    attributes: BTreeSet<String>,
    private: BTreeSet<String>,
    traces: usize,
}

impl Seen {
    fn read(&mut self, folder: &Path) -> Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == UNFINISHED) {
                continue;
            }
            if path.is_dir() {
                self.read(&path)?;
                continue;
            }
            self.traces += 1;
            let text = fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            // A sandbox that was killed may have left half a line.
            for record in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
                self.take(record);
            }
        }
        Ok(())
    }

    fn take(&mut self, record: Record) {
        let (Some(method), Some(result)) = (record.method, record.result) else { return };
        let succeeded = result >= 0;
        *self.methods.entry(method).or_default() |= succeeded;
        if let Some(command) = record.command {
            *self.commands.entry(command).or_default() |= succeeded;
        }
        if succeeded {
            self.attributes.extend(record.attributes.into_iter().map(|attribute| attribute.name));
            self.private.extend(record.private);
        }
    }

    fn succeeded(&self, method: &MethodSpec) -> bool {
        self.methods.get(&method.full_name()).copied().unwrap_or(false)
    }

    /// The types of objects that a method which succeeded is of, or named.
    fn objects(&self) -> BTreeSet<&'static str> {
        let methods = table::methods().iter().filter(|method| self.succeeded(method));
        let mut objects = BTreeSet::new();
        for method in methods {
            objects.insert(method.object.name());
            let attributes = method.attrs.iter().filter(|attr| self.attributes.contains(attr.name));
            objects.extend(attributes.filter_map(|attr| Some(attr.object()?.0.name())));
        }
        // Those that only legacy commands make.
        for command in legacy::commands() {
            if self.commands.get(command.short_name) == Some(&true) {
                objects.extend(command.handles.iter().map(|handle| handle.object.name()));
            }
        }
        objects
    }

    /// Methods that the list gives a reason for, and that were executed all the same.
    fn stale(&self) -> Vec<&str> {
        let done = self.methods.iter().filter(|(_, succeeded)| **succeeded);
        done.map(|(name, _)| name.as_str()).filter(|name| listed(name).is_some()).collect()
    }

    /// Methods that the list has as executed, and that no trace has as that any more.
    fn lost(&self) -> Vec<String> {
        let executed =
            METHODS.lines().filter(|line| !line.starts_with('#') && !line.contains(": "));
        let seen = |name: &&str| self.methods.get(*name).copied().unwrap_or(false);
        executed.filter(|name| !seen(name)).map(ToOwned::to_owned).collect()
    }

    /// The line, and the list of what is missing.
    fn report(&self) -> String {
        let methods = table::methods();
        let done = methods.iter().filter(|method| self.succeeded(method)).count();
        let refused = self.methods.values().filter(|succeeded| !**succeeded).count();
        let objects = self.objects();
        let types: Vec<&str> = table::objects()
            .iter()
            .filter(|spec| spec.class != ObjectClass::None)
            .map(table::ObjectSpec::short_name)
            .collect();
        let met = types.iter().filter(|name| objects.contains(*name)).count();
        let commands = legacy::commands();
        let command = |name: &str| self.commands.get(name) == Some(&true);
        let commanded = commands.iter().filter(|spec| command(spec.short_name)).count();
        let private: BTreeSet<&str> = legacy::uhw_specs().iter().map(|spec| spec.name).collect();
        let own: BTreeSet<&str> = methods
            .iter()
            .flat_map(|method| method.attrs)
            .filter(|attr| matches!(attr.provider, Provider::Driver(_)))
            .map(|attr| attr.name)
            .collect();
        let mut text = format!(
            "coverage: {done} of {} methods ({refused} more refused alike), {met} of {} objects, {commanded} \
             of {} legacy commands, {} of {} driver attributes and {} of {} private inputs executed with \
             the same result, in {} traces\n",
            methods.len(),
            types.len(),
            commands.len(),
            own.iter().filter(|name| self.attributes.contains(**name)).count(),
            own.len(),
            private.iter().filter(|name| self.private.contains(**name)).count(),
            private.len(),
            self.traces,
        );
        let mut missing = |kind: &str, name: &str, refused: bool| {
            let found = REASONS.iter().find(|(beginning, _)| name.starts_with(beginning));
            let found = match kind {
                "method" => listed(name),
                _ => found.map(|(_, reason)| *reason),
            };
            let why = match (refused, found) {
                (true, Some(reason)) => format!("refused alike; {reason}"),
                (true, None) => "refused alike by all drivers of the lab".to_owned(),
                (false, found) => found.unwrap_or(UNKNOWN).to_owned(),
            };
            text += &format!("  {kind} {}: {why}\n", name.trim_end_matches('.'));
        };
        for method in methods.iter().filter(|method| !self.succeeded(method)) {
            let name = method.full_name();
            missing("method", &name, self.methods.contains_key(&name));
        }
        for name in types.iter().filter(|name| !objects.contains(*name)) {
            let owner = table::objects().iter().find(|spec| spec.short_name() == *name);
            let prefix = owner.map_or_else(String::new, |spec| spec.object.provider.prefix());
            missing("object", &format!("{prefix}{name}."), false);
        }
        for spec in commands.iter().filter(|spec| !command(spec.short_name)) {
            missing("command", spec.short_name, self.commands.contains_key(spec.short_name));
        }
        for name in own.iter().filter(|name| !self.attributes.contains(**name)) {
            let driver = name.split('_').next().unwrap_or_default().to_lowercase();
            let driver = driver.replace("bnxt", "bnxt_re");
            missing("attribute", &format!("{driver}:{name}"), false);
        }
        for name in private.iter().filter(|name| !self.private.contains(**name)) {
            missing("private input", name, false);
        }
        text
    }
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let mut seen = Seen::default();
    let mut failed = false;
    for folder in &args.traces {
        seen.read(folder)?;
    }
    if args.traces.is_empty() {
        let mut programs = Programs::build_for(Arch::Amd64)?;
        let folder = programs.traces();
        if !args.add && folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        for kernel in kernels(&args.kernels)? {
            let is_meant = |case: &Case| {
                args.cases.is_empty() || args.cases.iter().any(|word| case.name.contains(word))
            };
            for device in Device::ALL.into_iter().filter(|of| cases::of(*of).iter().any(is_meant)) {
                // Each boot has a folder, and in it each case: a run that is broken off keeps what passed.
                programs.trace(&format!("{}-{}", kernel.name, device.name()))?;
                let argv = [TESTS, "run", "--nics", device.name()];
                let words = args.cases.iter().map(String::as_str);
                let argv: Vec<&str> = argv.into_iter().chain(words).collect();
                let mut stdout = std::io::stdout().lock();
                let status = programs.run_on_nics(
                    kernel,
                    broker::nics(device),
                    &argv,
                    LIMIT,
                    &mut stdout,
                )?;
                failed |= status != 0;
            }
        }
        seen.read(&folder)?;
    }
    print!("{}", seen.report());
    let stale = seen.stale();
    for name in &stale {
        println!("{name} was executed: tests/data/coverage.txt is stale, which says why not");
    }
    let lost = if is_whole(&args) { seen.lost() } else { Vec::new() };
    for name in &lost {
        println!(
            "{name} was not executed: tests/data/coverage.txt says that it is; find the case that did, or \
             write the reason behind the name"
        );
    }
    if failed {
        println!("cases failed (see above); their traces do not count");
    }
    Ok(ExitCode::from(u8::from(failed || !stale.is_empty() || !lost.is_empty())))
}

/// Whether all cases ran on the kernel that the list is of: a few prove nothing of what they do not ask for.
fn is_whole(args: &Args) -> bool {
    args.cases.is_empty()
        && (args.kernels.is_empty() || args.kernels.iter().any(|name| name == LISTED))
}

fn kernels(names: &[String]) -> Result<Vec<&'static Kernel>> {
    if names.is_empty() {
        return Ok(KERNELS
            .iter()
            .filter(|kernel| kernel.vmm == Vmm::Qemu && kernel.arch == Arch::Amd64)
            .collect());
    }
    names.iter().map(|name| Kernel::find(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_executed_counts_and_the_rest_has_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a_case")).unwrap();
        let trace = [
            r#"{"thread":1,"device":"uverbs0","command":"open","result":0,"seconds":0.0}"#,
            r#"{"thread":1,"device":"uverbs0","method":"DEVICE.INVOKE_WRITE","command":"CREATE_QP","attributes":[{"name":"UVERBS_ATTR_WRITE_CMD","id":1}],"private":"erdma_ureq_create_qp","result":0,"seconds":0.1}"#,
            r#"{"thread":1,"device":"uverbs0","method":"QP.QP_CREATE","refused":"qp_type","seconds":0.1}"#,
            r#"{"thread":1,"device":"uverbs0","method":"MR.ADVISE_MR","result":-95,"seconds":0.1}"#,
            r#"{"thread":1,"device":"uve"#,
        ];
        fs::write(folder.path().join("a_case/1-0.json"), trace.join("\n")).unwrap();
        // A case of which nobody saw the end.
        fs::create_dir(folder.path().join("a_case.unfinished")).unwrap();
        let another = r#"{"method":"PD.PD_DESTROY","result":0}"#;
        fs::write(folder.path().join("a_case.unfinished/2-0.json"), another).unwrap();
        let mut seen = Seen::default();
        seen.read(folder.path()).unwrap();
        let report = seen.report();
        let first = report.lines().next().unwrap();
        assert!(first.starts_with("coverage: 1 of "), "{first}");
        assert!(first.contains("(1 more refused alike)"), "{first}");
        assert!(first.contains(" 1 of ") && first.ends_with("in 1 traces"), "{first}");
        assert!(report.contains("\n  method MR.ADVISE_MR: refused alike"), "{report}");
        assert!(
            report.contains("\n  method QP.QP_CREATE: none of these cases asks for it"),
            "{report}"
        );
        assert!(report.contains("\n  method WQ.WQ_CREATE: mlx5 has work queues"), "{report}");
    }

    #[test]
    fn the_list_has_each_method_once_and_nothing_else() {
        let lines = || METHODS.lines().filter(|line| !line.starts_with('#'));
        let mut names: Vec<&str> =
            lines().map(|line| line.split_once(": ").map_or(line, |(name, _)| name)).collect();
        names.sort_unstable();
        let mut methods: Vec<String> = table::methods().iter().map(MethodSpec::full_name).collect();
        methods.sort_unstable();
        assert_eq!(names, methods);
        assert!(lines().all(|line| !line.ends_with(':') && !line.ends_with(": ")));
        // A reason that fits nothing is of something that is there no more.
        let owned: Vec<String> = table::objects()
            .iter()
            .map(|spec| format!("{}{}.", spec.object.provider.prefix(), spec.short_name()))
            .chain(table::methods().iter().flat_map(|method| method.attrs).map(|attr| {
                let driver = attr.name.split('_').next().unwrap_or_default().to_lowercase();
                format!("{}:{}", driver.replace("bnxt", "bnxt_re"), attr.name)
            }))
            .collect();
        for (beginning, _) in REASONS {
            assert!(owned.iter().any(|name| name.starts_with(beginning)), "{beginning}");
        }
    }

    #[test]
    fn a_method_that_the_list_leaves_out_is_told_when_it_is_executed() {
        let mut seen = Seen::default();
        seen.methods.insert("WQ.WQ_CREATE".to_owned(), true);
        seen.methods.insert("QP.QP_CREATE".to_owned(), true);
        seen.methods.insert("WQ.WQ_DESTROY".to_owned(), false);
        assert_eq!(seen.stale(), ["WQ.WQ_CREATE"]);
    }

    #[test]
    fn a_method_that_is_executed_no_more_is_told_where_all_cases_ran() {
        let mut seen = Seen::default();
        for line in METHODS.lines().filter(|line| !line.starts_with('#')) {
            seen.methods.insert(line.to_owned(), !line.contains(": "));
        }
        assert_eq!(seen.lost(), Vec::<String>::new());
        seen.methods.insert("QP.QP_CREATE".to_owned(), false);
        seen.methods.remove("CQ.CQ_CREATE");
        assert_eq!(seen.lost(), ["CQ.CQ_CREATE", "QP.QP_CREATE"]);
        let args = |kernels: &[&str], cases: &[&str]| Args {
            kernels: kernels.iter().map(ToString::to_string).collect(),
            cases: cases.iter().map(ToString::to_string).collect(),
            add: false,
            traces: Vec::new(),
        };
        assert!(is_whole(&args(&[], &[])) && is_whole(&args(&["7.2", LISTED], &[])));
        assert!(!is_whole(&args(&["7.2"], &[])) && !is_whole(&args(&[], &["nic_"])));
    }
}
