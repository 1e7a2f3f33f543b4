//! A plan as a picture (SVG): compartments on the left, the NIC switch in the middle, VMs on the right. The
//! ways between them have the colour of their tenant; those to the outside are grey and lead to the uplink.

use super::mac::text as mac;
use super::model::{Compartment, Plan, Tenant};
use super::text::mebibytes;
use std::fmt::{Display, Write};

/// Width of the picture; all lengths are in its units.
const WIDTH: u32 = 960;
/// Left and right edge of compartments.
const COMPARTMENTS: [u32; 2] = [40, 300];
/// Left and right edge of the NIC switch, or at the baseline of the one switch.
const SWITCH: [u32; 2] = [430, 560];
/// Left and right edge of tenants.
const TENANTS: [u32; 2] = [690, 920];
/// Where the ways to the outside meet.
const TRUNK: u32 = 450;
/// Height of a VM's box and the distance to the next.
const VM: [u32; 2] = [46, 54];
/// Height of a tenant's head line.
const HEAD: u32 = 28;
/// Height above the first tenant.
const TOP: u32 = 84;
/// Distance between tenants.
const GAP: u32 = 16;
/// Number of colours.
const COLOURS: u16 = 6;

const STYLE: &str = "\
.bg{fill:#ffffff}.host{fill:#f6f8fa;stroke:#8c959f}.box{fill:#ffffff;stroke:#57606a}
.tenant{fill:none;stroke:#8c959f;stroke-dasharray:4 3}text{fill:#1f2328}
.note{fill:#57606a;font-size:12px}
.code{font-family:ui-monospace,'DejaVu Sans Mono',monospace;font-size:11.5px}
.head{font-weight:600}.way{fill:none;stroke-width:2}.out{stroke:#57606a}
.t0{stroke:#0969a8}.t1{stroke:#2f7d53}.t2{stroke:#b35900}.t3{stroke:#8250df}
.t4{stroke:#bf3989}.t5{stroke:#7a6a00}
@media (prefers-color-scheme:dark){.bg{fill:#0d1117}.host{fill:#161b22;stroke:#6e7681}
.box{fill:#21262d;stroke:#8b949e}text{fill:#e6edf3}.note{fill:#9198a1}.out{stroke:#9198a1}
.t0{stroke:#58a6ff}.t1{stroke:#56c287}.t2{stroke:#f0883e}.t3{stroke:#bc8cff}
.t4{stroke:#f778ba}.t5{stroke:#d4b106}}
";

impl Plan {
    /// Draws the plan as an SVG document.
    #[must_use]
    pub fn picture(&self) -> String {
        let tenants = self.compartments.iter().flat_map(|c| &c.tenants);
        let bottom = TOP + tenants.map(|t| height(t) + GAP).sum::<u32>();
        let mut drawing = Drawing::default();
        drawing.host(self, bottom);
        let mut y = TOP;
        for compartment in &self.compartments {
            y = drawing.compartment(compartment, y, bottom);
        }
        drawing.document(self, bottom + 96)
    }
}

/// Returns the height of a tenant.
fn height(t: &Tenant) -> u32 {
    let vms = u32::try_from(t.vms.len()).unwrap_or(u32::MAX / VM[1]);
    HEAD + vms.max(1) * VM[1] + (VM[1] - VM[0])
}

/// Returns the height at which a tenant's way meets the switch: the middle of its VMs.
fn middle(t: &Tenant, y: u32) -> u32 {
    let below = VM[1] - VM[0];
    y + HEAD + (height(t) - HEAD - 2 * below) / 2
}

/// Returns the left edge of the host: at the baseline there are no compartments to draw.
fn left(plan: &Plan) -> u32 {
    if is_baseline(plan) { SWITCH[0] - 24 } else { COMPARTMENTS[0] - 24 }
}

fn is_baseline(plan: &Plan) -> bool {
    plan.compartments.iter().all(|c| c.in_out.is_none())
}

#[derive(Default)]
struct Drawing {
    boxes: String,
    /// Drawn above the boxes.
    ways: String,
}

impl Drawing {
    fn document(self, plan: &Plan, height: u32) -> String {
        let level = plan.level.name();
        let left = left(plan) - 16;
        let width = WIDTH - left;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"{left} 0 {width} {height}\" \
             font-family=\"system-ui, 'DejaVu Sans', sans-serif\" font-size=\"14\" role=\"img\">\n\
             <title>Tenants' switches at level {level}</title>\n<style>\n{STYLE}</style>\n\
             <rect class=\"bg\" x=\"{left}\" width=\"{width}\" height=\"{height}\" rx=\"8\"/>\n{}{}</svg>\n",
            self.boxes, self.ways
        )
    }

    /// Draws what is there once: the host, the switch in the middle, the network outside.
    fn host(&mut self, plan: &Plan, bottom: u32) {
        let (is_baseline, left) = (is_baseline(plan), left(plan));
        self.rect("host", [left, WIDTH - 16], [16, bottom + 12]);
        self.text("head", [left + 14, 40], format_args!("cloud host, level {}", plan.level.name()));
        let name = if is_baseline { "switch" } else { "NIC switch" };
        self.rect("box", SWITCH, [56, bottom]);
        self.text("head", [SWITCH[0] + 10, 76], name);
        if is_baseline && let Some(switch) = plan.compartments.first() {
            self.text("code", [SWITCH[0] + 4, bottom - 10], mac(switch.mac));
        }
        let below = bottom + 52;
        self.way("out", format_args!("M{TRUNK} {bottom}V{below}"));
        self.text("code", [TRUNK + 8, bottom + 30], format_args!("{} (uplink)", plan.uplink));
        self.rect("box", [left + 24, TENANTS[1]], [below, below + 30]);
        let network = format!("outside network, router {}", mac(plan.gateway_mac));
        self.text("note", [left + 36, below + 20], network);
    }

    /// Draws a compartment with its tenants from `y` on. Returns where the next one begins.
    fn compartment(&mut self, c: &Compartment, y: u32, bottom: u32) -> u32 {
        let mut next = y;
        for tenant in &c.tenants {
            self.tenant(tenant, next);
            next += height(tenant) + GAP;
        }
        let Some(link) = &c.in_out else { return next };
        let [left, right] = COMPARTMENTS;
        let end = next.saturating_sub(GAP);
        self.rect("box", COMPARTMENTS, [y, end]);
        self.text("head", [left + 12, y + 22], cut(&c.name));
        let resources = format!("a switch on core {}, {}", c.core, mebibytes(c.memory));
        self.text("note", [left + 12, y + 42], resources);
        self.text("code", [left + 12, y + 62], mac(c.mac));
        let at = y + 16;
        self.way("out", format_args!("M{right} {at}H{TRUNK}V{bottom}"));
        self.text("code", [right + 8, at - 4], &link.outer);
        next
    }

    fn tenant(&mut self, t: &Tenant, y: u32) {
        let (colour, middle) = (format!("t{}", (t.number - 1) % COLOURS), middle(t, y));
        self.rect("tenant", TENANTS, [y, y + height(t)]);
        self.text("head", [TENANTS[0] + 10, y + 20], cut(&t.name));
        let meeting = SWITCH[1] - 24;
        if let Some(link) = &t.gateway {
            self.way(&colour, format_args!("M{} {middle}H{meeting}", COMPARTMENTS[1]));
            self.text("code", [COMPARTMENTS[1] + 8, middle - 5], &link.outer);
            self.text("code", [TRUNK + 8, middle - 5], format_args!("VLAN {}", t.vlan));
        }
        let mut top = y + HEAD;
        for vm in &t.vms {
            let [left, at] = [TENANTS[0] + 10, top + VM[0] / 2];
            let from = if t.gateway.is_some() {
                format!("M{meeting} {middle}V{at}")
            } else {
                format!("M{} {at}", SWITCH[1])
            };
            self.way(&colour, format_args!("{from}H{left}"));
            self.text("code", [SWITCH[1] + 8, at - 5], vm.port_interface());
            if vm.wire.is_some() {
                self.text("code", [SWITCH[1] + 8, at + 13], "program");
            }
            self.rect("box", [left, TENANTS[1] - 10], [top, top + VM[0]]);
            self.text("", [left + 10, top + 19], cut(&vm.name));
            let addresses: Vec<_> = vm.addresses.iter().map(ToString::to_string).collect();
            self.text("code", [left + 10, top + 37], shortened(&addresses));
            top += VM[1];
        }
    }

    fn rect(&mut self, class: &str, [left, right]: [u32; 2], [top, bottom]: [u32; 2]) {
        let (width, height) = (right - left, bottom.saturating_sub(top));
        // Writing to a string cannot fail.
        let _ = writeln!(
            self.boxes,
            "<rect class=\"{class}\" x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" \
             rx=\"6\"/>"
        );
    }

    fn text(&mut self, class: &str, [x, y]: [u32; 2], text: impl Display) {
        let text = text.to_string().replace('&', "&amp;").replace('<', "&lt;");
        let _ = writeln!(self.ways, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{text}</text>");
    }

    fn way(&mut self, class: &str, path: impl Display) {
        let _ = writeln!(self.ways, "<path class=\"way {class}\" d=\"{path}\"/>");
    }
}

/// Returns as much of a name, which is ASCII, as a box has room for.
fn cut(name: &str) -> String {
    match name.get(..22) {
        Some(begin) if name.len() > 24 => format!("{begin}…"),
        _ => name.to_owned(),
    }
}

/// Returns as many addresses as a VM's box has room for.
fn shortened(addresses: &[String]) -> String {
    match addresses {
        [first, second] if first.len() + second.len() < 26 => format!("{first} {second}"),
        [first, _, ..] => format!("{first} +{}", addresses.len() - 1),
        _ => addresses.concat(),
    }
}
