//! The program `verbgate-hostile`: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    verbgate_hostile::main()
}
