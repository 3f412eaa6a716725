#!/bin/bash
# prepare-guest.sh FOLDER: puts a stock Debian kernel and an initramfs for run-in-guest.sh into FOLDER.
# Needs root (device nodes), apt, busybox-static, cpio, kmod, xz-utils, zstd, binutils.
set -euo pipefail
here=$(dirname "$(realpath "$0")")
mkdir -p "$1"; cd "$1"
# Two tests may begin at once.
exec 9> lock; flock 9
newest() { apt-cache depends "$1" 2>/dev/null | awk '/Depends: linux-image/{print $2; exit}'; }
find_package() { package=$(newest linux-image-6.12-amd64); [ -n "$package" ] || package=$(newest linux-image-amd64); }
find_package
if [ -z "$package" ]; then apt-get update -qq >&2 || true; find_package; fi
[ -n "$package" ] || { echo "apt offers no Debian kernel; is this Debian, with package lists?" >&2; exit 1; }
version=${package#linux-image-}
if [ -f ready ] && [ "$(cat ready)" = "$version" ] && cmp -s "$here/guest-init.sh" init; then exit 0; fi
rm -rf ready kernel ./*.deb
apt-get download -q "$package" >&2
dpkg -x "$package"_*.deb kernel; rm -f "$package"_*.deb
depmod -b kernel -F "kernel/boot/System.map-$version" "$version"
cp "kernel/boot/vmlinuz-$version" vmlinuz
cp "$here/guest-init.sh" init
tree=$(mktemp -d); trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree"/{bin,dev,proc,sys,lower,rw,new,mods}
cp "$(command -v busybox)" "$tree/bin/busybox"
cp init "$tree/init"; chmod 755 "$tree/init"
mknod "$tree/dev/console" c 5 1; mknod "$tree/dev/null" c 1 3
# Only what the root folder needs is preloaded; the guest loads the rest by itself.
for module in 9pnet_virtio 9p overlay tun; do modprobe -d kernel -S "$version" --show-depends "$module"; done |
  awk '$1 == "insmod" && !seen[$2]++ { print $2 }' |
  while read -r path; do
    name=$(basename "${path%.xz}")
    case $path in *.xz) xz -dc "$path" ;; *) cat "$path" ;; esac > "$tree/mods/$name"
    strip --strip-debug "$tree/mods/$name"
    echo "$name" >> "$tree/mods/list"
  done
(cd "$tree" && find . | cpio -o -H newc --quiet) > initrd.cpio
echo "$version" > ready
