//! How much memory containers may lock, and so register: by their engine's settings, or as they inherit from the
//! engine's daemon.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use serde_json::Value;

/// Docker's file.
const DOCKER: &str = "/etc/docker/daemon.json";
/// podman's files and folders of files, of which the later override the earlier: containers.conf(5).
const PODMAN: [&str; 4] = [
    "/usr/share/containers/containers.conf",
    "/etc/containers/containers.conf",
    "/usr/share/containers/containers.conf.d",
    "/etc/containers/containers.conf.d",
];
/// As proc_pid_limits(5) says it.
pub(super) const UNLIMITED: &str = "unlimited";

/// The limits of containers, each with what sets it: of daemons, by their names and folders in /proc, and of podman.
pub(super) fn found(
    daemons: impl Iterator<Item = (&'static str, PathBuf)>,
    has_podman: bool,
) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let docker = fs::read_to_string(DOCKER).ok().and_then(|text| of_docker(&text));
    for (name, pid) in daemons {
        let inherited = || memlock(&fs::read_to_string(pid.join("limits")).ok()?);
        let (limit, by) = match &docker {
            Some(limit) if name == "dockerd" => {
                (Some(limit.clone()), format!("default-ulimits of {DOCKER}"))
            }
            _ => (inherited(), name.to_owned()),
        };
        found.extend(limit.map(|limit| (by, limit)));
    }
    if has_podman && let Some((file, limit)) = of_podman(&PODMAN.map(PathBuf::from)) {
        found.push((format!("default_ulimits of {}", file.display()), limit));
    }
    found.sort();
    found.dedup();
    found
}

/// The soft limit in proc_pid_limits(5).
fn memlock(limits: &str) -> Option<String> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    line.split_whitespace().next().map(str::to_owned)
}

fn shown(number: i64) -> String {
    if number < 0 { UNLIMITED.to_owned() } else { number.to_string() }
}

/// `default-ulimits` of daemon.json: dockerd(8).
fn of_docker(text: &str) -> Option<String> {
    let file: Value = serde_json::from_str(text).ok()?;
    file.pointer("/default-ulimits/memlock/Soft")?.as_i64().map(shown)
}

/// `default_ulimits` of the last file that sets them, and that file.
fn of_podman(places: &[PathBuf]) -> Option<(PathBuf, String)> {
    let files = places
        .iter()
        .flat_map(|place| if place.is_dir() { below(place) } else { vec![place.clone()] });
    let mut set = files.filter_map(|file| {
        let text = fs::read_to_string(&file).ok()?;
        let read: toml::Table = toml::from_str(&text).ok()?;
        Some((file, read.get("containers")?.get("default_ulimits")?.as_array()?.clone()))
    });
    let (file, all) = set.next_back()?;
    let mut words = all.iter().filter_map(|one| one.as_str()?.strip_prefix("memlock="));
    let soft = words.next_back()?.split(':').next()?.parse().ok()?;
    Some((file, shown(soft)))
}

/// The files of a folder, in the order in which podman reads them.
fn below(folder: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        all.filter(|file| file.extension().is_some_and(|end| end == "conf")).collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_soft_one() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax locked memory         65536  unlimited  bytes\n";
        assert_eq!(memlock(limits).as_deref(), Some("65536"));
        let own = fs::read_to_string("/proc/self/limits").unwrap();
        assert!(memlock(&own).is_some());
        let docker = |memlock: &str| {
            of_docker(&format!("{{\"default-ulimits\": {{\"memlock\": {memlock}}}}}"))
        };
        assert_eq!(
            docker("{\"Name\": \"memlock\", \"Hard\": -1, \"Soft\": 4096}").as_deref(),
            Some("4096")
        );
        assert_eq!(docker("{\"Hard\": -1, \"Soft\": -1}").as_deref(), Some(UNLIMITED));
        assert_eq!(docker("7"), None);
        assert_eq!(of_docker("{}"), None);
    }

    #[test]
    fn the_last_file_of_podman_counts() {
        let dir = tempfile::tempdir().unwrap();
        let (main, folder) = (dir.path().join("containers.conf"), dir.path().join("d"));
        fs::create_dir(&folder).unwrap();
        let places = [main.clone(), folder.clone()];
        assert_eq!(of_podman(&places), None);
        let write = |file: &Path, words: &str| {
            fs::write(file, format!("[containers]\ndefault_ulimits = [{words}]\n")).unwrap();
        };
        write(&main, "\"nofile=1:2\", \"memlock=-1:-1\"");
        assert_eq!(of_podman(&places), Some((main, UNLIMITED.to_owned())));
        let last = folder.join("20-site.conf");
        write(&folder.join("10-site.conf"), "\"memlock=7\"");
        write(&last, "\"memlock=65536:-1\"");
        fs::write(folder.join("30-none.conf"), "[containers]\n").unwrap();
        write(&folder.join("40.txt"), "\"memlock=9\"");
        assert_eq!(of_podman(&places), Some((last.clone(), "65536".to_owned())));
        // The list is replaced, not added to.
        write(&last, "\"nofile=1:2\"");
        assert_eq!(of_podman(&places), None);
    }
}
