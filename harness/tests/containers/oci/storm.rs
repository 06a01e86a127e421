//! Containers in which many processes open a device at once, and containers that get no processor meanwhile: everybody is
//! served, and nobody is ended.

use std::fs;
use std::process::Output;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::common::bundle::Bundle;
use crate::common::bundle::Runtime;
use crate::common::bundle::runtimes;
use crate::common::guest;
use crate::common::guest::DEVICE;
use crate::common::stdout;

/// A container of so many processes, threads in each, and opens of each.
pub(crate) fn storm(bundle: &mut Bundle, counts: [&str; 3]) {
    let [processes, threads, opens] = counts;
    let args = ["/guest", "storm", DEVICE, processes, threads, opens, "0"];
    bundle.edit(|config| config["process"]["args"] = json!(args));
    bundle.bind(guest::program(), "/guest");
}

/// Everybody was served.
pub(crate) fn assert_served(ran: &Output, processes: &str) {
    let text = stdout(ran);
    let all = format!("{{\"Code(0)\": {processes}}}\nbystander: Code(0)");
    assert!(ran.status.success() && text.trim_end().ends_with(&all), "{ran:?}");
}

fn stormy(runtime: &'static Runtime, counts: [&str; 3]) -> Bundle {
    let mut bundle = Bundle::new(runtime, &[]);
    storm(&mut bundle, counts);
    bundle
}

#[test]
fn a_thousand_processes_of_a_container_are_served_at_once() {
    for runtime in runtimes() {
        let bundle = stormy(runtime, ["1000", "1", "1"]);
        assert_served(&bundle.run(), "1000");
        bundle.assert_nothing_left();
    }
}

#[test]
fn a_container_with_a_twentieth_of_a_processor_is_served() {
    for runtime in runtimes().take(1) {
        let mut bundle = stormy(runtime, ["60", "1", "2"]);
        let cpu = json!({"quota": 5_000, "period": 100_000});
        bundle.edit(|config| config["linux"]["resources"]["cpu"] = cpu);
        assert_served(&bundle.run(), "60");
        bundle.assert_nothing_left();
    }
}

/// The freezer is written to by hand: a runtime's own pause gives up where a process waits for an answer.
/// VERBGATE_FREEZE_S says for how long, instead of a second.
#[test]
fn a_container_that_is_frozen_again_and_again_is_served() {
    let long = std::env::var("VERBGATE_FREEZE_S").ok().and_then(|text| text.parse().ok());
    let long = Duration::from_secs(long.unwrap_or(1));
    for runtime in runtimes().filter(|runtime| runtime.name == "runc") {
        let bundle = stormy(runtime, ["200", "1", "20"]);
        let frozen = std::thread::scope(|scope| {
            let runs = scope.spawn(|| bundle.run());
            let mut frozen = 0;
            while !runs.is_finished() {
                let froze = freeze(&bundle, long).is_some();
                frozen += usize::from(froze);
                std::thread::sleep(if froze { long / 10 } else { Duration::from_millis(50) });
            }
            assert_served(&runs.join().unwrap(), "200");
            frozen
        });
        assert!(frozen > 0, "never frozen");
        bundle.assert_nothing_left();
    }
}

/// Freezes the container's group for a while; a group that is not there yet, or no longer, is left.
fn freeze(bundle: &Bundle, long: Duration) -> Option<()> {
    let state: Value = serde_json::from_slice(&bundle.natively("state", &[], &[]).stdout).ok()?;
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", state["pid"].as_u64()?)).ok()?;
    let of =
        |begin: &str| groups.lines().find_map(|line| Some(line.split_once(begin)?.1.to_owned()));
    let (file, stop, go) = match of(":freezer:/") {
        Some(group) => {
            (format!("/sys/fs/cgroup/freezer/{group}/freezer.state"), "FROZEN", "THAWED")
        }
        None => (format!("/sys/fs/cgroup/{}/cgroup.freeze", of("0::/")?), "1", "0"),
    };
    // The root of all groups, in which a container is until it has one of its own, would freeze this test as well.
    if file.contains("//") {
        return None;
    }
    fs::write(&file, stop).ok()?;
    std::thread::sleep(long);
    fs::write(file, go).ok()
}
