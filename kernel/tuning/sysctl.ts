/** /proc/sys, by dotted name; '/' separates parts that contain dots (net/ipv4/conf/eth0.5/rp_filter). */
import { KernelError } from '../kernel.ts'

/** Settings of the kernel, of this network namespace where they are per namespace. */
export interface Sysctl {
  /** Undefined when there is no such setting. */
  read(name: string): Promise<string | undefined>
  /** Throws KernelError. */
  write(name: string, value: string): Promise<void>
}

// `net.ipv4.ip_forward` and `net/ipv4/conf/eth0.5/rp_filter` as parts of a path below /proc/sys.

/** Throws KernelError EINVAL for a name that is not a plain setting. */
export function sysctlParts(name: string): readonly string[] {
  const parts = name.split(name.includes('/') ? '/' : '.')
  const bad = parts.some((part) => part === '' || part === '.' || part === '..' || !/^[\w.:@+-]+$/.test(part))
  if (parts.length < 2 || bad) {
    throw new KernelError('EINVAL', `sysctl ${JSON.stringify(name)}`, 'expected a name such as net.ipv4.ip_forward')
  }
  return parts
}

/** One spelling for both forms. */
export function sysctlPath(name: string): string {
  return sysctlParts(name).join('/')
}
