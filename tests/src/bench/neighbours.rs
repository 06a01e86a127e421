//! What a tenant that floods costs its neighbour: the 99th of a hundred turns of the control path, alone and
//! beside the flood, by turns.

use anyhow::Result;

use super::median;
use crate::cases::flooded;
use crate::table::Table;
use crate::world::World;

const ROUNDS: usize = 9;
/// What a flood may cost a neighbour: a ratio of two rounds that follow each other.
const BOUND: f64 = 1.2;

/// Prints the table.
pub fn run(world: &World) -> Result<()> {
    let mut flood = flooded::run(world, ROUNDS)?;
    let of = |values: &mut Vec<f64>| median(values).unwrap_or(f64::NAN);
    let mut ratios: Vec<f64> =
        flood.alone.iter().zip(&flood.beside).map(|(alone, beside)| beside / alone).collect();
    let (alone, beside, ratio) = (of(&mut flood.alone), of(&mut flood.beside), of(&mut ratios));
    let mut table = Table::new(&[
        &format!("p99 of PD made and destroyed, median of {ROUNDS}"),
        "alone, us",
        "beside a flood, us",
        "median ratio of a round",
    ]);
    table.row(&[
        "a neighbour of a tenant with quotas and a rate".to_owned(),
        format!("{alone:.0}"),
        format!("{beside:.0}"),
        format!("{ratio:.2}"),
    ]);
    println!("{table}");
    let word = if ratio <= BOUND { "within" } else { "BEYOND" };
    println!(
        "a neighbour waits {ratio:.2} times as long beside a flood: {word} the bound of {BOUND}"
    );
    Ok(())
}
