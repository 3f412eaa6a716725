/**
 * Enables node settings that are 0 by default and that Sealane needs at 1: IP forwarding and hashing of flows by ports,
 * for IPv4 and IPv6, and marks that count for the reverse-path filter. When Sealane leaves, it disables a setting only if Sealane enabled it. A marker file records this
 * across restarts of the process. It contains the boot id, because after a reboot another program may have enabled the
 * setting.
 *
 * Each part of Sealane that needs a setting has its own marker for it. If one of two parts leaves while the other still
 * runs, the other finds the setting disabled, enables it and writes its marker: the last part to leave restores the
 * original value.
 */
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { HASH_POLICY, IPV6_FORWARDING, IPV6_HASH_POLICY, IP_FORWARDING, SOURCE_VALID_MARK } from '../../model/model.ts'
import type { Sysctl } from './sysctl.ts'

/** Suffixes of the marker files. Releases up to 0.1 have the first two. */
const SUFFIXES: Readonly<Record<string, string>> = {
  [IP_FORWARDING]: '',
  [IPV6_FORWARDING]: '-ipv6',
  [HASH_POLICY]: '-hash-policy',
  [IPV6_HASH_POLICY]: '-ipv6-hash-policy',
  [SOURCE_VALID_MARK]: '-src-valid-mark',
}

const BOOT_ID = 'kernel/random/boot_id'

/**
 * Enables `setting`, which is a key of SUFFIXES. `marker` is the path that the part uses for all settings. Returns true
 * if the setting had to be enabled. Creates the folder of the marker (0700) if it does not exist. Throws KernelError.
 */
export async function ensureForwarding(sysctl: Sysctl, marker: string, setting: string): Promise<boolean> {
  if ((await sysctl.read(setting))?.trim() === '1') return false
  const file = markerFile(marker, setting)
  await mkdir(dirname(file), { recursive: true, mode: 0o700 })
  await writeFile(file, await bootOf(sysctl), { mode: 0o600 })
  try {
    await sysctl.write(setting, '1')
  } catch (error) {
    // With the marker left, leaving would disable what another program enabled, or try to write a setting that does not
    // exist.
    await rm(file, { force: true })
    throw error
  }
  return true
}

/**
 * Takes the same arguments as ensureForwarding(). Returns true if the setting was disabled. Does nothing without a
 * marker. Throws KernelError.
 */
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
