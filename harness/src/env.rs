//! `verbgate nccl env` and the like: the settings of communication libraries, from the rails of a
//! network namespace.

use std::fs;
use std::path::Path;

use verbgate_host::is_root;
use verbgate_host::netns::Namespace;
use verbgate_host::output::print;
use verbgate_host::output::say;
use verbgate_netdev::Error;
use verbgate_netdev::env;
use verbgate_netdev::env::Class;
use verbgate_netdev::env::Environment;
use verbgate_netdev::env::Library;
use verbgate_netdev::env::Socket;
use verbgate_netdev::env::Wish;
use verbgate_netdev::journal;
use verbgate_netdev::plan;
use verbgate_netdev::rails;
use verbgate_netdev::rails::Rail;

use crate::cli::EnvArgs;
use crate::cli::EnvOptions;
use crate::cli::Format;
use crate::cli::SelectArgs;
use crate::failure::Failure;
use crate::manifest;
use crate::netdev::symmetric;
use crate::output::print_json;
use crate::topology;

/// Variables that `--debug-all` sets.
const DEBUG: &[(&str, &str)] = &[
    ("NCCL_DEBUG", "INFO"),
    ("NCCL_DEBUG_SUBSYS", "INIT,NET,GRAPH,ENV"),
    ("NCCL_DEBUG_FILE", "nccl.%h.%p.log"),
    ("NCCL_TOPO_DUMP_FILE", "nccl-topo.xml"),
    ("NCCL_GRAPH_DUMP_FILE", "nccl-graph.xml"),
];

/// Prints the environment.
pub(crate) fn run(library: Library, args: &EnvArgs) -> Result<u8, Failure> {
    let sysfs = &args.host.sysfs_root;
    let (rails, namespace) = rails_of(args)?;
    let environment = derive(library, &rails, namespace.as_ref(), &args.options, sysfs)?;
    match args.format {
        Format::Json => {
            let values = environment.0.iter().map(|(name, variable)| (name, &variable.value));
            print_json(&values.collect::<std::collections::BTreeMap<_, _>>())?;
        }
        format => print(&lines(&environment, format))?,
    }
    Ok(0)
}

/// The rails, and the network namespace that has them, if that is another than this one.
fn rails_of(args: &EnvArgs) -> Result<(Vec<Rail>, Option<Namespace>), Error> {
    let sysfs = &args.host.sysfs_root;
    if let Some(name) = &args.netns {
        let namespace = Namespace::named(name)?;
        let found = rails::within(&namespace, &args.select.selection(), sysfs)?;
        if found.is_empty() {
            return Err(Error::Nothing {
                why: format!(
                    "no address in {namespace} has a RoCE v2 GID, and no InfiniBand port is up; is \
                     the NIC there, and does the NIC have an address? (ip netns exec, rdma link)"
                ),
            });
        }
        return Ok((manifest::declared(found, &args.select)?, Some(namespace)));
    }
    let journal = journal::load(&args.host.state_dir)?.filter(|journal| journal.complete);
    if let Some(journal) = journal {
        let Some(namespace) = journal.namespace() else {
            let remedy = match is_root() {
                true => "is gone; first: verbgate netdev restore",
                false => "has the NICs; looking into the container needs root",
            };
            let container = journal.target_path.display();
            return Err(Error::Invalid(format!("the container ({container}) {remedy}")));
        };
        let found = rails::of_journal(&journal, &args.select.selection(), sysfs)?;
        return Ok((manifest::declared(found, &args.select)?, Some(namespace)));
    }
    let found = in_place(&args.select, sysfs)?;
    if found.iter().any(|rail| !rail.stays) {
        say("no NIC was moved: these settings are for the host's network namespace (for a \
             container's: --netns, or first verbgate netdev move)");
    }
    Ok((found, None))
}

/// The rails of this namespace.
fn in_place(select: &SelectArgs, sysfs: &Path) -> Result<Vec<Rail>, Error> {
    let select = symmetric(select, sysfs)?;
    let found = manifest::own(&select, sysfs)?;
    if !found.is_empty() {
        return Ok(found);
    }
    let (candidates, _) = plan::candidates(&select.selection(), sysfs)?;
    let reasons =
        candidates.iter().filter_map(|c| Some(format!("{}: {}", c.netdev, c.dropped.as_ref()?)));
    let reasons: Vec<String> = reasons.collect();
    let why = match reasons.is_empty() {
        true => "this host has no RDMA port that is up (see: verbgate doctor)".to_owned(),
        false => format!("{} (choose by --iface or --hca)", reasons.join("; ")),
    };
    Err(Error::Nothing { why })
}

/// The environment as text. Each variable's reason stands before the variable.
pub(crate) fn lines(environment: &Environment, format: Format) -> String {
    let line = |(name, variable): (&String, &env::Variable)| {
        let value = match format {
            Format::Sh => format!("export {name}='{}'", variable.value.replace('\'', r"'\''")),
            Format::Docker | Format::Json => format!("{name}={}", variable.value),
        };
        format!("# {}\n{value}\n", variable.why.replace('\n', " "))
    };
    environment.0.iter().map(line).collect()
}

/// Works out the environment for rails, which are in this namespace or in another.
pub(crate) fn derive(
    library: Library,
    rails: &[Rail],
    namespace: Option<&Namespace>,
    options: &EnvOptions,
    sysfs: &Path,
) -> Result<Environment, Error> {
    let look = || -> Result<_, Error> { Ok((env::of_ports(rails)?, env::default_link(rails)?)) };
    let ((class, warning), default) = match namespace {
        Some(namespace) => namespace.within(look)?,
        None => look()?,
    };
    let given = Socket {
        name: options.socket_ifname.clone().unwrap_or_default(),
        address: None,
        why: "--socket-ifname",
    };
    let socket = if options.socket_ifname.is_some() { Some(given) } else { default };
    if socket.is_none() && matches!(library, Library::Nccl | Library::Nixl) {
        say(
            "warning: the namespace has no default route but by rails, so NCCL_SOCKET_IFNAME is not \
             set; give --socket-ifname",
        );
    }
    let wish = Wish {
        class: chosen(class, options),
        socket,
        rail_only: options.rail_only.then_some(true),
        ..Wish::default()
    };
    let (mut environment, warnings) = env::of(library, rails, &wish)?;
    let asked = options.traffic_class.is_some() || options.sl.is_some();
    for warning in warnings.iter().chain(warning.iter().filter(|_| !asked)) {
        say(&format!("warning: {warning}"));
    }
    if library == Library::Nccl {
        topology_file(&mut environment, rails, options, sysfs)?;
        debug(&mut environment, options);
    }
    Ok(environment)
}

/// The class that the user gives wins over the class that the ports tell.
fn chosen(of_ports: Class, options: &EnvOptions) -> Class {
    let Class { traffic, fifo, level, why } = of_ports;
    let given = options.traffic_class.is_some() || options.sl.is_some();
    match given {
        true => Class {
            traffic: options.traffic_class,
            fifo: options.fifo_traffic_class,
            level: options.sl,
            why: "given on the command line".to_owned(),
        },
        false => Class { traffic, fifo: options.fifo_traffic_class.or(fifo), level, why },
    }
}

fn debug(environment: &mut Environment, options: &EnvOptions) {
    let Some(dir) = &options.debug_all else { return };
    for (name, value) in DEBUG {
        let value = match name.ends_with("_FILE") {
            true => dir.join(value).display().to_string(),
            false => (*value).to_owned(),
        };
        environment.set(name, std::env::var(name).unwrap_or(value), "--debug-all");
    }
}

fn topology_file(
    environment: &mut Environment,
    rails: &[Rail],
    options: &EnvOptions,
    sysfs: &Path,
) -> Result<(), Error> {
    const NAME: &str = "NCCL_TOPO_FILE";
    if let Some(file) = &options.write_topo {
        let text = topology::of(sysfs, rails)?;
        fs::write(file, text).map_err(|source| Error::file(file.clone(), source))?;
        environment.set(NAME, file.display(), "written from /sys by --write-topo");
        return Ok(());
    }
    match options.topo.as_str() {
        "none" => {}
        // Without a file NCCL reads sysfs, which shows the sandbox the true places of its devices.
        "auto" => {
            if let Ok(file) = std::env::var(NAME) {
                environment.set(NAME, file, "set already");
            }
        }
        file if Path::new(file).is_file() => environment.set(NAME, file, "--topo"),
        file => {
            let why = "a topology file that is not there makes NCCL fail; --topo auto needs none";
            return Err(Error::Usage(format!("--topo {file:?}: {why}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_takes_every_value_as_it_is() {
        let mut environment = Environment::default();
        environment.set("A", "it's $HOME", "because\nof it");
        let sh = "# because of it\nexport A='it'\\''s $HOME'\n";
        assert_eq!(lines(&environment, Format::Sh), sh);
        assert_eq!(lines(&environment, Format::Docker), "# because of it\nA=it's $HOME\n");
    }
}
