/**
 * Switches of a node that are 0 by default and that Sealane needs at 1: IP forwarding and the spreading of flows by
 * ports, of IPv4 and IPv6. Each is switched on while Sealane needs it, and off again on leaving only where it was Sealane
 * that switched it on. That it was is kept in a marker file, so that it outlives a
 * restart of the process, and with the boot it belongs to: after the next one the setting may be somebody else's.
 *
 * Each part that needs a switch has a marker of its own for it. While one of two parts has left and the
 * other still runs, the other finds the setting off, switches it on and remembers that: the last one out leaves it as
 * it was.
 */
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { HASH_POLICY, IPV6_FORWARDING, IPV6_HASH_POLICY, IP_FORWARDING } from '../../model/model.ts'
import type { Sysctl } from './sysctl.ts'

/** Of the marker's files. The first two are those of releases up to 0.1. */
const SUFFIXES: Readonly<Record<string, string>> = {
  [IP_FORWARDING]: '',
  [IPV6_FORWARDING]: '-ipv6',
  [HASH_POLICY]: '-hash-policy',
  [IPV6_HASH_POLICY]: '-ipv6-hash-policy',
}

const BOOT_ID = 'kernel/random/boot_id'

/**
 * `setting` is one of SUFFIXES, `marker` a path that the part uses for all of them. True when it had to be switched on; the marker's folder is made (0700) if absent. Throws KernelError.
 */
export async function ensureForwarding(sysctl: Sysctl, marker: string, setting: string): Promise<boolean> {
  if ((await sysctl.read(setting))?.trim() === '1') return false
  const file = markerFile(marker, setting)
  await mkdir(dirname(file), { recursive: true, mode: 0o700 })
  await writeFile(file, await bootOf(sysctl), { mode: 0o600 })
  try {
    await sysctl.write(setting, '1')
  } catch (error) {
    // Else leaving would switch off what somebody else switched on, or try in vain where there is no such setting.
    await rm(file, { force: true })
    throw error
  }
  return true
}

/** Takes the same. True when it was switched off; without a marker nothing is done. Throws KernelError. */
export async function restoreForwarding(sysctl: Sysctl, marker: string, setting: string): Promise<boolean> {
  const file = markerFile(marker, setting)
  const boot = await readIfThere(file)
  if (boot === undefined) return false
  const ours = boot === (await bootOf(sysctl))
  if (ours) await sysctl.write(setting, '0')
  await rm(file, { force: true })
  return ours
}

function markerFile(marker: string, setting: string): string {
  return marker + (SUFFIXES[setting] ?? '')
}

async function bootOf(sysctl: Sysctl): Promise<string> {
  return (await sysctl.read(BOOT_ID))?.trim() ?? ''
}

async function readIfThere(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}
