/**
 * IP forwarding of the node: switched on while lanes are served, and switched off again on leaving only where it was
 * Sealane that switched it on. That it was is kept in the state directory, so that it outlives a restart.
 */
import { readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Sysctl } from '../kernel/sysctl.ts'

const SETTING = 'net.ipv4.ip_forward'
const MARKER = 'gateway-switched-on-forwarding'

/** True when it had to be switched on. Throws KernelError. */
export async function ensureForwarding(sysctl: Sysctl, stateDir: string): Promise<boolean> {
  if ((await sysctl.read(SETTING))?.trim() === '1') return false
  await writeFile(join(stateDir, MARKER), '', { mode: 0o600 })
  await sysctl.write(SETTING, '1')
  return true
}

/** True when it was switched off. */
export async function restoreForwarding(sysctl: Sysctl, stateDir: string): Promise<boolean> {
  const marker = join(stateDir, MARKER)
  try {
    await readFile(marker)
  } catch {
    return false
  }
  await sysctl.write(SETTING, '0')
  await rm(marker, { force: true })
  return true
}
