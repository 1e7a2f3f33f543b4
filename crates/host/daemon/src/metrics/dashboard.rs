//! Checks of the dashboard for Grafana, packaging/grafana/p4shield.json.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

const DASHBOARD: &str = include_str!("../../../../../packaging/grafana/p4shield.json");
const METRICS: &str = include_str!("../../../../../docs/reference/metrics.md");
/// Labels that Prometheus adds.
const OF_PROMETHEUS: [&str; 2] = ["instance", "job"];

fn dashboard() -> Value {
    serde_json::from_str(DASHBOARD).expect("the dashboard is JSON")
}

fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    dashboard["panels"].as_array().expect("a dashboard has panels").iter()
}

/// An expression with the words that name labels of its result: the legend, or columns.
struct Query {
    expression: String,
    shown: Vec<String>,
}

/// Returns the queries of all panels.
fn queries(dashboard: &Value) -> Vec<Query> {
    let mut found = Vec::new();
    for panel in panels(dashboard) {
        let columns = panel["transformations"][0]["options"]["include"]["names"].as_array();
        let columns = columns.into_iter().flatten().filter_map(Value::as_str).filter(|name| *name != "Value");
        let columns: Vec<String> = columns.map(str::to_owned).collect();
        for target in panel["targets"].as_array().into_iter().flatten() {
            let legend = target["legendFormat"].as_str().unwrap_or_default();
            let in_legend = legend.split("{{").skip(1).filter_map(|rest| rest.split("}}").next());
            let shown = in_legend.map(str::to_owned).chain(columns.clone()).collect();
            found.push(Query { expression: target["expr"].as_str().unwrap().to_owned(), shown });
        }
    }
    found
}

/// Returns the documented labels of each metric. The tests of `metrics` compare the document with the code.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| `p4shield_")?.split(" | ");
        let name = cells.next()?.trim_end_matches('`');
        let labels = cells.next()?.split(", ").map(str::to_owned).collect();
        Some((format!("p4shield_{name}"), labels))
    };
    METRICS.lines().filter_map(row).collect()
}

/// The names of metrics in an expression, each with the labels that it selects by.
fn selectors(expression: &str) -> Vec<(String, Vec<String>)> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let selector = |(at, _): (usize, &str)| {
        let rest = &expression[at..];
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let matchers = rest[end..].strip_prefix('{').and_then(|m| m.split('}').next()).unwrap_or_default();
        let labels = matchers.split(',').filter(|m| !m.is_empty());
        let labels = labels.map(|m| m.split(['=', '!']).next().unwrap_or_default().trim().to_owned());
        (rest[..end].to_owned(), labels.collect())
    };
    expression.match_indices("p4shield_").map(selector).collect()
}

/// The labels of `by (...)`.
fn grouped(expression: &str) -> Vec<&str> {
    let lists = expression.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
    lists.flat_map(|list| list.split(", ")).collect()
}

#[test]
fn the_dashboard_shows_existing_metrics_and_labels() {
    let documented = documented();
    assert!(documented.len() > 25, "{documented:?}");
    let dashboard = dashboard();
    let queries = queries(&dashboard);
    let mut shown = BTreeSet::new();
    for Query { expression, shown: words } in &queries {
        let selectors = selectors(expression);
        assert!(!selectors.is_empty(), "{expression}");
        for (metric, labels) in &selectors {
            let known = documented.get(metric).unwrap_or_else(|| panic!("{metric} is unknown: {expression}"));
            let used = labels.iter().map(String::as_str).chain(grouped(expression));
            let used = used.chain(words.iter().map(String::as_str));
            for label in used.filter(|label| !OF_PROMETHEUS.contains(label)) {
                assert!(known.contains(label), "{metric} has no label {label}: {expression}");
            }
            shown.insert(metric.clone());
        }
        // What a legend shows has survived the grouping.
        if expression.contains("by (") {
            let kept = grouped(expression);
            assert!(words.iter().all(|word| kept.contains(&word.as_str())), "{expression}: {words:?}");
        }
    }
    // A new metric belongs on the dashboard, or here with a reason: a tenant's own counters have other names.
    let absent: Vec<_> = documented.keys().filter(|metric| !shown.contains(*metric)).collect();
    let expected = |metric: &&&String| {
        !(metric.starts_with("p4shield_program_counter")
            || metric.ends_with("_info")
            || metric.ends_with("_missing"))
    };
    assert_eq!(absent.iter().filter(expected).collect::<Vec<_>>(), Vec::<&&String>::new());
}

#[test]
fn the_dashboard_can_be_imported_anywhere() {
    let dashboard = dashboard();
    assert!(dashboard["schemaVersion"].as_u64().is_some_and(|version| version >= 30));
    assert!(dashboard["uid"].is_null() && dashboard["id"].is_null(), "the importing Grafana chooses them");
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    assert_eq!((&variables[0]["name"], &variables[0]["type"]), (&"datasource".into(), &"datasource".into()));
    let mut ids = BTreeSet::new();
    for panel in panels(&dashboard) {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let targets = panel["targets"].as_array().into_iter().flatten();
        for place in targets.chain((panel["type"] != "row").then_some(panel)) {
            assert_eq!(place["datasource"]["uid"], "${datasource}", "{place}");
        }
    }
    let documented = documented();
    for variable in &variables[1..] {
        let query = variable["query"]["query"].as_str().unwrap();
        let (series, label) = query.strip_prefix("label_values(").unwrap().rsplit_once(", ").unwrap();
        let (metric, _) = &selectors(series)[0];
        assert!(documented[metric].contains(label.trim_end_matches(')')), "{query}");
    }
}

#[test]
fn promtool_accepts_the_dashboards_expressions() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yml");
    let mut rules = String::from("groups:\n- name: dashboard\n  rules:\n");
    for (n, Query { expression, .. }) in queries(&dashboard()).iter().enumerate() {
        let expression =
            expression.replace("$__rate_interval", "1m").replace("$tenant", ".*").replace("$vm", ".*");
        assert!(!expression.contains('$'), "{expression}");
        rules += &format!("  - record: panel:{n}\n    expr: {}\n", Value::from(expression));
    }
    std::fs::write(&file, rules).unwrap();
    match Command::new("promtool").args(["check", "rules"]).arg(&file).output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(why) => p4shield_need::skip("promtool", why),
    }
}
