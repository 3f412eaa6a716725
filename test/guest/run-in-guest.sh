#!/bin/bash
# run-in-guest.sh FOLDER COMMAND [ARG…]: runs the command in a guest with the prepared kernel, in the current folder,
# which it sees but cannot change. Output comes here; the exit status is the command's, 125 when the guest gave none.
# GUEST_MEMORY (MiB, 1024), GUEST_CPUS (1), GUEST_TIMEOUT (s, 300), GUEST_COMPILED (what load-modules.ts compiled).
# One processor: with two, emulated at the same time, Node ended with a segmentation fault now and then, a moment after
# its start. The suite in which that was seen takes as long with one.
folder=$(realpath "$1"); shift
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT
{
  printf 'cd %q || exit 125\n' "$PWD"
  printf 'export SEALANE_GUEST=1 TAP_TIMEOUT=%q PATH=%q\n' "${GUEST_TIMEOUT:-300}" "$PATH"
  if [ -n "${GUEST_COMPILED:-}" ]; then printf 'export NODE_COMPILE_CACHE=%q\n' "$GUEST_COMPILED"; fi
  printf '%q ' "$@"; echo
} > "$out/job.sh"
echo "$folder/kernel/lib/modules" > "$out/modules"
# qemu64 without SSSE3 or ERMS: under emulation those make copies and ChaCha20 slower, not faster.
timeout -k 5 "${GUEST_TIMEOUT:-300}" qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot \
  -machine q35 -accel tcg -cpu qemu64,+rdrand -m "${GUEST_MEMORY:-1024}" -smp "${GUEST_CPUS:-1}" \
  -kernel "$folder/vmlinuz" -initrd "$folder/initrd.cpio" \
  -append "console=ttyS0 quiet panic=-1 mitigations=off nokaslr no_timer_check tsc=reliable random.trust_cpu=on" \
  -serial "file:$out/console" \
  -device virtio-serial-pci -chardev stdio,id=c,signal=off -device virtconsole,chardev=c \
  -fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap -device virtio-9p-pci,fsdev=root,mount_tag=root \
  -fsdev local,id=out,path="$out",security_model=none -device virtio-9p-pci,fsdev=out,mount_tag=out < /dev/null
qemu=$?
if [ -s "$out/status" ]; then exit "$(cat "$out/status")"; fi
echo "the guest gave no exit status (qemu: $qemu)" >&2
tail -n 5 "$out/console" >&2
exit 125
