/** Brings settings of the kernel to what they have to be. */
import type { Family } from '../../model/addresses/ip.ts'
import { deviceSettings } from '../tuning/device-settings.ts'
import type { Sysctl } from '../tuning/sysctl.ts'
import type { Round } from './round.ts'

/** Writes a setting that differs. True when it had to. A setting that does not exist is none of ours. */
export async function ensureSetting(sysctl: Sysctl, round: Round, name: string, value: string): Promise<boolean> {
  const current = await round.attempt(() => sysctl.read(name))
  if (current?.value === undefined || current.value.trim() === value) return false
  return round.change('sysctl', `sysctl -w ${name}=${value}`, () => sysctl.write(name, value))
}

/** All that a device of ours inherits from the host, for the families that it carries. */
export async function ensureDeviceSettings(
  sysctl: Sysctl,
  round: Round,
  device: string,
  families: readonly Family[],
): Promise<void> {
  for (const { name, value } of deviceSettings(device, families)) await ensureSetting(sysctl, round, name, value)
}
