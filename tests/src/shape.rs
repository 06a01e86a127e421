//! The shape of a program's output: whether two outputs say the same, apart from the parts that
//! differ from run to run.

/// How the lines begin with which perftest complains of the processor's clock, when the machine is
/// too busy for it to be measured.
const OF_THE_CLOCK: &[&str] = &[
    "Correlation coefficient r^2:",
    "Warning: measured timestamp frequency",
    "Conflicting CPU frequency values detected",
];

/// Replaces what differs from run to run (addresses, numbers of queue pairs, keys, times, rates) by
/// `#`, and white space by single spaces; leaves out what is said of the clock.
pub fn shape(output: &str) -> Vec<String> {
    let lines = output.lines().map(|line| {
        let words: Vec<String> = line.split_whitespace().map(shape_of_word).collect();
        words.join(" ")
    });
    let of_the_clock = |line: &String| OF_THE_CLOCK.iter().any(|start| line.starts_with(start));
    lines.filter(|line| !line.is_empty() && !of_the_clock(line)).collect()
}

/// What perftest prints for the deviation of times that are all alike, and for times when the clock could
/// not be measured.
const NO_NUMBER: &[&str] = &["nan", "-nan", "inf"];

fn shape_of_word(word: &str) -> String {
    if NO_NUMBER.contains(&word) {
        return "#".to_owned();
    }
    // A name that holds a digit (`rxe0`, `v1.2`) is a name: only a word that starts as a number is
    // one, up to its unit (`4096[B]`) or punctuation.
    let end = word
        .find(|c: char| !(c.is_ascii_hexdigit() || matches!(c, '.' | ':' | 'x')))
        .unwrap_or(word.len());
    let (number, rest) = word.split_at(end);
    let starts = number.starts_with(|c: char| c.is_ascii_digit() || c == ':');
    let has_digit = number.contains(|c: char| c.is_ascii_digit());
    match (starts && has_digit, word.strip_prefix('-')) {
        (true, _) if rest.is_empty() || rest.starts_with(|c: char| !c.is_alphanumeric()) => {
            format!("#{rest}")
        }
        (false, Some(positive)) if positive.starts_with(|c: char| c.is_ascii_digit()) => {
            shape_of_word(positive)
        }
        _ => word.to_owned(),
    }
}

/// The first difference of two outputs in shape, as `native` and `sandboxed`.
pub fn difference(native: &str, sandboxed: &str) -> Option<String> {
    first_difference(&shape(native), &shape(sandboxed))
}

/// What a sandbox is told otherwise on purpose: its table of GIDs ends behind the last that is its own.
const OF_THE_SANDBOX: &str = "gid_tbl_len:";

/// The first difference of two outputs, letter by letter, but for how long a table of GIDs is.
pub fn exact_difference(native: &str, sandboxed: &str) -> Option<String> {
    let line = |line: &str| match line.trim_start().starts_with(OF_THE_SANDBOX) {
        true => OF_THE_SANDBOX.to_owned(),
        false => line.to_owned(),
    };
    let lines = |text: &str| text.lines().map(line).collect::<Vec<_>>();
    first_difference(&lines(native), &lines(sandboxed))
}

fn first_difference(native: &[String], sandboxed: &[String]) -> Option<String> {
    let longest = native.len().max(sandboxed.len());
    (0..longest).find_map(|index| {
        let (left, right) = (native.get(index), sandboxed.get(index));
        let show = |line: Option<&String>| match line {
            Some(line) => format!("{line:?}"),
            None => "nothing more".to_owned(),
        };
        (left != right).then(|| {
            format!("line {}: natively {}, in the sandbox {}", index + 1, show(left), show(right))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_are_all_alike_have_no_deviation() {
        assert_eq!(difference("2 1000 31.2 -nan 33.0", "2 1000 30.9 0.4 31.0"), None);
        assert!(difference("state nano", "state 5").is_some());
    }

    #[test]
    fn what_varies_is_blurred_and_the_rest_is_not() {
        let one = "  local address:  LID 0x0000, QPN 0x000012, PSN 0x6a070e, GID ::ffff:10.99.0.1\n\
                   1638400 bytes in 0.86 seconds = 15.23 Mbit/sec";
        let two = "  local address:  LID 0x0000, QPN 0x00001f, PSN 0xb, GID ::ffff:10.99.0.1\n\
                   1638400 bytes in 1.2 seconds = 7.00 Mbit/sec";
        assert_eq!(difference(one, two), None);
        assert_eq!(
            shape(one),
            ["local address: LID #, QPN #, PSN #, GID #", "# bytes in # seconds = # Mbit/sec"]
        );
        assert_eq!(shape(" Mtu : 4096[B]\n Device : rxe0\n"), ["Mtu : #[B]", "Device : rxe0"]);
        assert_eq!(
            shape("#bytes 99% percentile[usec] -5 -x 2nd"),
            ["#bytes #% percentile[usec] # -x 2nd"]
        );
    }

    #[test]
    fn what_is_said_of_the_clock_is_left_out() {
        let busy = "a\nCorrelation coefficient r^2: 0.71 < 0.9\nb";
        assert_eq!(difference(busy, "a\nb"), None);
    }

    #[test]
    fn words_that_look_like_numbers_stay() {
        assert_eq!(shape("add bad: dead fe80 --- ::"), ["add bad: dead fe80 --- ::"]);
    }

    #[test]
    fn a_difference_names_the_line() {
        assert_eq!(
            difference("a\nb 1", "a\nb 2\nc").as_deref(),
            Some("line 3: natively nothing more, in the sandbox \"c\"")
        );
        assert!(exact_difference("a 1", "a 2").unwrap().starts_with("line 1"));
        let table = |len: &str| format!("state: 4\n\tgid_tbl_len:\t\t{len}");
        assert_eq!(exact_difference(&table("1024"), &table("2")), None);
    }
}
