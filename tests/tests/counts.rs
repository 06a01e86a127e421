//! What a request costs, counted: times vary, counts do not.

use verbgate_tests::bench::host;

/// The guest's trap and the stub's.
const NOTIFICATIONS: f64 = 2.0;
/// Receive, read the request, look up its descriptor, check that it still waits, hand the stub its
/// file, answer both; with a reserve for what a request now and then needs besides.
const CALLS: f64 = 8.0;

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
