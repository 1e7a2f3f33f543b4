//! Changes network interfaces, by requests of rtnetlink (`man 7 rtnetlink`).
//!
//! | function | effect |
//! |---|---|
//! | [`Tap::of`], [`Tap::of_in`] | makes a tap that has all packets of an interface: a macvtap in passthru mode |
//! | [`add_pair`] | makes two interfaces that are connected with each other (veth) |
//! | [`move_as`] | moves an interface and renames it |
//! | [`limit_merging`], [`allow_merging`] | has received packets arrive as they were sent, or not |
//! | [`divide_sent`] | has packets leave an interface as frames |
//! | [`delete`] | deletes an interface |
//! | [`inside`] | does something in another network namespace |
//! | [`start`], [`start_in`] | sets an interface up, here or in another network namespace |
//! | [`stop`] | sets an interface down |
//! | [`rename`], [`rename_by_address`] | gives an interface another name |
//! | [`names`], [`address_of`] | lists interfaces, reads an interface's address |
//! | [`add_bridge`], [`bridge`], [`bridge_ports`] | makes and reads bridges that filter VLANs |
//! | [`join_bridge`], [`set_port_flags`], [`add_port_vlan`], [`add_station`] | changes a bridge's ports |
//! | [`card`], [`set_function`] | reads and changes the virtual functions of a network card (SR-IOV) |

#![forbid(unsafe_code)]

mod attributes;
mod bridge;
mod card;
mod functions;
mod request;
mod sys;
mod tap;

pub use bridge::{
    Bridge, BridgeMember, BridgePort, PortFlag, Station, add_bridge, add_port_vlan, add_station, bridge,
    bridge_ports, join_bridge, leave_bridge, remove_port_vlan, remove_station, set_bridge, set_port_flags,
};
pub use card::{Card, FunctionLink, FunctionTraffic, VirtualFunction};
pub use functions::{FunctionSetting, card, set_function};
pub use request::{
    PairEnd, add_pair, allow_merging, delete, divide_sent, index_of, inside, limit_merging, move_as, rename,
    rename_by_address, start, start_in, stop,
};
pub use sys::{address_of, names};
pub use tap::Tap;

use std::io;

/// Reason why an interface is not changed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {interface}")]
pub struct LinkError {
    /// The operation.
    pub operation: &'static str,
    /// The interface.
    pub interface: String,
    /// The cause.
    #[source]
    pub source: io::Error,
}

impl LinkError {
    fn of<E: Into<io::Error>>(operation: &'static str, interface: &str) -> impl FnOnce(E) -> Self {
        let interface = interface.to_owned();
        move |source| Self { operation, interface, source: source.into() }
    }
}
