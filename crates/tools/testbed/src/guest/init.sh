#!/bin/busybox sh
# The first program of a test's guest. What it prints goes to the first serial port, which the test keeps as a log;
# the second serial port is a shell for the test.
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
while read -r module; do
  insmod "/modules/$module.ko" || echo "guest: module $module does not load"
done </modules/order
ip link set lo up
# Open for good: a port that nobody has open loses what arrives.
exec 3<>/dev/ttyS1
stty raw -echo <&3
echo "guest: ready"
while :; do
  echo "guest-shell" >&3
  # Its output through a pipe, or it would take the port for a person's terminal, with echo and prompt.
  setsid sh <&3 2>&1 | cat >&3
done
