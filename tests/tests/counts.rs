//! The cost of a request, counted: times vary, counts do not.

use verbgate_tests::bench::host;

/// The guest's trap and the stub's.
const NOTIFICATIONS: f64 = 2.0;
/// Receive twice, look what is resident, read the request, compare memory and descriptor with the stub's, answer both; and
/// find out after each look that the notifications are valid still, and the stub alive: without that
/// a number could be another's.
const CALLS: f64 = 15.0;

#[test]
fn a_request_costs_so_many_notifications_and_calls() {
    let programs = host::built_beside(&std::env::current_exe().unwrap()).unwrap();
    let each = programs.count().unwrap();
    // The counts are averages: a request that had to wait for a busy stub shows as a fraction.
    let slack = 0.05;
    assert!(each.notifications <= NOTIFICATIONS + slack, "{each:?}");
    assert!(each.calls <= CALLS + slack, "{each:?}");
    assert!(each.notifications >= 1.0 && each.calls >= 3.0, "not counted: {each:?}");
}
