//! The start of a sandbox on a host of one RDMA device, and of many.

use anyhow::Result;

use super::median;
use crate::exec;
use crate::many::Others;
use crate::table::Table;
use crate::world::World;

/// Devices on the large host, the world's own included; each has a GID table of 1,024 slots.
const DEVICES: u32 = 32;
const ROUNDS: usize = 5;

/// Prints the table.
///
/// # Errors
///
/// That a program failed.
pub fn run(world: &World) -> Result<()> {
    let ways: [(&str, &[&str]); 3] = [
        ("one device granted", &["--device", &world.device]),
        ("all devices granted", &["--device", "all"]),
        ("the same, with the host's `/sys`", &["--device", "all", "--sysfs", "host"]),
    ];
    let measure = || -> Result<[f64; 3]> {
        let mut times = [const { Vec::new() }; 3];
        for _ in 0..ROUNDS {
            for ((_, options), times) in ways.iter().zip(&mut times) {
                let mut command = world.program("verbgate");
                command.arg("run").args(*options).args(["--", "true"]);
                let ended = exec::run(command)?.expect_status(0)?;
                times.push(ended.took.as_secs_f64() * 1e3);
            }
        }
        Ok(times.map(|mut times| median(&mut times).unwrap_or(f64::NAN)))
    };
    let small = measure()?;
    let others = Others::make(DEVICES - 1)?;
    let large = measure();
    drop(others);
    let mut table =
        Table::new(&["`verbgate run -- true`, ms", "host of 1 device", "of 32 devices"]);
    for (((name, _), small), large) in ways.iter().zip(small).zip(large?) {
        table.row(&[(*name).to_owned(), format!("{small:.0}"), format!("{large:.0}")]);
    }
    println!("{table}");
    Ok(())
}
