//! Commands of the reference switch that write registers, counters and meters.

use crate::Problem;
use p4shield_tables::element::Rate;
use p4shield_tables::write::Write;

const REGISTER_WRITE: &str = "register_write REGISTER INDEX VALUE";
const REGISTER_RESET: &str = "register_reset REGISTER";
const COUNTER_WRITE: &str = "counter_write COUNTER INDEX PACKETS BYTES";
const COUNTER_RESET: &str = "counter_reset COUNTER";
const METER_RATES: &str =
    "meter_set_rates METER INDEX RATE:BURST RATE:BURST, with packets or bytes in a microsecond";
const METER_ARRAY_RATES: &str =
    "meter_array_set_rates METER RATE:BURST RATE:BURST, with packets or bytes in a microsecond";
/// Microseconds in a second.
const MICROSECONDS: u32 = 1_000_000;

/// Returns the write of a command; `None` if the command does not write an element.
pub(crate) fn write(command: &str, arguments: &[&str]) -> Option<Result<Write, Problem>> {
    let (written, usage) = match command {
        "register_write" => (register_write(arguments), REGISTER_WRITE),
        "register_reset" => (register_reset(arguments), REGISTER_RESET),
        "counter_write" => (counter_write(arguments), COUNTER_WRITE),
        "counter_reset" => (counter_reset(arguments), COUNTER_RESET),
        "meter_set_rates" => (meter_set_rates(arguments), METER_RATES),
        "meter_array_set_rates" => (meter_array_set_rates(arguments), METER_ARRAY_RATES),
        _ => return None,
    };
    Some(written.ok_or(Problem::Usage(usage)))
}

fn register_write(arguments: &[&str]) -> Option<Write> {
    let [register, index, value] = *arguments else { return None };
    let index = Some(index.parse().ok()?);
    Some(Write::Register { register: register.to_owned(), index, value: value.to_owned() })
}

fn register_reset(arguments: &[&str]) -> Option<Write> {
    let [register] = *arguments else { return None };
    Some(Write::Register { register: register.to_owned(), index: None, value: "0".to_owned() })
}

fn counter_write(arguments: &[&str]) -> Option<Write> {
    let [counter, index, packets, bytes] = *arguments else { return None };
    let index = Some(index.parse().ok()?);
    let (packets, bytes) = (packets.parse().ok()?, bytes.parse().ok()?);
    Some(Write::Counter { counter: counter.to_owned(), index, packets, bytes })
}

fn counter_reset(arguments: &[&str]) -> Option<Write> {
    let [counter] = *arguments else { return None };
    Some(Write::Counter { counter: counter.to_owned(), index: None, packets: 0, bytes: 0 })
}

fn meter_set_rates(arguments: &[&str]) -> Option<Write> {
    let [meter, index, first, second] = *arguments else { return None };
    let index = Some(index.parse().ok()?);
    Some(Write::Meter { meter: meter.to_owned(), index, rates: vec![rate(first)?, rate(second)?] })
}

fn meter_array_set_rates(arguments: &[&str]) -> Option<Write> {
    let [meter, first, second] = *arguments else { return None };
    Some(Write::Meter { meter: meter.to_owned(), index: None, rates: vec![rate(first)?, rate(second)?] })
}

fn rate(text: &str) -> Option<Rate> {
    let (rate, burst) = text.split_once(':')?;
    Rate::of(rate.parse().ok()?, MICROSECONDS, burst.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(line: &str) -> Option<Write> {
        let words: Vec<_> = line.split(' ').collect();
        write(words[0], &words[1..]).and_then(Result::ok)
    }

    #[test]
    fn commands_write_registers_counters_and_meters() {
        let register =
            |index, value: &str| Write::Register { register: "r".into(), index, value: value.into() };
        assert_eq!(written("register_write r 3 17"), Some(register(Some(3), "17")));
        assert_eq!(written("register_reset r"), Some(register(None, "0")));
        let counter = |index, packets, bytes| Write::Counter { counter: "c".into(), index, packets, bytes };
        assert_eq!(written("counter_write c 0 5 600"), Some(counter(Some(0), 5, 600)));
        assert_eq!(written("counter_reset c"), Some(counter(None, 0, 0)));
        // One packet in 1000 microseconds is 1000 packets a second.
        let rates =
            vec![Rate { per_1000_s: 1_000_000, burst: 5 }, Rate { per_1000_s: 500_000_000, burst: 6 }];
        let meter = |index| Write::Meter { meter: "m".into(), index, rates: rates.clone() };
        assert_eq!(written("meter_set_rates m 2 0.001:5 0.5:6"), Some(meter(Some(2))));
        assert_eq!(written("meter_array_set_rates m 0.001:5 0.5:6"), Some(meter(None)));
    }

    #[test]
    fn wrong_elements_are_refused_with_the_form() {
        for line in [
            "register_write r x 1",
            "counter_write c 0 5",
            "meter_set_rates m 0 -1:5 2:6",
            "meter_array_set_rates m nan:5 1:6",
        ] {
            let words: Vec<_> = line.split(' ').collect();
            let error = write(words[0], &words[1..]).unwrap().unwrap_err().to_string();
            assert!(error.starts_with(&format!("write it as: {} ", words[0])), "{error}");
        }
        assert_eq!(write("register_read", &["r"]), None);
    }
}
