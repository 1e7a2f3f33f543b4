//! Tests of the messages between owner, zygote and child.

use super::*;
use crate::asm::assemble;
use p4shield_testbed::campaign;

fn body<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_stdvec(message).unwrap()
}

fn request(program: &str) -> Request {
    Request::new(&assemble(program).unwrap(), Limits::default(), Budget::default())
}

#[test]
fn random_messages_are_decoded_or_refused() {
    let call = "mov r6, r1\n call local f\n exit\nf: mov r0, 1\n exit";
    let wrong = "ldxdw r2, [r1+0]\n ldxb r0, [r2+0]\n exit";
    let linked = assemble(wrong).unwrap();
    let refused = crate::verify::check(&linked, &Limits::default()).unwrap_err();
    let accepted = crate::verify::check(&assemble("mov r0, 1\n exit").unwrap(), &Limits::default()).unwrap();
    let ready: [Ready; 2] = [Ok(VERIFIER_VERSION.to_owned()), Err("no seccomp".to_owned())];
    let answers: [Answer; 3] =
        [Ok(accepted), Err(refused), Err(Refusal::Unavailable { cause: "no memory".to_owned() })];
    let mut seeds: Vec<_> = ready.iter().map(body).collect();
    seeds.extend(answers.iter().map(body));
    seeds.extend([call, wrong].map(|program| body(&request(program))));
    campaign(&seeds, |bytes| decode_any_message(bytes, &linked));
}

#[test]
fn the_largest_budget_is_valid() {
    let endless = Budget { cpu: Duration::MAX, memory_bytes: u64::MAX, wall: Duration::MAX };
    let request = Request::new(&assemble("mov r0, 1\n exit").unwrap(), Limits::default(), endless);
    assert_eq!(decode::<Request>(&body(&request)).unwrap().budget, endless);
    assert_eq!(zygote::cpu_seconds(&endless), (u64::MAX - 1, u64::MAX));
    let little = Budget { cpu: Duration::from_millis(1), ..endless };
    assert_eq!(zygote::cpu_seconds(&little), (1, 2));
}
