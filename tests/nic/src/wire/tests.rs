use super::*;

/// Keeps what arrives, and answers nothing.
#[derive(Default)]
struct Sink(Mutex<Vec<u64>>);

impl Port for Sink {
    fn receive(&self, message: Message) -> Vec<Message> {
        self.0.lock().push(message.id);
        Vec::new()
    }
    fn tick(&self, _now: Instant) -> Vec<Message> {
        Vec::new()
    }
    fn waits(&self) -> bool {
        false
    }
    fn unreachable(&self, message: Message) -> Vec<Message> {
        self.0.lock().push(message.id + 1000);
        Vec::new()
    }
}

const HERE: Address = Address([1; 16]);

fn message(id: u64, to: Address) -> Message {
    let body = Body::Answer { status: 0, data: Arc::new([]) };
    Message { from: HERE, to, from_qp: 0, to_qp: 0, id, body }
}

fn sent(faults: Faults, count: u64) -> (Arc<Wire>, Arc<Sink>) {
    let (wire, sink) = (Wire::new(7), Arc::new(Sink::default()));
    let port: Arc<dyn Port> = sink.clone();
    wire.plug(HERE, Arc::downgrade(&port));
    wire.set_faults(faults);
    for id in 0..count {
        wire.send(vec![message(id, HERE)]);
    }
    (wire, sink)
}

fn arrived(sink: &Sink, count: usize) -> Vec<u64> {
    verbgate_wait::until("what was sent", || sink.0.lock().len() >= count);
    sink.0.lock().clone()
}

#[test]
fn without_faults_all_is_there_at_once_and_in_order() {
    let (wire, sink) = sent(Faults::default(), 100);
    assert_eq!(*sink.0.lock(), (0..100).collect::<Vec<_>>());
    assert_eq!(wire.carried(), Carried { delivered: 100, ..Carried::default() });
    wire.send(vec![message(5, Address([2; 16]))]);
    assert_eq!(sink.0.lock().last(), Some(&1005));
}

#[test]
fn loss_and_duplicates_are_as_often_as_asked() {
    let (wire, sink) = sent(Faults { loss: 0.5, ..Faults::default() }, 1000);
    let lost = wire.carried().lost;
    assert!((400..600).contains(&lost), "{lost}");
    assert_eq!(sink.0.lock().len() as u64, 1000 - lost);
    let (wire, sink) = sent(Faults { duplicate: 1.0, ..Faults::default() }, 10);
    assert_eq!(sink.0.lock().len(), 20);
    assert_eq!(wire.carried().duplicated, 10);
}

#[test]
fn what_is_reordered_arrives_all_the_same() {
    let (_wire, sink) = sent(Faults { reorder: 0.3, ..Faults::default() }, 100);
    let mut ids = arrived(&sink, 100);
    assert_ne!(ids, (0..100).collect::<Vec<_>>());
    ids.sort_unstable();
    assert_eq!(ids, (0..100).collect::<Vec<_>>());
}

#[test]
fn what_is_delayed_is_not_there_before() {
    let delay = Duration::from_millis(50);
    let start = Instant::now();
    let (wire, sink) = sent(Faults { delay, ..Faults::default() }, 3);
    assert_eq!(arrived(&sink, 3), [0, 1, 2]);
    assert_eq!(wire.carried(), Carried { delivered: 3, delayed: 3, ..Carried::default() });
    assert!(start.elapsed() >= delay);
}

#[test]
fn wires_of_one_folder_are_one_network() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (Wire::new(1), Wire::new(2));
    let (here, there) = (Arc::new(Sink::default()), Arc::new(Sink::default()));
    let distant = Address([2; 16]);
    for (wire, sink, address) in [(&one, &here, HERE), (&two, &there, distant)] {
        wire.join(folder.path()).unwrap();
        let port: Arc<dyn Port> = sink.clone();
        wire.plug(address, Arc::downgrade(&port));
    }
    let long = Body::Answer { status: 9, data: vec![7; 1 << 20].into() };
    let mut last = message(100, distant);
    last.body = long;
    let mut sent: Vec<Message> = (0..100).map(|id| message(id, distant)).collect();
    sent.push(last);
    one.send(sent);
    arrived(&there, 101);
    assert_eq!(*there.0.lock(), (0..=100).collect::<Vec<u64>>());
    assert_eq!((one.carried().distant, two.carried().delivered), (101, 101));
    one.send(vec![message(5, Address([3; 16]))]);
    assert_eq!(*here.0.lock(), [1005], "nobody is there");
    // With the other process gone, its address is nobody's.
    drop(two);
    verbgate_wait::until("an address that is nobody's", || {
        one.send(vec![message(6, distant)]);
        here.0.lock().len() >= 2
    });
    assert_eq!(here.0.lock().last(), Some(&1006));
    assert!(one.join(folder.path()).is_err() && Wire::new(3).join("/no/folder".as_ref()).is_err());
}
