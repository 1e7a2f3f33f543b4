//! The style of self-contained HTML pages with charts.

/// The style sheet.
pub const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;\
     max-width:900px;margin:2em auto;padding:0 1em;color:#222}\
h1{font-size:1.6em}h2{font-size:1.2em;margin-top:2em}table{border-collapse:collapse;width:100%}\
td,th{border-bottom:1px solid #ddd;padding:.35em .6em;text-align:left;vertical-align:top}\
.held{color:#00704a;font-weight:600}.broke{color:#b00020;font-weight:600}svg{max-width:100%;height:auto}";

/// Returns a text as HTML.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
