//! The package's units under a systemd that runs: a user's manager, in namespaces and control groups of its own.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use crate::common::is_root;
use crate::common::stdout;

const MANAGER: &str = "/usr/lib/systemd/systemd";
const UNITS: [&str; 2] = ["verbgate-cdi.path", "verbgate-cdi.service"];
/// More than systemd starts a unit in ten seconds by default: as many virtual functions come at once.
const CHANGES: u32 = 12;

/// Joins a group of its own in every hierarchy: a manager takes its group for its own, and everything in the group.
const OUTSIDE: &str = r#"
groups=$1 name=$2
shift 2
while IFS=: read -r _ controllers path; do
    if [ -z "$controllers" ]; then
        at=$(findmnt -n -o TARGET -t cgroup2 | head -n 1)
    else
        at=$(findmnt -n -o TARGET -t cgroup -O "$controllers" | head -n 1)
    fi
    [ -n "$at" ] || continue
    mkdir "$at$path/$name" && echo "$at$path/$name" >>"$groups"
    for one in cpuset.cpus cpuset.mems; do
        [ ! -e "$at$path/$name/$one" ] || cat "$at$path/$one" >"$at$path/$name/$one" || true
    done
    echo $$ >"$at$path/$name/cgroup.procs"
done </proc/self/cgroup
exec unshare --mount --pid --fork --mount-proc --kill-child "$@"
"#;

/// A machine whose devices come and go. A script that counts stands for the program.
const INSIDE: &str = r#"
set -eu
units=$1 manager=$2 changes=$3
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/user /run/upper /run/work /run/dev /run/units
mount -t tmpfs tmpfs /run/dev
mkdir /run/dev/infiniband
cp "$units"/* /run/units
mount -t overlay -o lowerdir=/usr/bin,upperdir=/run/upper,workdir=/run/work overlay /usr/bin
printf '#!/bin/sh\necho "$*" >>/run/calls\n' >/usr/bin/verbgate
chmod 755 /usr/bin/verbgate
# The copies are root's, whoever owns the host's nodes at this moment: root may not open another's with O_CREAT here
# (may_create_in_sticky, fs/namei.c).
cd /dev && cp -R --preserve=mode null zero full random urandom tty /run/dev && cd /
mount --move /run/dev /dev
: >/run/calls
export XDG_RUNTIME_DIR=/run/user SYSTEMD_UNIT_PATH=/run/units: HOME=/
"$manager" --user --unit=verbgate-cdi.path >/dev/null 2>&1 &
manager=$!
calls() {
    wc -l </run/calls
}
# While its service runs, a path unit of systemd misses what changes.
watches() {
    [ "$(systemctl --user show --property SubState --value verbgate-cdi.path)" = waiting ]
}
# Until the unit watches, nobody hears of a node.
at=0
while [ "$(calls)" = 0 ]; do
    kill -0 "$manager" || { ls -ld /dev /dev/null; exit 1; }
    at=$((at + 1))
    mknod "/dev/infiniband/early$at" c 1 3
    sleep 0.2
done
# What has come in the meantime is over when nothing more comes.
before=
while [ "$(calls)" != "$before" ]; do
    before=$(calls)
    sleep 2
done
at=0
while [ "$at" -lt "$changes" ]; do
    at=$((at + 1))
    until watches; do sleep 0.1; done
    before=$(calls)
    if [ $((at % 2)) = 1 ]; then mknod /dev/infiniband/uverbs0 c 1 3; else rm /dev/infiniband/uverbs0; fi
    while [ "$(calls)" = "$before" ]; do sleep 0.1; done
    echo "change $at"
done
sort -u /run/calls
"#;

/// Removes the groups, in which the manager has made others.
fn remove(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    let _ = fs::remove_dir(group);
}

#[test]
fn systemd_refreshes_the_specification_whenever_a_device_comes_or_goes() {
    if !is_root() {
        return;
    }
    if !Path::new(MANAGER).exists() || !Path::new("/sys/fs/cgroup").exists() {
        eprintln!("SKIPPED: needs systemd");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let units = dir.path().join("units");
    fs::create_dir(&units).unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("dist/systemd");
    for unit in UNITS {
        fs::copy(from.join(unit), units.join(unit)).unwrap();
    }
    let groups = dir.path().join("groups");
    let name = format!("verbgate-units-{}", std::process::id());
    let mut machine = Command::new("sh");
    machine
        .args(["-c", OUTSIDE, "sh"])
        .arg(&groups)
        .arg(&name)
        .args(["sh", "-c", INSIDE, "sh"])
        .arg(&units)
        .args([MANAGER, &CHANGES.to_string()]);
    let output = verbgate_wait::output(&mut machine);
    let groups = fs::read_to_string(&groups).unwrap_or_default();
    let groups: Vec<PathBuf> = groups.lines().map(PathBuf::from).collect();
    verbgate_wait::until("the end of the groups", || {
        groups.iter().for_each(|group| remove(group));
        !groups.iter().any(|group| group.exists())
    });
    let said = stdout(&output);
    assert!(output.status.success(), "{output:?}");
    assert!(said.ends_with(&format!("change {CHANGES}\ncdi refresh")), "{said}");
}
