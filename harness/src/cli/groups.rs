//! The groups in which `verbgate --help` lists the commands.

use std::fmt::Write;

use clap::Command;

/// A group's heading, and the group's commands, in the order of the help.
type Group = (&'static str, &'static [&'static str]);

const GROUPS: &[Group] = &[
    ("Sandboxes", &["run", "trace", "bench", "sysfs"]),
    ("Containers", &["oci", "agent", "nri", "cdi", "dra", "runtime", "ps", "show", "stats", "gc"]),
    ("NICs", &["netdev", "nccl", "ucx", "nixl", "mooncake"]),
    ("Nodes", &["doctor", "features", "abi", "config", "policy", "prepare", "manifest"]),
    ("Fabrics", &["fabric", "explain"]),
];

/// The names of all commands that users see.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().flat_map(|(_, names)| names.iter().copied())
}

/// The command with a help text that lists its commands by group. Clap has one heading for all.
pub(super) fn grouped(command: Command) -> Command {
    let commands = listing(&command);
    let header = command.get_styles().get_header();
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{commands}\
         {header}Options:{header:#}\n{{options}}\n\n\
         `verbgate COMMAND --help` explains a command.\n"
    );
    command.help_template(template)
}

fn listing(command: &Command) -> String {
    let styles = command.get_styles();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let width = names().map(str::len).max().unwrap_or(0);
    let mut text = String::new();
    for (heading, names) in GROUPS {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{header}{heading}:{header:#}");
        for name in *names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {literal}{name:width$}{literal:#}  {about}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_command_is_in_one_group_and_every_name_is_a_command() {
        let command = Cli::command();
        let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        let mut commands: Vec<&str> = shown.map(Command::get_name).collect();
        let mut grouped: Vec<&str> = names().collect();
        commands.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(commands, grouped);
    }

    #[test]
    fn the_help_shows_every_group_and_command_once_and_fits_a_terminal() {
        let help = grouped(Cli::command()).render_help().to_string();
        let lines: Vec<&str> = help.lines().collect();
        for (heading, _) in GROUPS {
            assert_eq!(lines.iter().filter(|line| **line == format!("{heading}:")).count(), 1);
        }
        for name in names() {
            let of = |line: &&&str| line.starts_with(&format!("  {name} "));
            let found: Vec<&&str> = lines.iter().filter(of).collect();
            let [line] = found[..] else { panic!("{name}: {found:?} in\n{help}") };
            let about = line.trim_start().trim_start_matches(name).trim();
            assert!(about.len() > 10 && line.len() <= 80, "{line}");
        }
        assert!(lines.iter().any(|line| line.contains("--log-level")), "{help}");
    }

    #[test]
    fn options_that_are_built_late_leave_the_text_of_their_command() {
        fn compare(before: &Command, after: &Command) -> usize {
            let of_each = before.get_subcommands().map(|sub| {
                let built = after.find_subcommand(sub.get_name()).unwrap();
                let text = |of: &Command| of.get_about().map(ToString::to_string);
                if sub.get_about().is_some() {
                    assert_eq!(text(sub), text(built), "{}", sub.get_name());
                }
                1 + compare(sub, built)
            });
            of_each.sum()
        }
        let mut built = Cli::command();
        built.build();
        assert!(compare(&Cli::command(), &built) > names().count());
    }

    #[test]
    fn the_help_of_a_command_is_not_that_of_all() {
        let mut command = grouped(Cli::command());
        command.build();
        let run = command.find_subcommand_mut("run").unwrap().render_help().to_string();
        assert!(run.contains("--device") && !run.contains("Fabrics:"), "{run}");
    }
}
