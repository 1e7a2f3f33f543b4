//! Relays between two sockets. Time passes at once where all wait.

use super::*;

/// Returns a connection's two ends.
async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let there = TcpStream::connect(listener.local_addr().unwrap());
    let (there, here) = tokio::join!(there, listener.accept());
    (there.unwrap(), here.unwrap().0)
}

/// Passes bytes on in both directions until one fails. Returns the time that it took.
async fn passed(mut controller: TcpStream, mut switch: TcpStream) -> (io::Result<((), ())>, Duration) {
    let start = Instant::now();
    let last = Mutex::new(start);
    let (from_controller, to_controller) = controller.split();
    let (from_switch, to_switch) = switch.split();
    let done =
        tokio::try_join!(pass(from_controller, to_switch, &last), pass(from_switch, to_controller, &last));
    (done, start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_closed() {
    let [(controller, its), (switch, _other)] = [pair().await, pair().await];
    let (done, time) = passed(its, switch).await;
    assert_eq!(done.unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert!(time >= IDLE && time < 2 * IDLE, "{time:?}");
    drop(controller);
}

#[tokio::test(start_paused = true)]
async fn a_connection_with_one_silent_side_stays_open() {
    let [(mut controller, its), (switch, mut there)] = [pair().await, pair().await];
    let talk = async {
        for n in 0..6 {
            sleep(IDLE / 2).await;
            controller.write_all(&[n]).await.unwrap();
            let mut got = [0];
            there.read_exact(&mut got).await.unwrap();
            assert_eq!(got, [n]);
        }
        // The ends of both directions end the relay.
        controller.shutdown().await.unwrap();
        there.shutdown().await.unwrap();
    };
    let ((done, time), ()) = tokio::join!(passed(its, switch), talk);
    done.unwrap();
    assert!(time >= 3 * IDLE, "{time:?}");
}

#[tokio::test]
async fn bytes_arrive_unchanged_and_ends_one_by_one() {
    let [(mut controller, its), (switch, mut there)] = [pair().await, pair().await];
    let sent: Vec<u8> = (0..200_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let talk = async {
        let (mut from, mut to) = controller.split();
        let mut received = Vec::new();
        let (mut its_from, mut its_to) = there.split();
        let send = async {
            to.write_all(&sent).await.unwrap();
            to.shutdown().await.unwrap();
        };
        let receive = its_from.read_to_end(&mut received);
        let ((), n) = tokio::join!(send, receive);
        assert_eq!((n.unwrap(), &received), (sent.len(), &sent));
        // The other direction is still open.
        its_to.write_all(b"answer").await.unwrap();
        its_to.shutdown().await.unwrap();
        let mut answer = String::new();
        from.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "answer");
    };
    let ((done, _), ()) = tokio::join!(passed(its, switch), talk);
    done.unwrap();
}
