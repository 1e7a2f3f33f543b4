//! Counters, registers and tables of running programs, by the API and as metrics.

use crate::Test;
use crate::attachment::TestAttachment;
use crate::fixture::{Fixture, wait_for};
use crate::switches::{ALICE, Daemon as DaemonProcess, Switch, text};
use p4shield_daemon::Daemon;
use p4shield_daemon::api::{self, ApiError};
use p4shield_daemon::status::State;
use p4shield_p4::{NoIncludes, Options, compile};
use p4shield_tables::view::{Inspection, MatchView, Number, ObjectKind, ObjectView, ProgramView, What};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(crate) const TESTS: &[Test] = &[
    ("a_programs_state_is_shown_with_its_p4_names", shown),
    ("reading_without_end_costs_no_packet", reading_costs_no_packet),
    ("marked_counters_are_metrics_with_a_bound", metrics),
    ("a_hung_p4_vm_delays_no_other_tenants_counters", hung),
    ("maps_of_c_code_and_of_old_objects_are_shown_raw", raw),
    ("inline_programs_show_their_state", inline),
];

/// Counts packets of 60 bytes in many ways, and passes them.
const P4: &str = r#"
#include <v1model.p4>
header eth_t { bit<48> dst; bit<48> src; bit<16> type; }
header ip_t { bit<72> head; bit<8> proto; bit<16> sum; bit<32> src; bit<32> dst; }
struct headers_t { eth_t eth; ip_t ip; }
struct meta_t { }
parser prs(packet_in p, out headers_t hdr, inout meta_t m, inout standard_metadata_t s) {
    state start { p.extract(hdr.eth); p.extract(hdr.ip); transition accept; }
}
control none(inout headers_t hdr, inout meta_t m) { apply { } }
control ing(inout headers_t hdr, inout meta_t m, inout standard_metadata_t s) {
    @name("seen") @metric counter(4, CounterType.packets_and_bytes) c;
    @metric("by \"port\"") counter(1000, CounterType.packets) many;
    @metric("hits") direct_counter(CounterType.packets) hits;
    register<bit<48>>(100000) totals;
    register<int<12>>(2) signed;
    action drop() { mark_to_drop(s); }
    action send(bit<9> port) { s.egress_spec = port; }
    @name("routes") table r {
        key = { hdr.ip.dst: lpm @name("destination"); }
        actions = { drop; send; }
        const entries = { 0x0a000000 &&& 0xff000000: send(5); 0x0b000000 &&& 0xff000000: drop(); }
        default_action = drop();
        counters = hits;
    }
    table protocols {
        key = { hdr.ip.proto: exact; }
        actions = { NoAction; drop; }
        const entries = { 17: NoAction(); 6: drop(); }
        const default_action = NoAction();
    }
    apply {
        bit<48> n;
        totals.read(n, 70000);
        totals.write(70000, n + 1);
        signed.write(1, -3);
        c.count(2);
        many.count((bit<32>)n[8:0]);
        protocols.apply();
        r.apply();
    }
}
control eg(inout headers_t hdr, inout meta_t m, inout standard_metadata_t s) { apply { } }
control dprs(packet_out p, in headers_t hdr) { apply { p.emit(hdr); } }
V1Switch(prs(), none(), ing(), eg(), none(), dprs()) main;
"#;

/// Counts in an array of C, and passes packets.
const C: &str = r#"
struct map { unsigned type, key, value, entries, flags; };
__attribute__((section("maps"))) struct map hits = { 2, 4, 8, 40, 0 };
static void *(*lookup)(void *, void *) = (void *)1;
__attribute__((section("p4"))) long p4_main(void *c) {
    unsigned k = 33;
    unsigned long long *v = lookup(&hits, &k);
    if (v) *v += 1;
    return 1;
}
"#;

/// Both tenants with the P4 program for ingress.
struct Cloud {
    daemon: Daemon,
    attachment: Arc<TestAttachment>,
    fixture: Fixture,
}

fn programs(fixture: &Fixture) {
    let made = compile("state.p4", P4, &NoIncludes, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    std::fs::write(fixture.at("state.o"), &made.object).unwrap();
    // As an older compiler made it: no section has the name of the schema's.
    let mut old = made.object;
    let name = b".p4shield.schema";
    let at = old.windows(name.len()).position(|w| w == name).unwrap();
    old[at..at + name.len()].copy_from_slice(b".p4shield.nothin");
    std::fs::write(fixture.at("old.o"), old).unwrap();
    fixture.object("count", C);
}

impl Cloud {
    fn new(name: &str) -> Self {
        let fixture = Fixture::new(name);
        programs(&fixture);
        let config = fixture
            .config(&fixture.text("drop").replace("ingress = [\"pass.o\"]", "ingress = [\"state.o\"]"));
        let attachment = TestAttachment::new(&p4shield_attach::mediator_config(&config));
        let daemon = Daemon::start(config, attachment.clone(), Path::new("/proc/self/exe")).unwrap();
        wait_for("two P4 VMs", || daemon.status().tenants.iter().all(|t| t.state == State::Running));
        Self { daemon, attachment, fixture }
    }

    fn inspect(&self, inspection: Inspection) -> Result<ProgramView, ApiError> {
        api::inspect(&self.fixture.at("daemon.sock"), &inspection)
    }

    /// Returns what alice's ingress program has of a kind.
    fn objects(&self, what: What) -> Vec<ObjectView> {
        let view = self.inspect(of_alice(what)).unwrap();
        assert_eq!((view.tenant.as_str(), view.directions.len()), ("alice", 1));
        view.directions.into_iter().flat_map(|d| d.objects).collect()
    }

    /// Waits until packets of a tenant pass.
    fn flows(&self, tenant: usize, packets: u64) {
        let before = self.attachment.tally(tenant).passed;
        wait_for("traffic", || self.attachment.tally(tenant).passed >= before + packets);
    }

    /// Waits until each packet that came has left, and returns their number.
    fn settled(&self, tenant: usize) -> u64 {
        wait_for("all verdicts", || {
            self.attachment.drain();
            self.attachment.tally(tenant).held == 0
        });
        let tally = self.attachment.tally(tenant);
        assert_eq!(tally.passed, tally.packets_in, "{tally:?}");
        tally.passed
    }
}

fn of_alice(what: What) -> Inspection {
    let direction = Some("ingress".to_owned());
    Inspection { what, vm: "web".to_owned(), direction, limit: Some(50), ..Inspection::default() }
}

fn named<'a>(objects: &'a [ObjectView], name: &str) -> &'a ObjectView {
    objects.iter().find(|o| o.name == name).unwrap_or_else(|| panic!("no {name}: {objects:?}"))
}

fn shown() {
    let cloud = Cloud::new("shown");
    let traffic = cloud.attachment.traffic();
    cloud.flows(ALICE, 2000);
    drop(traffic);
    let passed = cloud.settled(ALICE);

    let counters = cloud.objects(What::Counters);
    let seen = named(&counters, "ing.seen");
    let counts: Vec<_> = seen.rows.iter().map(|r| (r.packets.unwrap(), r.bytes.unwrap())).collect();
    assert_eq!(counts, [(0, 0), (0, 0), (passed, passed * 60), (0, 0)], "a small array with its zeros");
    let many = named(&counters, "ing.many");
    assert_eq!((many.rows.len(), many.more, many.size), (50, 512 - 50, 1000), "the limit, and what is left");
    let hits = named(&counters, "ing.hits");
    assert_eq!((hits.kind, hits.rows.len()), (ObjectKind::DirectCounter, 2));
    let ten = hits.rows.iter().find(|r| r.keys == [MatchView::Prefix("0x0a000000".into(), 8)]).unwrap();
    assert_eq!((ten.packets, ten.bytes), (Some(passed), None));

    let registers = cloud.objects(What::Registers);
    let totals = named(&registers, "ing.totals");
    let row = &totals.rows[0];
    assert_eq!((totals.rows.len(), totals.width), (1, Some(48)), "zeros of a large array are left out");
    assert_eq!((row.index, &row.value), (Some(70_000), &Some(Number::Unsigned(passed))));
    let signed = named(&registers, "ing.signed");
    assert_eq!(signed.rows[1].value, Some(Number::Negative(-3)));

    let tables = cloud.objects(What::Tables);
    let routes = named(&tables, "ing.routes");
    assert_eq!((routes.keys[0].name.as_str(), routes.keys[0].width), ("destination", 32));
    let action = routes.rows.iter().filter_map(|r| r.action.as_ref()).find(|a| a.name == "ing.send").unwrap();
    assert_eq!(action.params, [("port".to_owned(), "0x005".to_owned())]);
    assert_eq!(routes.default_action.as_ref().unwrap().name, "ing.drop");
    let protocols = named(&tables, "ing.protocols");
    assert_eq!((protocols.map.as_ref(), protocols.rows.len()), (None, 2), "entries that are code");
    assert_eq!(protocols.rows[0].keys, [MatchView::Exact("0x11".into())]);

    // All rows, page by page.
    let mut page =
        Inspection { limit: None, zeros: true, name: Some("totals".into()), ..of_alice(What::Registers) };
    let (mut rows, mut pages) = (Vec::new(), 0);
    loop {
        let view = cloud.inspect(page.clone()).unwrap();
        let object = view.directions[0].objects[0].clone();
        rows.extend(object.rows.iter().map(|r| r.index.unwrap()));
        pages += 1;
        let Some(next) = object.next else { break };
        page.from = next;
    }
    assert!(rows.iter().copied().eq(0..100_000) && pages > 5, "{pages} pages");
    refusals(&cloud);
}

fn refusals(cloud: &Cloud) {
    for (change, error) in [
        (Inspection { vm: "mail".into(), ..of_alice(What::Tables) }, "no VM \"mail\""),
        (Inspection { tenant: Some("bob".into()), ..of_alice(What::Tables) }, "has no VM \"web\""),
        (Inspection { tenant: Some("carol".into()), ..of_alice(What::Tables) }, "no tenant \"carol\""),
        (
            Inspection { name: Some("rutes".into()), ..of_alice(What::Tables) },
            "it has: ing.protocols, ing.routes",
        ),
        (Inspection { direction: Some("sideways".into()), ..of_alice(What::Tables) }, "ingress or egress"),
    ] {
        let failed = cloud.inspect(change).unwrap_err().to_string();
        assert!(failed.contains(error), "{error}: {failed}");
    }
    let socket = cloud.fixture.at("daemon.sock");
    api::load(&socket, "alice", "web", "ingress", &[]).unwrap();
    let error = cloud.inspect(of_alice(What::Counters)).unwrap_err().to_string();
    assert!(error.contains("no ingress program"), "{error}");
}

fn reading_costs_no_packet() {
    let cloud = Cloud::new("reading");
    let traffic = cloud.attachment.traffic();
    cloud.flows(ALICE, 1000);
    let ending = AtomicBool::new(false);
    let read = std::thread::scope(|scope| {
        let reader = || {
            let (mut reads, mut last) = (0_u64, 0);
            while !ending.load(Ordering::Acquire) {
                for what in [What::Counters, What::Registers, What::Tables] {
                    let objects = cloud.objects(what);
                    if what == What::Counters {
                        let row = &named(&objects, "ing.seen").rows[2];
                        let (packets, bytes) = (row.packets.unwrap(), row.bytes.unwrap());
                        assert_eq!(bytes, packets * 60, "a row is of one moment");
                        assert!(packets >= last, "counters do not go back");
                        last = packets;
                    }
                    reads += 1;
                }
            }
            reads
        };
        let readers = [scope.spawn(reader), scope.spawn(reader)];
        cloud.flows(ALICE, 20_000);
        let end = Instant::now() + Duration::from_secs(2);
        wait_for("two seconds of reading", || Instant::now() >= end);
        ending.store(true, Ordering::Release);
        readers.map(|r| r.join().unwrap())
    });
    drop(traffic);
    // `settled` checks that no packet was lost.
    let passed = cloud.settled(ALICE);
    let seen = cloud.objects(What::Counters);
    assert_eq!(named(&seen, "ing.seen").rows[2].packets, Some(passed), "{read:?} reads");
    assert!(read.iter().all(|n| *n >= 6), "{read:?}");
    let status = cloud.daemon.status();
    assert_eq!((status.tenants[ALICE].restarts, &status.tenants[ALICE].error), (0, &None));
}

fn metrics() {
    let cloud = Cloud::new("counters");
    let traffic = cloud.attachment.traffic();
    cloud.flows(ALICE, 2000);
    drop(traffic);
    let passed = cloud.settled(ALICE);
    // A P4 VM that has no core for a second is not read.
    let read = || {
        let mut text = String::new();
        wait_for("all counters", || {
            text = api::metrics(&cloud.fixture.at("daemon.sock")).unwrap();
            let unread = |tenant| format!(r#"p4shield_program_counters_unread{{tenant="{tenant}"}} 0"#);
            ["alice", "bob"].map(unread).iter().all(|line| text.contains(line))
        });
        text
    };
    let text = read();
    let ten = "0x0a000000/8";
    let labels = r#"tenant="alice",vm="web",direction="ingress""#;
    for line in [
        "# TYPE p4shield_program_counter_packets_total counter".to_owned(),
        "# TYPE p4shield_program_counter_bytes_total counter".to_owned(),
        format!(
            r#"p4shield_program_counter_packets_total{{{labels},counter="ing.seen",index="2"}} {passed}"#
        ),
        format!(r#"p4shield_program_counter_packets_total{{{labels},counter="ing.seen",index="3"}} 0"#),
        format!(
            r#"p4shield_program_counter_bytes_total{{{labels},counter="ing.seen",index="2"}} {}"#,
            passed * 60
        ),
        format!(
            r#"p4shield_program_counter_packets_total{{{labels},counter="hits",index="{ten}"}} {passed}"#
        ),
        // 512 of 1000 elements are not zero, and 256 rows are exported.
        format!(r#"p4shield_program_counter_rows_cut{{{labels},counter="by \"port\""}} 256"#),
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    let names = |text: &str| {
        let rows = text.lines().filter(|l| l.starts_with("p4shield_program_counter_"));
        rows.filter_map(|l| l.rsplit_once(' ')).map(|(l, _)| l.to_owned()).collect::<Vec<_>>()
    };
    let again = read();
    assert_eq!(names(&text), names(&again), "the order is stable");
    let many = format!(r#"p4shield_program_counter_packets_total{{{labels},counter="by \"port\"""#);
    let rows: Vec<_> = names(&text).into_iter().filter(|l| l.starts_with(&many)).collect();
    assert_eq!(rows.len(), 256);
    // What is exported is documented.
    let document = include_str!("../../../../../docs/reference/metrics.md");
    for name in text.lines().filter_map(|l| l.strip_prefix("# TYPE ")?.split(' ').next()) {
        assert!(document.contains(&format!("`{name}`")), "docs/reference/metrics.md does not explain {name}");
    }
}

fn hung() {
    let cloud = Cloud::new("slow");
    let lines = [
        r#"p4shield_program_counters_unread{tenant="alice"} 1"#,
        r#"p4shield_program_counters_unread{tenant="bob"} 0"#,
        concat!(
            r#"p4shield_program_counter_packets_total{tenant="bob",vm="db","#,
            r#"direction="ingress",counter="ing.seen",index="0"} 0"#
        ),
    ];
    let signal = |signal| {
        let pid = cloud.daemon.status().tenants[ALICE].pid.and_then(Pid::from_raw);
        // It may have ended meanwhile.
        pid.map(|pid| kill_process(pid, signal))
    };
    wait_for("the counters of all but alice's", || {
        // The daemon may have replaced it; and bob's may have no core for a second.
        signal(Signal::STOP);
        let text = api::metrics(&cloud.fixture.at("daemon.sock")).unwrap();
        lines.iter().all(|line| text.lines().any(|l| l == *line))
    });
    let error = cloud.inspect(of_alice(What::Counters)).unwrap_err().to_string();
    signal(Signal::KILL);
    assert!(!error.is_empty() && !error.contains("seen"), "{error}");
    let of_bob = Inspection { vm: "db".into(), ..of_alice(What::Counters) };
    assert!(cloud.inspect(of_bob).is_ok());
}

fn raw() {
    let cloud = Cloud::new("raw");
    let socket = cloud.fixture.at("daemon.sock");
    let load = |file| api::load(&socket, "alice", "web", "ingress", &[cloud.fixture.at(file)]).unwrap();
    load("old.o");
    let view = cloud.inspect(of_alice(What::Registers)).unwrap();
    let notes = &view.directions[0].notes;
    assert!(notes[0].contains("compile the P4 program again"), "{notes:?}");
    assert!(view.directions[0].objects.iter().all(|o| o.kind == ObjectKind::Map), "{view:?}");
    assert_eq!(cloud.objects(What::Counters), []);
    let tables = cloud.objects(What::Tables);
    assert!(tables.iter().any(|o| o.name == "ing_routes" && o.rows.len() == 2), "{tables:?}");
    load("count.o");
    let traffic = cloud.attachment.traffic();
    cloud.flows(ALICE, 100);
    drop(traffic);
    let hits = cloud.objects(What::Registers);
    let [hits] = hits.as_slice() else { panic!("{hits:?}") };
    assert_eq!((hits.name.as_str(), hits.rows.len()), ("hits", 1));
    assert_eq!(hits.rows[0].index, Some(33));
}

fn inline() {
    let fixture = Fixture::new("inline-state");
    programs(&fixture);
    let config = format!("placement = \"inline\"\n{}", text(&fixture));
    fixture.config(&config.replace("ingress = [\"pass.o\"]", "ingress = [\"state.o\"]"));
    let _daemon = DaemonProcess::start(&fixture);
    let switch = Switch::start(&fixture.at("p4shield.toml"), "port0");
    switch.is_served();
    let seen = || {
        let view = api::inspect(&fixture.at("daemon.sock"), &of_alice(What::Counters));
        let objects = view.map(|v| v.directions.into_iter().flat_map(|d| d.objects).collect::<Vec<_>>());
        objects.ok().and_then(|o| named(&o, "ing.seen").rows[2].packets).unwrap_or(0)
    };
    wait_for("counted packets", || seen() > 0);
    let before = seen();
    switch.flows(ALICE, 500);
    wait_for("more packets", || seen() >= before + 500);
}
