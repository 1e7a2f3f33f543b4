//! Every frame has one owner, whatever the kernel does.

use p4shield_afxdp::{Frame, FramePool, SocketId, Umem, UmemConfig};
use proptest::prelude::*;

const FRAMES: u32 = 64;
const SIZE: u32 = 2048;

fn pool() -> FramePool {
    FramePool::new(Umem::new(UmemConfig { frames: FRAMES, frame_size: SIZE, huge_pages: false }).unwrap())
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Take,
    Drop(usize),
    Offer(usize),
    /// The kernel receives a packet of a length at an address, on a port.
    Receive(usize, u64, u32),
    Send(usize, usize),
    /// The kernel completes an address on a port.
    Complete(usize, u64),
    Reopen(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let address = prop_oneof![9 => 0..u64::from(FRAMES * SIZE), 1 => any::<u64>()];
    let step = prop_oneof![
        2 => Just(Step::Take),
        2 => (0..64usize).prop_map(Step::Drop),
        4 => (0..3usize).prop_map(Step::Offer),
        4 => (0..3usize, address.clone(), 0..4096u32).prop_map(|(p, a, l)| Step::Receive(p, a, l)),
        4 => (0..3usize, 0..64usize).prop_map(|(p, f)| Step::Send(p, f)),
        4 => (0..3usize, address).prop_map(|(p, a)| Step::Complete(p, a)),
        1 => (0..3usize).prop_map(Step::Reopen),
    ];
    prop::collection::vec(step, 0..300)
}

/// The owner of a frame in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModelOwner {
    Free,
    Held,
    Fill(usize),
    Transmit(usize),
}

proptest! {
    #[test]
    fn the_ledger_agrees_with_a_model(steps in steps()) {
        let pool = pool();
        let mut ports: Vec<SocketId> = (0..3).map(|_| pool.open_port().unwrap()).collect();
        let mut held: Vec<(usize, Frame<'_>)> = Vec::new();
        let mut model = [ModelOwner::Free; FRAMES as usize];
        let frame_of = |address: u64| (address / u64::from(SIZE)) as usize;
        for step in steps {
            match step {
                Step::Take => if let Some(mut f) = pool.take() {
                    // The address of its bytes identifies the frame.
                    let at = f.buffer_mut().as_ptr() as usize - pool.umem().memory().base().as_ptr() as usize;
                    let index = at / SIZE as usize;
                    prop_assert_eq!(model[index], ModelOwner::Free);
                    model[index] = ModelOwner::Held;
                    held.push((index, f));
                },
                Step::Drop(n) => if n < held.len() {
                    let (index, f) = held.swap_remove(n);
                    drop(f);
                    model[index] = ModelOwner::Free;
                },
                Step::Offer(p) => if let Some(address) = pool.offer(ports[p]) {
                    prop_assert_eq!(model[frame_of(address)], ModelOwner::Free);
                    model[frame_of(address)] = ModelOwner::Fill(p);
                },
                Step::Receive(p, address, len) => {
                    let index = frame_of(address);
                    let fits = (address % u64::from(SIZE)) as u32 + len <= SIZE;
                    let ours = model.get(index) == Some(&ModelOwner::Fill(p));
                    let got = pool.receive(ports[p], address, len);
                    prop_assert_eq!(got.is_some(), ours && fits);
                    if ours {
                        model[index] = if fits { ModelOwner::Held } else { ModelOwner::Free };
                    }
                    held.extend(got.map(|f| (index, f)));
                }
                Step::Send(p, n) => if n < held.len() {
                    let (index, f) = held.swap_remove(n);
                    let (address, _) = pool.send(ports[p], f);
                    prop_assert_eq!(frame_of(address), index);
                    model[index] = ModelOwner::Transmit(p);
                },
                Step::Complete(p, address) => {
                    let ours = model.get(frame_of(address)) == Some(&ModelOwner::Transmit(p));
                    prop_assert_eq!(pool.reap(ports[p], address), ours);
                    if ours {
                        model[frame_of(address)] = ModelOwner::Free;
                        prop_assert!(!pool.reap(ports[p], address), "completed twice");
                    }
                }
                Step::Reopen(p) => {
                    pool.close_port(ports[p]);
                    ports[p] = pool.open_port().unwrap();
                    for o in &mut model {
                        if matches!(*o, ModelOwner::Fill(q) | ModelOwner::Transmit(q) if q == p) {
                            *o = ModelOwner::Free;
                        }
                    }
                }
            }
            let counts = pool.counts();
            let count = |want: fn(&ModelOwner) -> bool| model.iter().filter(|o| want(o)).count() as u32;
            prop_assert_eq!(counts.total(), FRAMES);
            prop_assert_eq!(counts.free, count(|o| *o == ModelOwner::Free));
            prop_assert_eq!(counts.held, count(|o| *o == ModelOwner::Held));
            prop_assert_eq!(counts.receive, count(|o| matches!(o, ModelOwner::Fill(_))));
            prop_assert_eq!(counts.transmit, count(|o| matches!(o, ModelOwner::Transmit(_))));
            prop_assert_eq!(pool.available() as u32, counts.free);
        }
    }
}

#[test]
fn packets_stay_within_their_frame() {
    let pool = pool();
    let mut frame = pool.take().unwrap();
    assert!(frame.set_packet(SIZE as usize, 0));
    assert!(frame.set_packet(100, 1948));
    for (start, len) in [(100, 1949), (2049, 0), (usize::MAX, 1), (0, usize::MAX)] {
        assert!(!frame.set_packet(start, len), "{start}+{len}");
    }
    assert_eq!((frame.headroom(), frame.len()), (100, 1948), "a refused change changes nothing");
}

#[test]
fn impossible_memory_is_refused() {
    for (frames, frame_size) in [(0, 2048), (63, 2048), (64, 1024), (64, 3000), (64, 8192), (u32::MAX, 4096)]
    {
        assert!(
            Umem::new(UmemConfig { frames, frame_size, huge_pages: false }).is_err(),
            "{frames}x{frame_size}"
        );
    }
}
