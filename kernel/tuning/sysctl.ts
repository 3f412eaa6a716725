/** Settings of the kernel by dotted name. '/' separates parts that contain dots (net/ipv4/conf/eth0.5/rp_filter). */
import { KernelError } from '../kernel.ts'

/** Settings below /proc/sys, of this network namespace if they are namespaced. */
export interface Sysctl {
  /** Undefined if the setting does not exist. */
  read(name: string): Promise<string | undefined>
  /** Throws KernelError. */
  write(name: string, value: string): Promise<void>
}

/**
 * Splits `net.ipv4.ip_forward` or `net/ipv4/conf/eth0.5/rp_filter` into the parts of a path below /proc/sys. Throws
 * KernelError EINVAL if the name is not a plain setting.
 */
export function sysctlParts(name: string): readonly string[] {
  const parts = name.split(name.includes('/') ? '/' : '.')
  const bad = parts.some((part) => part === '' || part === '.' || part === '..' || !/^[\w.:@+-]+$/.test(part))
  if (parts.length < 2 || bad) {
    throw new KernelError('EINVAL', `sysctl ${JSON.stringify(name)}`, 'expected a name such as net.ipv4.ip_forward')
  }
  return parts
}

/** Returns the same spelling for both forms. */
export function sysctlPath(name: string): string {
  return sysctlParts(name).join('/')
}
