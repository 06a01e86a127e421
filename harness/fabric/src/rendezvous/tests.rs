//! Ranks that meet, ranks that do not fit together, and connections that are no ranks.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::io::Read;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use super::Entry;
use super::Hello;
use super::Link;
use super::Loss;
use super::Server;
use super::ToRank;
use super::ToServer;
use super::VERSION;
use super::frame;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::report::PathReport;

const PATIENCE: Duration = Duration::from_secs(600);

fn hello(rank: u32, ranks: u32) -> Hello {
    let entry = Entry { rank, host: "here".to_owned(), rails: Vec::new() };
    Hello { version: VERSION, rank, ranks, parameters: "verify".to_owned(), entry }
}

fn meet(at: &str, hello: Hello) -> Result<Link, Error> {
    Link::join(at, hello, PATIENCE, Arc::default())
}

fn server(ranks: u32) -> (Server, String) {
    let (server, at) = Server::start("127.0.0.1:0", ranks, PATIENCE).unwrap();
    (server, at.to_string())
}

/// Two ranks that have met, for tests of what they do then.
pub(crate) fn pair() -> (Server, Link, Link) {
    let (server, at) = server(2);
    let other = {
        let at = at.clone();
        thread::spawn(move || meet(&at, hello(1, 2)).unwrap())
    };
    let link = meet(&at, hello(0, 2)).unwrap();
    (server, link, other.join().unwrap())
}

/// What becomes of ranks that say this.
fn outcomes(ranks: u32, hellos: Vec<Hello>) -> Vec<Result<(), Error>> {
    let (server, at) = server(ranks);
    let join = |hello: Hello| {
        let at = at.clone();
        thread::spawn(move || meet(&at, hello).and_then(Link::leave))
    };
    let threads: Vec<_> = hellos.into_iter().map(join).collect();
    let outcomes = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    server.finish();
    outcomes
}

#[test]
fn ranks_that_disagree_are_told_so_all_of_them_and_in_words() {
    type Case<'a> = (fn(&mut Hello), &'a str);
    let cases: [Case<'_>; 4] = [
        (|hello| hello.version = 9, "rank 1 on here speaks version 9"),
        (|hello| hello.ranks = 3, "rank 1 on here was told --ranks 3, and rank 0 2"),
        (|hello| hello.rank = 0, "two processes are rank 0"),
        (|hello| hello.parameters = "bench".to_owned(), "\"bench\""),
    ];
    for (change, words) in cases {
        let mut odd = hello(1, 2);
        change(&mut odd);
        for outcome in outcomes(2, vec![hello(0, 2), odd]) {
            let error = outcome.unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            assert_eq!(error.exit_code(), 2, "{error}");
            assert_eq!(error.to_string().lines().count(), 1);
        }
    }
}

#[test]
fn strays_are_dropped_and_counted() {
    let (server, at) = server(1);
    let mut dropped = Vec::new();
    for words in
        [&b"GET / HTTP/1.0\r\n\r\n"[..], b"VGF\x01\xff\xff\xff\xff", b"VGF\x01\x02\0\0\0{}"]
    {
        let mut stream = TcpStream::connect(&at).unwrap();
        stream.write_all(words).unwrap();
        dropped.push(stream);
    }
    for mut stream in dropped {
        // The end, by whichever name: what it had sent may not have been read.
        assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
    }
    let link = meet(&at, hello(0, 1)).unwrap();
    assert_eq!(link.strays(), 3);
    link.leave().unwrap();
    server.finish();
}

#[test]
fn a_rank_that_does_not_come_or_hangs_or_ends_is_named() {
    let (server, at) = Server::start("127.0.0.1:0", 2, Duration::from_secs(2)).unwrap();
    let error = meet(&at.to_string(), hello(0, 2)).unwrap_err();
    assert_eq!(error.exit_code(), 3, "{error}");
    assert!(error.to_string().contains("rank 1 at \"rendezvous\""), "{error}");
    server.finish();

    let (server, at) = self::server(2);
    let (hang, until) = mpsc::channel::<()>();
    let theirs = at.clone();
    let other = thread::spawn(move || {
        let link = meet(&theirs, hello(1, 2)).unwrap();
        until.recv().unwrap_err();
        link.vanish();
    });
    let mut link = meet(&at, hello(0, 2)).unwrap();
    // The others go on without a rank that says nothing, and hear which it is.
    let all = link.gather_quietly("connect", &7, Duration::ZERO).unwrap();
    assert_eq!(all, BTreeMap::from([(0, 7)]));
    assert_eq!(link.lost, BTreeMap::from([(1, Loss::Silent)]));
    drop(hang);
    let all = link.gather_quietly("verify", &8, PATIENCE).unwrap();
    assert_eq!(all, BTreeMap::from([(0, 8)]));
    other.join().unwrap();
    link.leave().unwrap();
    server.finish();
}

/// Of four ranks one does not come, one is killed while the others wait, and one comes back.
#[test]
fn the_others_go_on_without_ranks_that_are_gone() {
    let (server, at) = Server::start("127.0.0.1:0", 4, Duration::from_secs(10)).unwrap();
    let at = at.to_string();
    let rank = |rank: u32, killed: bool| {
        let at = at.clone();
        thread::spawn(move || {
            let mut link = meet(&at, hello(rank, 4)).unwrap();
            assert_eq!(link.lost, BTreeMap::from([(3, Loss::Absent)]));
            if killed {
                link.vanish();
                // As a restarted rank, it hears that it is too late.
                let back = meet(&at, hello(rank, 4)).unwrap_err();
                assert!(back.to_string().contains("was restarted"), "{back}");
                return (BTreeMap::new(), BTreeMap::new());
            }
            let all = link.gather_quietly("a", &rank, PATIENCE).unwrap();
            link.await_returns(PATIENCE);
            let lost = link.lost.clone();
            link.leave().unwrap();
            (all, lost)
        })
    };
    let ranks = [rank(0, false), rank(1, false), rank(2, true)];
    let [zero, one, _] = ranks.map(|rank| rank.join().unwrap());
    assert_eq!(zero, one);
    assert_eq!(zero.0, BTreeMap::from([(0, 0), (1, 1)]));
    assert_eq!(zero.1, BTreeMap::from([(2, Loss::Restarted), (3, Loss::Absent)]));
    server.finish();
}

/// Whoever is slow and says something now and then, to whomever, is waited for.
#[test]
fn a_rank_that_is_busy_is_not_taken_for_one_that_hangs() {
    let (server, at) = server(2);
    let theirs = at.clone();
    let busy = thread::spawn(move || {
        let mut link = meet(&theirs, hello(1, 2)).unwrap();
        for _ in 0..8 {
            thread::sleep(Duration::from_secs(1));
            link.send(0, &"still here").unwrap();
        }
        link.gather_quietly("a", &1, PATIENCE).unwrap();
        link.leave().unwrap();
    });
    let mut link = meet(&at, hello(0, 2)).unwrap();
    let all = link.gather_quietly("a", &0, Duration::from_secs(6)).unwrap();
    assert_eq!((all.len(), link.lost.len()), (2, 0));
    busy.join().unwrap();
    link.leave().unwrap();
    server.finish();
}

#[test]
fn who_is_interrupted_does_not_wait_for_those_who_have_not_come() {
    let (server, at) = server(2);
    let interrupt = Arc::new(Interrupt::now());
    let error = Link::join(&at, hello(0, 2), PATIENCE, interrupt).unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
    assert_eq!(error.exit_code(), 130);
    // It waits for the other rank, as long as it was told.
    drop(server);
}

#[test]
fn ranks_hear_each_other_while_they_gather() {
    let (server, at) = server(3);
    let rank = |rank: u32| {
        let at = at.clone();
        thread::spawn(move || {
            let mut link = meet(&at, hello(rank, 3)).unwrap();
            link.send((rank + 1) % 3, &rank).unwrap();
            let mut heard = Vec::new();
            let all = link.gather("a", &(rank * 10), PATIENCE, |_, from, body| {
                heard.push((from, body));
                Ok(())
            });
            assert_eq!(all.unwrap(), BTreeMap::from([(0, 0), (1, 10), (2, 20)]));
            while heard.is_empty() {
                heard.extend(link.receive(PATIENCE).unwrap());
            }
            let before = (rank + 2) % 3;
            assert_eq!(heard, [(before, serde_json::json!(before))]);
            let hash = link.hash();
            link.leave().unwrap();
            hash
        })
    };
    let ranks: Vec<_> = (0..3).map(rank).collect();
    let hashes: BTreeSet<_> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
    assert_eq!(hashes.len(), 1);
    server.finish();
}

/// What one rank says of its paths to the others on eight rails, as `diagnose` reports them.
fn paths(rank: u32, ranks: u32) -> Vec<PathReport> {
    let others = (0..ranks).filter(|other| *other != rank);
    let of = |peer: u32| {
        (0..8).map(move |rail| {
            let evidence = BTreeMap::from([("np_cnp_sent".to_owned(), u64::from(peer))]);
            PathReport::of(rank, peer, rail, None, evidence)
        })
    };
    others.flat_map(of).collect()
}

/// More than a frame holds: rank 0 gets all of it, and the others do not.
#[test]
fn the_reports_of_two_hundred_ranks_with_eight_rails_arrive() {
    let ranks: u32 = 200;
    verbgate_sys::process::raise_descriptor_limit();
    if verbgate_sys::process::descriptor_limit() < u64::from(ranks) * 4 + 100 {
        println!("SKIPPED: needs {} descriptors: raise `ulimit -Hn`", ranks * 4 + 100);
        return;
    }
    let size = serde_json::to_vec(&paths(0, ranks)).unwrap().len() * 200;
    assert!(size > frame::LIMIT, "{size}");
    let (server, at) = server(ranks);
    let rank = |rank| {
        let at = at.clone();
        let tell = move || {
            let mut link = meet(&at, hello(rank, ranks)).unwrap();
            let all = link.collect_quietly("diagnose", &paths(rank, ranks), PATIENCE * 5).unwrap();
            link.leave().unwrap();
            all
        };
        thread::Builder::new().stack_size(512 << 10).spawn(tell).unwrap()
    };
    let began = Instant::now();
    let threads: Vec<_> = (0..ranks).map(rank).collect();
    let mut all: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    println!("{size} bytes of {ranks} ranks after {} ms", began.elapsed().as_millis());
    server.finish();
    let whole = all.remove(0).unwrap();
    assert_eq!(whole.len(), 200 * 199 * 8);
    assert!(whole.is_sorted_by_key(|path| (path.rank, path.peer, path.rail)));
    assert!(all.iter().all(Option::is_none));
}

/// What all ranks are told is not lost, either, when it is more than a frame holds.
#[test]
fn what_is_gathered_comes_to_all_in_pieces() {
    let (server, at) = server(2);
    let tell = move |rank| {
        let mut link = meet(&at, hello(rank, 2)).unwrap();
        let own: Vec<String> = vec!["x".repeat(1 << 10); 9 << 10];
        let all = link.gather_quietly("failed checks", &own, PATIENCE).unwrap();
        assert_eq!(all.values().map(Vec::len).sum::<usize>(), 18 << 10);
        assert!(all.values().flatten().all(|line| line.len() == 1 << 10));
        let short = link.gather_quietly("next", &rank, PATIENCE).unwrap();
        assert_eq!(short, BTreeMap::from([(0, 0), (1, 1)]));
        // One that is too long by itself is told to whoever says it.
        let error = link.gather_quietly("long", &"x".repeat(frame::LIMIT), PATIENCE).unwrap_err();
        assert!(error.to_string().contains("of 16777216 at most"), "{error}");
        link.leave().unwrap();
    };
    let other = {
        let tell = tell.clone();
        thread::spawn(move || tell(1))
    };
    tell(0);
    other.join().unwrap();
    server.finish();
}

/// Its own server says nothing: that is not the fault of a rank 0 that hangs.
#[test]
fn rank_0_does_not_accuse_itself() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let silent = thread::spawn(move || {
        let mut streams = Vec::new();
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            let _: ToServer = frame::read(&stream, frame::LIMIT).unwrap();
            let table = "{\"entries\":[]}".to_owned();
            let welcome = ToRank::Welcome { table, strays: 0, absent: Vec::new() };
            stream.write_all(&frame::encode(&welcome, frame::LIMIT).unwrap()).unwrap();
            streams.push(stream);
        }
        streams
    });
    // Both at once, because each waits out its grace.
    let of = |rank| {
        let at = at.clone();
        thread::spawn(move || {
            let mut link = meet(&at, hello(rank, 2)).unwrap();
            link.gather_quietly("preflight", &1, Duration::ZERO).unwrap_err()
        })
    };
    let (own, others) = (of(0), of(1));
    let own = own.join().unwrap();
    assert!(matches!(own, Error::Lost { .. }), "{own}");
    assert!(own.to_string().contains("at \"preflight\""), "{own}");
    let others = others.join().unwrap();
    assert!(matches!(&others, Error::Missing { ranks, .. } if ranks == &[0]), "{others}");
    drop(silent.join().unwrap());
}

/// Every rank is a connection of its own; the table is agreed upon when the last has its hash.
#[test]
fn a_thousand_ranks_agree_on_one_table() {
    let ranks = 1000;
    let needed = u64::from(ranks) * 4 + 100;
    verbgate_sys::process::raise_descriptor_limit();
    if verbgate_sys::process::descriptor_limit() < needed {
        println!("SKIPPED: needs {needed} descriptors: raise `ulimit -Hn`");
        return;
    }
    let began = Instant::now();
    let (server, at) = server(ranks);
    let join = |rank| {
        let at = at.clone();
        let join = move || meet(&at, hello(rank, ranks)).unwrap();
        thread::Builder::new().stack_size(256 << 10).spawn(join).unwrap()
    };
    let threads: Vec<_> = (0..ranks).map(join).collect();
    let links: Vec<Link> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let hashes: BTreeSet<String> = links.iter().map(Link::hash).collect();
    println!("{ranks} ranks agree after {} ms", began.elapsed().as_millis());
    assert_eq!(hashes.len(), 1);
    let table = links[0].table().unwrap();
    assert!(table.entries.iter().map(|entry| entry.rank).eq(0..ranks));
    links.into_iter().for_each(|link| link.leave().unwrap());
    server.finish();
}
