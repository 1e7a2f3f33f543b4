# Installs, upgrades, removes and purges the packages of scripts/deb.sh. Run by deb.rs in namespaces of its own (mounts,
# processes), on a copy of the machine's files, so that the machine stays as it is.
# Wants: $FOLDER, a folder with the packages in packages/; $VERSION, their version.
set -eu

. "$(dirname "$0")/copy.sh"
mkdir -p /run/systemd/system

# The steps, in the copy. systemctl records its calls; the services run if /run/active exists.
cat >/run/tour <<'TOUR'
set -eu
export PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive
cat >/usr/local/sbin/systemctl <<'SH'
#!/bin/sh
echo "$*" >>/run/calls
[ "$1 $2" != "--quiet is-active" ] || [ -e /run/active ]
SH
chmod 755 /usr/local/sbin/systemctl
: >/run/calls; : >/run/daemon.log
files() { find /etc /usr /var /opt -path /var/lib/dpkg -prune -o -path /var/log -prune -o -path /var/cache -prune -o -print | sort; }
dpkg() { command dpkg --force-unsafe-io "$@" >>/run/said 2>&1; }
quiet() { : >/run/calls; : >/run/said; }
claim() { # claim WORDS COMMAND...: the command succeeds.
  words=$1 && shift
  if ! "$@"; then echo "wrong: $words"; echo "-- dpkg and scripts:"; cat /run/said; echo "-- calls:"; cat /run/calls; cat /run/daemon.log; exit 1; fi
}
never() { ! "$@"; }
said() { grep -q -- "$1" /run/said; }
old=$(ls "$FOLDER"/packages/*.deb)
all="p4shield-vm p4shield-ethdev p4shield-inline p4shield-xsk p4shield-dpdk p4shield-agent p4shield p4shield-common"
quiet
files >/run/before

# A guest gets no unit of the host daemon.
claim "the agent can be installed" dpkg -i "$FOLDER"/packages/p4shield-common_*.deb "$FOLDER"/packages/p4shield-agent_*.deb
claim "a guest has no host daemon" [ ! -e /usr/lib/systemd/system/p4shield.service ]
claim "the binary runs" [ "$(/usr/bin/p4shield --version)" = "p4shield $VERSION" ]
# A host without a configuration.
claim "everything can be installed" dpkg -i $old
claim "nothing is started or enabled" never grep -Ev '^(daemon-reload|--quiet is-active .*)$' /run/calls
claim "no unit is enabled" [ -z "$(find /etc/systemd -name '*p4shield*')" ]
claim "attach finds the packaged library" [ -n "$(/usr/bin/p4shield attach dpdk --check | grep /usr/lib/p4shield/libp4shield_dpdk.so)" ]
claim "the packaged unit runs the packaged binary" grep -q '^ExecStart=/usr/bin/p4shield run' /usr/lib/systemd/system/p4shield.service
claim "no unit names another installation" never grep -r /usr/local /usr/lib/systemd/system/p4shield.service \
  /usr/lib/systemd/system/p4shield-agent.service /usr/lib/systemd/system/p4shield-audit@.service \
  /usr/lib/systemd/system/p4shield-switch@.service

# A daemon with a P4 VM, which an upgrade replaces.
mkdir -p /etc/p4shield /run/p4shield
cat >/etc/p4shield/p4shield.toml <<'TOML'
attachment = "dpdk"
[[tenant]]
name = "alice"
[[tenant.vm]]
name = "web"
addresses = ["10.0.0.2"]
TOML
/usr/bin/p4shield run --config /etc/p4shield/p4shield.toml >/run/daemon.log 2>&1 &
daemon=$!
for _ in $(seq 300); do ! /usr/bin/p4shield metrics 2>/dev/null | grep -q '^p4shield_p4vm_up.* 1' || break; sleep 0.1; done
claim "the P4 VM runs" grep -q 'event="p4vm_runs"' /run/daemon.log
quiet
touch /run/active
claim "the same version can be installed again" dpkg -i "$FOLDER"/packages/p4shield_*.deb
claim "the running daemon becomes the new version" said "runs in place of $VERSION; 1 P4 VM"
claim "it has the same process" kill -0 $daemon
claim "systemd restarts nothing" never grep -Ev '^(daemon-reload|--quiet is-active .*)$' /run/calls
kill $daemon && wait $daemon || true
rm /run/active /etc/p4shield/p4shield.toml

# A newer version, whose configuration files differ, while the daemon does not answer.
mkdir "$FOLDER/newer"
for package in $old; do
  folder=/run/$(basename "$package" .deb)
  dpkg-deb -R "$package" "$folder"
  sed -i "s/^Version: .*/Version: $VERSION+newer/; s/(= $VERSION)/(= $VERSION+newer)/g" "$folder/DEBIAN/control"
  for file in $(cat "$folder/DEBIAN/conffiles" 2>/dev/null || true); do echo "# newer" >>"$folder$file"; done
  dpkg-deb -Znone -b "$folder" "$FOLDER/newer" >/dev/null
  rm -rf "$folder"
done
echo "P4SHIELD_LOG=debug" >>/etc/default/p4shield
quiet
touch /run/active
claim "an upgrade succeeds while the daemon runs" dpkg --force-confold -i "$FOLDER"/newer/*.deb
rm /run/active
claim "an upgrade interrupts nothing" never grep -Ev '^(daemon-reload|--quiet is-active .*)$' /run/calls
claim "the operator learns what still runs" said "the daemon still runs as version $VERSION"
claim "switches go on, too" said "P4 switches still run as version $VERSION"
claim "a changed configuration file stays" grep -q '^P4SHIELD_LOG=debug' /etc/default/p4shield
claim "its newer version is beside it" [ -e /etc/default/p4shield.dpkg-dist ]
claim "an unchanged configuration file is updated" grep -q '^# newer' /etc/p4shield/agent.conf

# A library that a switch loads.
quiet
mkdir -p /etc/systemd/system/ovs-vswitchd.service.d
echo 'Environment="LD_PRELOAD=/usr/lib/p4shield/libp4shield_dpdk.so"' >/etc/systemd/system/ovs-vswitchd.service.d/90-p4shield.conf
claim "an attached library cannot be removed" never dpkg -r p4shield-inline p4shield-dpdk
claim "the refusal names the remedy" said "p4shield detach dpdk"
claim "the library is there" [ -e /usr/lib/p4shield/libp4shield_dpdk.so ]
rm -r /etc/systemd/system/ovs-vswitchd.service.d

# Removal keeps configuration and state.
mkdir -p /etc/p4shield/switch /var/lib/p4shield/p4vm /var/lib/p4shield/programs /etc/systemd/system/multi-user.target.wants
touch /etc/p4shield/p4shield.toml /etc/p4shield/switch/s1.conf /etc/p4shield/alice.key /var/lib/p4shield/programs/web.o \
  /var/lib/p4shield/p4vm/alice.epoch /var/lib/p4shield/info.epoch
ln -s /usr/lib/systemd/system/p4shield.service /etc/systemd/system/multi-user.target.wants/p4shield.service
ln -s /usr/lib/systemd/system/p4shield-switch@.service /etc/systemd/system/multi-user.target.wants/p4shield-switch@s1.service
claim "everything can be removed" dpkg -r $all
claim "removal stops the switches" grep -q '^stop p4shield-switch@\*.service$' /run/calls
claim "removal stops the daemon" grep -q '^stop p4shield.service$' /run/calls
claim "removal removes the binary" [ ! -e /usr/bin/p4shield ]
claim "removal removes the libraries" [ ! -e /usr/lib/p4shield ]
for file in /etc/default/p4shield /etc/p4shield/agent.conf /etc/p4shield/p4shield.toml /etc/p4shield/switch/s1.conf \
  /etc/p4shield/alice.key /var/lib/p4shield/programs/web.o /var/lib/p4shield/p4vm/alice.epoch; do
  claim "removal keeps $file" [ -e "$file" ]
done

# Purging keeps keys, with the epochs that make them safe to use again.
quiet
claim "everything can be purged" dpkg -P $all
for file in /etc/p4shield/alice.key /var/lib/p4shield/p4vm/alice.epoch /var/lib/p4shield/info.epoch; do
  claim "purging keeps $file" [ -e "$file" ]
done
for file in /etc/default/p4shield /etc/p4shield/agent.conf /etc/p4shield/p4shield.toml /etc/p4shield/switch \
  /var/lib/p4shield/programs /etc/systemd/system/multi-user.target.wants/p4shield-switch@s1.service \
  /etc/systemd/system/multi-user.target.wants/p4shield.service; do
  claim "purging removes $file" [ ! -e "$file" ]
done
claim "purging names the keys that stay" said /etc/p4shield/alice.key

# Without keys, nothing is left.
claim "everything can be installed again" dpkg -i $old
rm /etc/p4shield/alice.key
claim "everything can be purged at once" dpkg -P $all
files >/run/after
if ! diff /run/before /run/after; then echo "wrong: files are left, or missing"; exit 1; fi
echo "the tour is over"
TOUR
sh /run/tour
