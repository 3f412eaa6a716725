#!/bin/busybox sh
# PID 1 of the guest, twice: in the initramfs it puts a writable layer in memory over the host's root folder (shared
# read-only) and switches into it; there, called with "second", it runs the job and writes its exit status.
busybox=/bin/busybox; [ "${1:-}" = second ] && busybox=/run/busybox
fail() { echo "guest: $*"; echo b > /proc/sysrq-trigger; $busybox sleep 5; }
if [ "${1:-}" != second ]; then
  $busybox mount -t proc proc /proc
  $busybox mount -t sysfs sys /sys
  $busybox mount -t devtmpfs dev /dev 2>/dev/null
  for module in $($busybox cat /mods/list); do $busybox insmod "/mods/$module"; done
  $busybox mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=512000 root /lower || fail "no root folder"
  $busybox mount -t tmpfs -o size=80% rw /rw
  $busybox mkdir /rw/upper /rw/work
  $busybox mount -t overlay -o lowerdir=/lower,upperdir=/rw/upper,workdir=/rw/work over /new || fail "no overlay"
  $busybox mount -t tmpfs run /new/run
  $busybox cp /init /new/run/init
  $busybox cp /bin/busybox /new/run/busybox
  for folder in proc sys dev; do $busybox mount --move /$folder /new/$folder; done
  exec $busybox switch_root /new /run/init second
fi
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp TERM=dumb LANG=C.UTF-8
$busybox mkdir -p /dev/pts /dev/shm /run/netns /run/lock /run/out /lib/modules
$busybox mount -t devpts devpts /dev/pts
$busybox mount -t tmpfs shm /dev/shm
$busybox mount -t cgroup2 cg /sys/fs/cgroup
$busybox mount -t 9p -o trans=virtio,version=9p2000.L,cache=none,msize=512000 out /run/out || fail "no result folder"
read -r modules < /run/out/modules
# Lets the kernel load what the tests ask for.
$busybox mount --bind "$modules" /lib/modules
$busybox ip link set lo up
$busybox hostname guest
$busybox stty -F /dev/hvc0 raw -echo
/bin/bash /run/out/job.sh < /dev/null > /dev/hvc0 2>&1
echo $? > /run/out/status
$busybox sync; $busybox sleep 0.05
echo b > /proc/sysrq-trigger; $busybox sleep 5
