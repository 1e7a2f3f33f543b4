# What docs/how-to/attach-dpdk.md has an operator do, with the distribution's own start script in the place of systemd. Run by operator.rs
# in namespaces of its own (network, mounts, processes), so that the machine's files and processes stay as they are.
# Wants: $P4SHIELD, the binary; $LIBRARY, libp4shield_dpdk.so; $FOLDER, an empty folder.
set -eu

mount --make-rprivate /
mount -t tmpfs none /run
cp -a /etc "$FOLDER/etc" && mount --bind "$FOLDER/etc" /etc
mkdir -p "$FOLDER/lib/p4shield" "$FOLDER/db" /run/openvswitch /run/p4shield /etc/p4shield
cp "$LIBRARY" "$FOLDER/lib/p4shield/" && mount --bind "$FOLDER/lib" /usr/local/lib
export OVS_LOGDIR="$FOLDER" OVS_DBDIR="$FOLDER/db" RUNTIME_DIRECTORY="$FOLDER"
ip link set lo up && ip link add v0 type veth peer name v1 && ip link set v0 up && ip link set v1 up
scripts=/usr/share/openvswitch/scripts

# Becomes true within a minute, or the tour is over.
until_true() {
  for _ in $(seq 300); do if "$@"; then return; fi; sleep 0.2; done
  echo "never true: $*"
  tail -n 30 "$FOLDER"/*.log
  exit 1
}
status_has() { "$P4SHIELD" status --json | grep -q "$1"; }

# What `update-alternatives --set` does.
ln -sf /usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk /etc/alternatives/ovs-vswitchd
cat >/etc/p4shield/p4shield.toml <<'TOML'
attachment = "dpdk"
[[tenant]]
name = "alice"
[[tenant.vm]]
name = "web"
addresses = ["10.0.0.2"]
iface_id = "8d6b1f0e-web"
TOML
"$P4SHIELD" run >"$FOLDER/daemon.log" 2>&1 &
"$P4SHIELD" attach dpdk --apply

$scripts/ovs-ctl --no-ovs-vswitchd --system-id=random --no-record-hostname start
ovs-vsctl --no-wait set Open_vSwitch . other_config:dpdk-init=true \
  other_config:dpdk-extra="--no-pci --no-huge --legacy-mem --no-shconf --no-telemetry -m 256"
# What systemd does with the drop-in.
environment=$(sed -n 's/^Environment="\(.*\)"$/\1/p' /etc/systemd/system/ovs-vswitchd.service.d/90-p4shield.conf)
env $environment $scripts/ovs-ctl --no-ovsdb-server --no-monitor --no-mlockall --system-id=random \
  --no-record-hostname start
ovs-vsctl --timeout=60 add-br br0 -- set bridge br0 datapath_type=netdev
ovs-vsctl --timeout=60 add-port br0 vhu-web -- set interface vhu-web type=dpdk \
  options:dpdk-devargs=net_af_packet0,iface=v0,qpairs=1

until_true status_has '"interface":"vhu-web".*"mediated":true.*"role":"shared"'
if "$P4SHIELD" status >"$FOLDER/status"; then echo "an absent iface-id is no problem"; exit 1; fi
grep "tenant alice, VM web, iface_id 8d6b1f0e-web: no interface" "$FOLDER/status"
grep "port vhu-web: no entry of the configuration names it" "$FOLDER/status"
if grep "port br0" "$FOLDER/status"; then echo "the bridge's local port is a problem"; exit 1; fi
# The cloud says whose the port is, while the switch runs.
ovs-vsctl --timeout=60 set interface vhu-web external_ids:iface-id=8d6b1f0e-web
# An absent port of the VM has the same role, in an object of its own.
until_true status_has '"interface":"vhu-web"[^{}]*"mediated":true[^{}]*"role":"vm","tenant":"alice","vm":"web"'
"$P4SHIELD" status
"$P4SHIELD" attach dpdk --check | grep "has loaded the library"
ovs-vsctl --timeout=60 set Open_vSwitch . other_config:hw-offload=true
if "$P4SHIELD" attach dpdk --check; then echo "hw-offload was not refused"; exit 1; fi
"$P4SHIELD" detach dpdk --apply
[ ! -e /etc/systemd/system/ovs-vswitchd.service.d ]
echo "the tour is over"
