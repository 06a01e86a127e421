//! Launchers: who a rank is, and where the ranks meet, from what Slurm, MPI, torchrun, Flux and
//! Kubernetes tell their processes.

use crate::error::Error;
use crate::meeting;

/// The environment, or a test's.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What the launchers call the rank and the number of ranks. Kubernetes does not tell an indexed
/// Job's pods how many there are.
const LAUNCHERS: &[(&str, &str, &str)] = &[
    ("Slurm", "SLURM_PROCID", "SLURM_NTASKS"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("MPICH and Intel MPI", "PMI_RANK", "PMI_SIZE"),
    ("Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
    ("torchrun", "RANK", "WORLD_SIZE"),
    ("a Kubernetes indexed Job", "JOB_COMPLETION_INDEX", RANKS),
];
/// The number of ranks, where the launcher does not tell.
const RANKS: &str = "VERBGATE_RANKS";
/// Ports of jobs under Slurm, by the job's number: below those that the kernel gives to others
/// (`ip_local_port_range`).
const PORTS: (u64, u64) = (12_000, 20_000);
/// The port of an indexed Job, whose pods have addresses of their own.
const POD_PORT: u16 = 4711;

fn number(environment: Environment<'_>, name: &str) -> Result<Option<u32>, Error> {
    let Some(text) = environment(name) else { return Ok(None) };
    let number = text.parse().map(Some);
    number.map_err(|_| {
        Error::Usage(format!("${name} is {text:?}, not a number: give --rank and --ranks"))
    })
}

/// The rank and the number of ranks, as far as the first launcher tells that tells the rank.
pub(crate) fn who(environment: Environment<'_>) -> Result<(Option<u32>, Option<u32>), Error> {
    let mut partly = (None, None);
    for (_, rank, ranks) in LAUNCHERS {
        let found = (number(environment, rank)?, number(environment, ranks)?);
        match found {
            (Some(_), Some(_)) => return Ok(found),
            (Some(_), None) if *ranks == RANKS => partly = found,
            _ => {}
        }
    }
    Ok(partly)
}

/// All launchers, for people.
pub(crate) fn names() -> String {
    LAUNCHERS.iter().map(|(name, ..)| *name).collect::<Vec<_>>().join(", ")
}

/// Where the ranks meet, `HOST:PORT`, if the launcher tells. `hosts`: /etc/hosts, where Kubernetes
/// writes a pod's full name.
pub(crate) fn meeting(
    environment: Environment<'_>,
    host: &str,
    hosts: &str,
) -> Result<Option<String>, Error> {
    if let (Some(master), Some(port)) =
        (environment("MASTER_ADDR"), number(environment, "MASTER_PORT")?)
    {
        // torchrun's own store listens at its port.
        return Ok(Some(format!("{master}:{}", port + 1)));
    }
    let nodes = environment("SLURM_STEP_NODELIST").or_else(|| environment("SLURM_JOB_NODELIST"));
    if let (Some(nodes), Some(_)) = (nodes, environment("SLURM_PROCID")) {
        let of = |name: &str| -> u64 {
            environment(name).and_then(|text| text.parse().ok()).unwrap_or(0)
        };
        // Two steps of a job may run at the same time.
        let port = PORTS.0 + (of("SLURM_JOB_ID") * 7 + of("SLURM_STEP_ID")) % (PORTS.1 - PORTS.0);
        return Ok(first_node(&nodes).map(|node| format!("{node}:{port}")));
    }
    if let (Some(_), Some(descriptor)) = (environment("PMI_RANK"), environment("PMI_FD")) {
        return Ok(Some(format!("{}{descriptor}", meeting::PMI)));
    }
    if let (Some(folder), Some(job), Some(ranks)) = (
        environment("PMIX_SERVER_TMPDIR"),
        environment("PMIX_NAMESPACE"),
        environment("OMPI_COMM_WORLD_SIZE"),
    ) {
        // The launcher's folder for the job, which it removes; each host has one of its own.
        if environment("OMPI_COMM_WORLD_LOCAL_SIZE").is_some_and(|here| here == ranks) {
            return Ok(Some(format!("file:{folder}/verbgate-{job}")));
        }
        return Err(Error::Usage(
            "Open MPI tells ranks of several hosts not where rank 0 is: give --rendezvous HOST:PORT, \
             any free port of rank 0's host, or file:PATH of a file that all ranks see"
                .to_owned(),
        ));
    }
    if let Some(index) = environment("JOB_COMPLETION_INDEX") {
        return Ok(first_pod(&index, host, hosts).map(|pod| format!("{pod}:{POD_PORT}")));
    }
    Ok(None)
}

/// The first of `node[001-004,7]-ib,gpu1` (scontrol(1), "show hostnames"): task 0 is there.
fn first_node(list: &str) -> Option<String> {
    let (before, rest) = match list.split_once('[') {
        Some((before, rest)) if !before.contains(',') => (before, rest),
        _ => return list.split(',').next().map(str::to_owned).filter(|name| !name.is_empty()),
    };
    let (numbers, after) = rest.split_once(']')?;
    let number = numbers.split([',', '-']).next()?;
    let after = after.split(',').next().unwrap_or_default();
    // More than one pair of brackets: each has a first.
    first_node(&format!("{before}{number}{after}")).filter(|_| !number.is_empty())
}

/// The pod of index 0: pods of an indexed Job are called `JOB-INDEX`, and behind that the service's
/// name, if there is one.
fn first_pod(index: &str, host: &str, hosts: &str) -> Option<String> {
    let short = host.split('.').next()?;
    let job = short.strip_suffix(index)?.strip_suffix('-')?;
    let names =
        hosts.lines().flat_map(|line| line.split('#').next().unwrap_or("").split_whitespace());
    let domain = names
        .filter_map(|name| name.strip_prefix(short)?.strip_prefix('.'))
        .next()
        .or_else(|| host.split_once('.').map(|(_, domain)| domain));
    Some(match domain {
        Some(domain) => format!("{job}-0.{domain}"),
        None => format!("{job}-0"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(
        set: &[(&str, &str)],
        host: &str,
        hosts: &str,
    ) -> (Option<u32>, Option<u32>, Option<String>) {
        let environment = |name: &str| {
            set.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned())
        };
        let (rank, ranks) = who(&environment).unwrap();
        (rank, ranks, meeting(&environment, host, hosts).unwrap())
    }

    #[test]
    fn each_launcher_tells_who_a_rank_is() {
        for (_, rank, ranks) in LAUNCHERS {
            let (found, of, _) = with(&[(rank, "2"), (ranks, "4")], "", "");
            assert_eq!((found, of), (Some(2), Some(4)), "{rank}");
        }
        assert_eq!(with(&[("SLURM_PROCID", "2")], "", "").0, None);
        assert_eq!(with(&[("JOB_COMPLETION_INDEX", "2")], "", "").0, Some(2));
    }

    #[test]
    fn no_rendezvous_need_be_given_by_hand() {
        let slurm = |nodes| {
            let set = [
                ("SLURM_PROCID", "3"),
                ("SLURM_NTASKS", "8"),
                ("SLURM_STEP_NODELIST", nodes),
                ("SLURM_JOB_ID", "4096"),
                ("SLURM_STEP_ID", "1"),
            ];
            with(&set, "", "").2.unwrap()
        };
        let port = 12_000 + (4096 * 7 + 1) % 8_000;
        for (nodes, first) in [
            ("node[001-004,7],gpu1", "node001"),
            ("gpu1,node[1-2]", "gpu1"),
            ("n[3,5-9]-ib", "n3-ib"),
            ("rack[1-2]n[07-09]", "rack1n07"),
            ("alone", "alone"),
        ] {
            assert_eq!(slurm(nodes), format!("{first}:{port}"), "{nodes}");
        }
        let torchrun =
            [("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "h"), ("MASTER_PORT", "29500")];
        assert_eq!(with(&torchrun, "", "").2.as_deref(), Some("h:29501"));
        let job = [("JOB_COMPLETION_INDEX", "12"), ("VERBGATE_RANKS", "16")];
        let hosts =
            "127.0.0.1 localhost\n10.1.2.3\tcheck-12.fabric.ns.svc.cluster.local\tcheck-12\n";
        let found = with(&job, "check-12", hosts).2;
        assert_eq!(found.as_deref(), Some("check-0.fabric.ns.svc.cluster.local:4711"));
        assert_eq!(with(&job, "check-12", "").2.as_deref(), Some("check-0:4711"));
        // A name that does not end with the index is none of the Job's.
        assert_eq!(with(&job, "other-3", "").2, None);
        let mpich = [("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("PMI_FD", "6")];
        assert_eq!(with(&mpich[..2], "", "").2, None);
        assert_eq!(with(&mpich, "", "").2.as_deref(), Some("pmi:6"));
        let open = [
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("PMIX_NAMESPACE", "84.1"),
            ("PMIX_SERVER_TMPDIR", "/tmp/ompi"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
        ];
        assert_eq!(with(&open, "", "").2.as_deref(), Some("file:/tmp/ompi/verbgate-84.1"));
        // Of several hosts, none sees the others' folders.
        let error = meeting(
            &|name| match open.iter().find(|(of, _)| *of == name) {
                Some(("OMPI_COMM_WORLD_LOCAL_SIZE", _)) => Some("2".to_owned()),
                found => found.map(|(_, value)| (*value).to_owned()),
            },
            "",
            "",
        );
        assert!(error.unwrap_err().to_string().contains("give --rendezvous HOST:PORT"));
    }
}
